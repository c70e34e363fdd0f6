import sys
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from mgformer.errors import ConfigError
from mgformer.graph.bipartite import Graph
from mgformer.models.simple import ease
from mgformer.models.simple.ease import EASE
from mgformer.models.simple.ials import IALS
from mgformer.models.simple.neighbors import ItemKNN, RP3Beta
from mgformer.models.simple.popularity import Popularity
from mgformer.models.simple.spectral import GFCF, PureSVD
from tests.graph import oracles_graph
from tests.models.simple import oracles_simple as oracles

SIZES = [(1, 3), (2, 3), (7, 2), (33, 20), (13, 29)]


@pytest.fixture(params=SIZES, ids=str)
def graph(request, random_graph):
    return random_graph(*request.param)


def dense(graph):
    return graph.interactions.toarray().astype(np.float64)


def all_scores(model, graph, rng, **options):
    scorer = model(model.Config(**options), graph, rng).scorer()
    return scorer.scores(torch.arange(graph.num_users)).double().numpy()


def close(actual, expected, atol=1e-5):
    np.testing.assert_allclose(actual, expected, rtol=0, atol=atol)


def test_popularity_counts_users(graph, rng):
    expected = np.tile(dense(graph).sum(axis=0), (graph.num_users, 1))
    np.testing.assert_array_equal(all_scores(Popularity, graph, rng), expected)


@pytest.mark.parametrize("weighting", ["none", "tfidf", "bm25"])
@pytest.mark.parametrize(("num_neighbors", "shrink"), [(3, 0.0), (1000, 2.5)])
def test_itemknn(graph, rng, num_neighbors, shrink, weighting):
    options = {"num_neighbors": num_neighbors, "shrink": shrink, "weighting": weighting}
    r = dense(graph)
    # Equal similarities may differ in their last bits, so the sums over neighbors are compared
    # where cuts do not depend on them.
    expected = oracles.itemknn(r, **options)
    model = ItemKNN(ItemKNN.Config(**options), graph, rng)
    weights = model.scorer().weights.toarray()
    close(np.sort(weights, axis=0), np.sort(expected, axis=0))
    if num_neighbors > graph.num_items:
        close(all_scores(ItemKNN, graph, rng, **options), r @ expected)


@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 0.0), (0.7, 0.4), (0.0, 1.5)])
def test_rp3beta_without_cut(graph, rng, alpha, beta):
    r = dense(graph)
    options = {"num_neighbors": 1000, "alpha": alpha, "beta": beta}
    expected = r @ oracles.rp3beta(r, **options)
    close(all_scores(RP3Beta, graph, rng, **options), expected)


def test_rp3beta_cuts_rows_and_then_columns(rng):
    # Degrees all differ, and so do the weights; no cut falls between equals.
    pairs = np.random.default_rng(8).random((60, 9)) < np.linspace(0.2, 0.9, 9)
    graph = Graph(sp.csr_array(pairs.astype(np.float32)))
    options = {"num_neighbors": 3, "alpha": 0.6, "beta": 0.3}
    model = RP3Beta(RP3Beta.Config(**options), graph, rng)
    expected = oracles.rp3beta(dense(graph), **options)
    close(model.scorer().weights.toarray(), expected)
    assert (expected > 0).sum(axis=0).max() == 3


@pytest.mark.parametrize("l2", [0.5, 20.0])
def test_ease_is_a_ridge_regression_per_item(graph, rng, l2):
    model = EASE(EASE.Config(l2=l2), graph, rng)
    close(model.scorer().weights, oracles.ease(dense(graph), l2))


def test_ease_primal_and_dual_agree(random_graph):
    r = random_graph(33, 47).interactions
    primal = ease.item_inverse(r, 3.0, through_users=False)
    close(ease.item_inverse(r, 3.0, through_users=True), primal, atol=1e-6)
    exact = np.linalg.inv(r.toarray().T.astype(np.float64) @ r.toarray() + 3 * np.eye(47))
    close(primal, exact, atol=1e-6)


@pytest.mark.parametrize("through_users", [False, True])
def test_ease_in_several_blocks(through_users, random_graph):
    r = random_graph(33, 47).interactions
    whole, blocks = (
        ease.item_inverse(r, 3.0, through_users=through_users, block_entries=entries)
        for entries in (1 << 24, 47 * 10)
    )
    close(blocks, whole, atol=1e-6)


