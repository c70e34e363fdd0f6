"""Approximate lists against exact ones."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from mgformer.errors import ConfigError
from mgformer.ranking import index as module
from mgformer.ranking.index import build_index, is_indexable, recall_of, sparse_scores
from mgformer.ranking.scorers import DotScorer, HistoryScorer, SumScorer
from mgformer.ranking.topk import top_k

pytest.importorskip("faiss")


def clustered(num_users, num_items, dim, num_groups=20, seed=0):
    """Vectors around some centers, as those of trained models are."""
    random = np.random.default_rng(seed)
    centers = random.standard_normal((num_groups, dim)).astype(np.float32)

    def drawn(number):
        near = centers[random.integers(0, num_groups, number)]
        return torch.from_numpy(near + 0.5 * random.standard_normal((number, dim), np.float32))

    return DotScorer(drawn(num_users), drawn(num_items))


def sparse(rows, columns, share, seed, *, ones=False):
    random = np.random.default_rng(seed)
    values = np.ones((rows, columns)) if ones else random.standard_normal((rows, columns))
    return sp.csr_array((values * (random.random((rows, columns)) < share)).astype(np.float32))


def scorer_of(kind, num_users, num_items):
    vectors = clustered(num_users, num_items, 6)
    if kind == "dot":
        return vectors
    histories = sparse(num_users, num_items, 0.2, 1, ones=True)
    factors = torch.linspace(0.5, 2, num_items) if kind == "trend" else None
    weights = 3 * sparse(num_items, num_items, 0.1, 2)
    return SumScorer(vectors, HistoryScorer(histories, weights, item_factors=factors))


def same(found, expected):
    np.testing.assert_array_equal(found.items, expected.items)
    np.testing.assert_array_equal(found.scores, expected.scores)


@pytest.mark.parametrize("kind", ["dot", "sum", "trend"])
def test_if_everything_is_proposed_lists_are_exact(kind):
    scorer, seen = scorer_of(kind, 33, 60), sparse(33, 60, 0.2, 3, ones=True)
    index, users = build_index(scorer), np.array([5, 0, 32, 7])
    allowed = np.arange(60) % 7 > 0
    for options in (
        {},
        {"seen": seen},
        {"exclude": [3, 17]},
        {"seen": seen, "allowed": allowed, "exclude": [1]},
        {"allowed": np.arange(60) < 4},  # fewer than k items are left
        {"candidates": [1, 5, 40]},
    ):
        found = index.top_k(scorer, users, 15, **options)
        expected = top_k(scorer, users, 15, **options)
        width = expected.items.shape[1]
        same(type(found)(*(part[:, :width] for part in found)), expected)
        assert (found.items[:, width:] == -1).all()


@pytest.mark.parametrize("kind", ["dot", "sum"])
def test_histories_are_proposed_too_and_scores_are_exact(kind):
    scorer = scorer_of(kind, 50, 900)
    index, users = build_index(scorer), np.arange(50)
    found, expected = index.top_k(scorer, users, 20), top_k(scorer, users, 20)
    assert recall_of(found.items, expected.items) > 0.95
    for row in range(50):
        exact = scorer.scores(torch.tensor([row]))[0].numpy()
        np.testing.assert_allclose(found.scores[row], exact[found.items[row]], rtol=1e-5, atol=1e-5)
        assert (np.diff(found.scores[row]) <= 0).all()


def test_the_width_of_the_search_follows_the_recall():
    scorer = clustered(400, 8_000, 8)
    index = build_index(scorer)
    every = np.arange(400)
    found = index.top_k(scorer, every, 20).items
    assert index.recall >= 0.99
    assert recall_of(found, top_k(scorer, every, 20).items) > 0.97
    assert index.searched.nprobe < index.searched.nlist
    whole = build_index(scorer, enough=1.1)
    assert whole.recall == 1
    assert whole.searched.nprobe == whole.searched.nlist
    again = build_index(scorer)
    np.testing.assert_array_equal(again.top_k(scorer, every, 20).items, found)


def test_lists_without_enough_proposals_are_exact(monkeypatch):
    scorer, users = clustered(9, 4_000, 8), np.arange(9)
    index = build_index(scorer)
    rare = np.zeros(4_000, dtype=bool)
    rare[::500] = True
    same(index.top_k(scorer, users, 8, allowed=rare), top_k(scorer, users, 8, allowed=rare))
    long = module.MOST_K + 1
    same(index.top_k(scorer, users, long), top_k(scorer, users, long))
    other = replace(scorer, items=scorer.items.clone())
    assert not index.serves(other)
    assert index.serves(scorer.fold_in(sparse(3, 4_000, 0.01, 5, ones=True)))
    monkeypatch.setattr(index, "_among_proposals", None)  # nothing is proposed for other vectors
    same(index.top_k(other, users, 5), top_k(other, users, 5))


@pytest.mark.parametrize("k", [0, -1])
def test_a_list_has_at_least_one_item(k):
    scorer = clustered(3, 50, 4)
    with pytest.raises(ConfigError, match=f"k must be at least 1, got {k}"):
        build_index(scorer).top_k(scorer, [0], k)


def test_what_can_have_an_index():
    both = scorer_of("sum", 5, 12)
    assert is_indexable(both)
    assert not is_indexable(both.history)
    dense = replace(both.history, weights=torch.eye(12))
    assert not is_indexable(SumScorer(both.vectors, dense))


def test_sparse_scores_are_those_of_the_scorer():
    history = scorer_of("trend", 7, 12).history
    expected = history.scores(torch.arange(7)).numpy()
    np.testing.assert_array_equal(sparse_scores(history, np.arange(7)).toarray(), expected)


def test_recall():
    found = np.array([[1, 2, 3], [4, 5, 6]])
    assert recall_of(found, np.array([[3, 2, 1], [4, 7, -1]])) == 4 / 5
    assert recall_of(found[:0], found[:0]) == 0
