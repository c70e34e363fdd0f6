"""SGL and its thinned graphs against dense matrices and loops."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from mgformer.graph.bipartite import Graph
from mgformer.models.sgl import SGL, Thinning
from tests.graph.oracles_graph import normalized_adjacency
from tests.models.oracles_bpr import (
    BATCH,
    NUM_ITEMS,
    NUM_USERS,
    assert_same,
    bpr_loop,
    build,
    dense,
    mean_of_powers,
    seeded,
)
from tests.nn.oracles_losses import info_nce


@pytest.fixture
def graph(random_graph):
    return random_graph(NUM_USERS, NUM_ITEMS)


def view_means(model):
    for view in model.views:
        x = model.embeddings
        total = x
        for step in view:
            x = torch.from_numpy(step.matrix.toarray()).double() @ x
            total = total + x
        yield total / (len(view) + 1)


@pytest.mark.parametrize("view", ["edges", "nodes", "walk"])
def test_sgl_matches_the_loop(view, graph):
    options = {"view": view, "dropped": 0.4, "contrast_weight": 0.7, "temperature": 0.5}
    model = build(SGL, graph, num_layers=2, **options)
    negatives = model.unseen.draw(BATCH.users, 1, seeded())
    z = mean_of_powers(dense(graph), model.embeddings, 2)
    expected = bpr_loop(z, model.embeddings, negatives, 0.1)
    one, other = view_means(model)
    assert not torch.equal(one, other)
    users, items = BATCH.users, NUM_USERS + BATCH.items
    for nodes, side in ((users, other[:NUM_USERS]), (items, other[NUM_USERS:])):
        expected = expected + 0.7 * info_nce(one[nodes], other[nodes], side, 0.5)
    assert_same(model, expected)


def test_sgl_within_the_batch_matches_the_loop(graph):
    options = {"dropped": 0.4, "contrast_weight": 0.7, "temperature": 0.5, "candidates": "batch"}
    model = build(SGL, graph, num_layers=2, **options)
    negatives = model.unseen.draw(BATCH.users, 1, seeded())
    z = mean_of_powers(dense(graph), model.embeddings, 2)
    expected = bpr_loop(z, model.embeddings, negatives, 0.1)
    one, other = view_means(model)
    for nodes in (BATCH.users.unique(), NUM_USERS + BATCH.items.unique()):
        expected = expected + 0.7 * info_nce(one[nodes], other[nodes], other[nodes], 0.5)
    assert_same(model, expected)


def test_sgl_with_nothing_dropped_sees_the_graph(graph):
    model = build(SGL, graph, dropped=0.0)
    for view in model.views:
        for step in view:
            np.testing.assert_allclose(step.matrix.toarray(), dense(graph), atol=1e-7)


def test_sgl_draws_views_for_every_epoch_and_walks_layer_by_layer(graph):
    model = build(SGL, graph, view="walk", dropped=0.4)
    before = [step.matrix.toarray() for step in model.views[0]]
    assert not np.array_equal(before[0], before[1])
    model.on_epoch(np.random.default_rng(5))
    assert not np.array_equal(before[0], model.views[0][0].matrix.toarray())
    same = build(SGL, graph, view="edges", dropped=0.4).views[0]
    assert same[0] is same[-1]


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_thinned_graphs_are_normalized_subgraphs(share, random_graph, rng):
    graph = random_graph(33, 21)
    r = graph.interactions.toarray()
    thinning = Thinning(graph)
    for thin in (thinning.without_pairs(share, rng), thinning.without_nodes(share, rng)):
        block = thin.toarray()[:33, 33:]
        assert (r[block > 0] == 1).all()
        expected = normalized_adjacency((block > 0).astype(float))
        np.testing.assert_allclose(thin.toarray(), expected, atol=1e-7)
    assert thinning.without_pairs(share, rng).nnz == 2 * round((1 - share) * r.sum())


def test_dropping_nodes_drops_the_right_number_and_all_their_pairs(rng):
    full = Thinning(_complete(20, 10))
    kept = full.without_nodes(0.2, rng).toarray()[:20, 20:] > 0
    assert (~kept.any(1)).sum() == 4
    assert (~kept.any(0)).sum() == 2
    assert kept.sum() == 16 * 8


def _complete(num_users, num_items):
    return Graph(sp.csr_array(np.ones((num_users, num_items), dtype=np.float32)))
