import numpy as np
import pytest
import scipy.sparse as sp
import torch

from mgformer.graph.bipartite import Graph
from mgformer.graph.segments import with_segments
from mgformer.graph.sparse import kept_entries
from mgformer.models.simple import ridge
from mgformer.models.simple.ridge import Ridge, best_penalty, hold_out
from mgformer.ranking.scorers import HistoryScorer
from tests.models.simple import oracles_simple as oracles


def clusters(num_users=200, num_items=60, seed=2):
    """Users of six tastes, with noise."""
    random = np.random.default_rng(seed)
    same = random.integers(0, 6, num_users)[:, None] == np.arange(num_items) % 6
    return sp.csr_array((random.random(same.shape) < 0.05 + 0.35 * same).astype(np.float32))


@pytest.mark.parametrize("l2", [0.5, 20.0])
def test_scores_by_the_formula(l2, rng):
    r = clusters(40, 17)
    options = {"num_predictors": 100, "l2": l2, "dropout": 0.3}
    model = Ridge(Ridge.Config(**options), Graph(r), rng)
    dense = r.toarray().astype(np.float64)
    expected = dense @ oracles.ridge(dense, **options)
    found = model.scorer().scores(torch.arange(40)).numpy()
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_segments_count_where_the_order_is_known(rng):
    r = clusters(40, 17)
    positions = np.concatenate([np.arange(1, n + 1) / n for n in np.diff(r.indptr)])
    ordered = Graph(r, positions.astype(np.float32))
    options = {"num_predictors": 100, "l2": 20.0, "dropout": 0.3}
    stacked = with_segments(r, ordered.positions, 0.5).toarray().astype(np.float64)
    expected = oracles.ridge(stacked, **options)
    half = Ridge.Config(**options, segment_weight=0.5)
    found = Ridge(half, ordered, rng).scorer().weights.toarray()
    np.testing.assert_allclose(found, expected, atol=1e-5)
    plain = Ridge(Ridge.Config(**options), Graph(r), rng).scorer().weights.toarray()
    off = Ridge(Ridge.Config(**options), ordered, rng).scorer()
    np.testing.assert_array_equal(off.weights.toarray(), plain)
    assert np.abs(plain - found).max() > 0.01


def test_a_tenth_of_some_users_is_held_out(monkeypatch):
    monkeypatch.setattr(ridge, "MOST_USERS", 30)
    r = clusters()
    taken = hold_out(r, np.random.default_rng(0))
    known, held_out = kept_entries(r, ~taken), kept_entries(r, taken)
    np.testing.assert_array_equal((known + held_out).toarray(), r.toarray())
    counts, all_counts = np.diff(held_out.indptr), np.diff(r.indptr)
    chosen = counts > 0
    assert chosen.sum() == 30
    np.testing.assert_array_equal(counts[chosen], np.maximum(1, all_counts[chosen] // 10))


@pytest.mark.parametrize("most_items", [60, 25], ids=["all items", "25 of 60 items"])
def test_the_penalty_is_the_best_on_held_out_pairs(most_items, monkeypatch):
    monkeypatch.setattr(ridge, "MOST_ITEMS", most_items)
    r, found, rng = clusters(), {}, np.random.default_rng(5)
    drawn = np.arange(60) if most_items == 60 else rng.choice(60, most_items, replace=False)
    others = np.setdiff1d(np.arange(60), drawn)
    taken = hold_out(r, rng)
    known, held_out = kept_entries(r, ~taken), kept_entries(r, taken)
    for l2 in ridge.PENALTIES:
        b = oracles.ridge(known.toarray().astype(np.float64), 30, l2, 0.5)
        b[:, others] = 0
        scores = np.where(known.toarray() > 0, -np.inf, known @ b)
        values = []
        for user in np.flatnonzero(np.diff(held_out.indptr)):
            wanted = {*held_out[[int(user)]].indices.tolist()} & {*drawn.tolist()}
            if not wanted:
                continue
            ranked = np.argsort(-scores[user], kind="stable")[:20]
            gains = [1 / np.log2(n + 2) for n, item in enumerate(ranked) if item in wanted]
            ideal = sum(1 / np.log2(n + 2) for n in range(min(20, len(wanted))))
            values.append(sum(gains) / ideal)
        found[l2] = np.mean(values)
    assert len({round(value, 6) for value in found.values()}) > 1
    chosen = best_penalty(r, Ridge.Config(num_predictors=30), np.random.default_rng(5))
    assert chosen == max(found, key=found.get)


def test_the_penalty_is_chosen_or_given(rng):
    r = clusters()
    chosen = best_penalty(r, Ridge.Config(num_predictors=30), np.random.default_rng(1))
    own = Ridge(Ridge.Config(num_predictors=30), Graph(r), np.random.default_rng(1)).scorer()
    given = Ridge(Ridge.Config(num_predictors=30, l2=chosen), Graph(r), rng).scorer()
    assert isinstance(own, HistoryScorer)
    np.testing.assert_array_equal(own.weights.toarray(), given.weights.toarray())
    assert chosen != 60.0  # the choice depends on the data


def test_users_of_one_item_have_nothing_to_hold_out(rng):
    r = sp.csr_array(np.eye(4, dtype=np.float32))
    assert best_penalty(r, Ridge.Config(num_predictors=3), rng) == ridge.USUAL_PENALTY


def test_the_penalty_is_chosen_with_the_segments():
    """A large weight of segments adds to all co-occurrences, so the best penalty grows too."""
    r = clusters(num_users=60)
    positions = np.concatenate([np.arange(1, n + 1) / n for n in np.diff(r.indptr)])
    chosen = [
        best_penalty(
            r,
            Ridge.Config(num_predictors=30, segment_weight=weight),
            np.random.default_rng(1),
            positions.astype(np.float32),
        )
        for weight in (0.0, 30.0)
    ]
    assert chosen[0] < chosen[1]