def test_ease_with_a_huge_ridge_ranks_like_cooccurrence(random_graph, rng):
    graph = random_graph(33, 20)
    weights = EASE(EASE.Config(l2=1e6), graph, rng).scorer().weights.numpy() * 1e6
    counts = dense(graph).T @ dense(graph)
    np.fill_diagonal(counts, 0)
    close(weights, counts, atol=1e-2)


def test_ease_that_does_not_fit_is_refused(random_graph, rng, monkeypatch):
    monkeypatch.setattr(ease, "available_bytes", lambda: 1_000_000)
    model = EASE(EASE.Config(), random_graph(7, 9), rng)
    with pytest.raises(ConfigError, match=r"ease: 9 items need 0\.3 GB .* use itemknn"):
        model.scorer()


def test_available_memory_is_found():
    assert ease.available_bytes() > 1 << 24


@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("rank", [1, 2])
def test_puresvd(random_graph, rng, rank, normalized):
    graph = random_graph(33, 20)
    r = dense(graph)
    expected = oracles.puresvd(r, rank, oracles_graph.normalized(r) if normalized else r)
    close(all_scores(PureSVD, graph, rng, rank=rank, normalized=normalized), expected)


def test_puresvd_at_full_rank_returns_the_history(graph, rng):
    close(all_scores(PureSVD, graph, rng, rank=1000), dense(graph))


@pytest.mark.parametrize(("rank", "alpha"), [(3, 0.3), (1, 2.0), (3, 0.0)])
def test_gfcf(random_graph, rng, rank, alpha):
    graph = random_graph(33, 20)
    expected = oracles.gfcf(dense(graph), rank, alpha)
    close(all_scores(GFCF, graph, rng, rank=rank, alpha=alpha), expected)
    assert expected.max() > 0.1


def test_gfcf_low_pass_at_full_rank_returns_the_history(graph, rng):
    difference = all_scores(GFCF, graph, rng, rank=1000, alpha=1.0) - all_scores(
        GFCF, graph, rng, alpha=0.0
    )
    close(difference, dense(graph))


def ials_factors(graph, seed=5, **options):
    config = IALS.Config(**{"rank": 5, "unobserved_weight": 0.2, "l2": 0.01} | options)
    scorer = IALS(config, graph, np.random.default_rng(seed)).scorer()
    return scorer, scorer.users.double().numpy(), scorer.items.double().numpy()


@pytest.mark.parametrize("size", [(7, 5), (33, 20), (13, 29)])
def test_ials_objective_never_rises(random_graph, size):
    graph = random_graph(*size)
    values = []
    for num_iterations in (1, 2, 3, 5, 8, 13):
        _, users, items = ials_factors(graph, num_iterations=num_iterations)
        values.append(oracles.ials_objective(dense(graph), users, items, 0.2, 0.01))
    assert all(after <= before * (1 + 1e-6) for before, after in pairwise(values))
    assert values[-1] < 0.999 * values[0]


def test_ials_users_minimise_the_objective(random_graph):
    graph = random_graph(13, 29)
    _, users, items = ials_factors(graph)
    best = oracles.ials_objective(dense(graph), users, items, 0.2, 0.01)
    draw = np.random.default_rng(0)
    for _ in range(5):
        step = 1e-2 * draw.standard_normal(users.shape)
        for sign in (1, -1):
            moved = oracles.ials_objective(dense(graph), users + sign * step, items, 0.2, 0.01)
            assert moved > best


def test_ials_items_converge_to_a_minimum_too(random_graph):
    graph = random_graph(13, 29)
    _, users, items = ials_factors(graph, num_iterations=150)
    r, weight, l2 = dense(graph), 0.2, 0.01
    residual = r.T * (items @ users.T - 1) + weight * items @ users.T  # [I, U]
    ridge = l2 * (r.sum(axis=0) + weight * len(r))[:, None]
    close(residual @ users + ridge * items, 0, atol=1e-3)
    assert np.abs(items).max() > 0.1


def test_ials_fold_in_reproduces_training_users(graph):
    scorer, users, _ = ials_factors(graph)
    folded = scorer.fold_in(graph.interactions)
    close(folded.users, users)


def test_ials_without_its_package(graph, rng, monkeypatch):
    monkeypatch.setitem(sys.modules, "implicit.cpu.als", None)
    with pytest.raises(ConfigError, match=r"pip install 'mgformer\[ials\]'"):
        IALS(IALS.Config(), graph, rng).scorer()
