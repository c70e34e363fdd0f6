"""BPRMF, LightGCN, SGL and SimGCL against their formulas, with draws seen by both sides."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from pydantic import ValidationError

from mgformer.data.sampling import Batch
from mgformer.graph.bipartite import Graph
from mgformer.models.bprmf import BPRMF
from mgformer.models.lightgcn import LightGCN
from mgformer.models.sgl.model import SGL
from mgformer.models.sgl.thinning import Thinning
from mgformer.models.simgcl import SimGCL, shifted
from tests import oracles

BATCH = Batch(torch.tensor([0, 3, 3, 7]), torch.tensor([2, 0, 6, 5]))
NUM_USERS, NUM_ITEMS = 9, 7


@pytest.fixture
def graph(random_graph):
    return random_graph(NUM_USERS, NUM_ITEMS)


def build(model, graph, **options):
    options = {"dim": 5, "l2": 0.1, **options}
    built = model(model.Config(**options), graph, np.random.default_rng(0)).double()
    with torch.no_grad():
        built.embeddings.mul_(10)  # far from zero, where every formula looks alike
    return built


def seeded():
    return torch.Generator().manual_seed(1)


def dense(graph):
    """Return Â with the weights the models have, which are float32."""
    adjacency = oracles.normalized_adjacency(graph.interactions.toarray())
    return torch.from_numpy(adjacency).float().double()


def mean_of_powers(adjacency, x, num_layers, first=0):
    powers = [torch.linalg.matrix_power(adjacency, k) @ x for k in range(first, num_layers + 1)]
    return sum(powers) / len(powers)


def bpr_loop(z, x, negatives, l2):
    """Return the loss of BATCH, pair by pair, with z for ranking and x for L2."""
    total = 0
    for user, item, others in zip(*BATCH, negatives, strict=True):
        u, i = z[user], z[NUM_USERS + item]
        for other in others:
            j = z[NUM_USERS + other]
            total = total - torch.log(torch.sigmoid(u @ i - u @ j)) / len(others)
        rows = [user, NUM_USERS + item, *(NUM_USERS + other for other in others)]
        total = total + l2 / 2 * sum(x[row] @ x[row] for row in rows)
    return total / len(BATCH.users)


def assert_same(model, expected, found=None):
    """Compare the loss and its gradient."""
    found = model.loss(BATCH, seeded()) if found is None else found
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)
    gradients = [torch.autograd.grad(loss, model.embeddings)[0] for loss in (found, expected)]
    torch.testing.assert_close(*gradients, rtol=0, atol=1e-6)
    assert gradients[1].abs().max() > 1e-2


@pytest.mark.parametrize("num_negatives", [1, 3])
def test_bprmf_matches_the_loop(num_negatives, graph):
    model = build(BPRMF, graph, num_negatives=num_negatives)
    negatives = model.unseen.draw(BATCH.users, num_negatives, seeded())
    assert_same(model, bpr_loop(model.embeddings, model.embeddings, negatives, 0.1))


@pytest.mark.parametrize("num_negatives", [1, 3])
@pytest.mark.parametrize("num_layers", [1, 2, 3])
def test_lightgcn_matches_matrix_powers_and_the_loop(num_layers, num_negatives, graph):
    model = build(LightGCN, graph, num_layers=num_layers, num_negatives=num_negatives)
    negatives = model.unseen.draw(BATCH.users, num_negatives, seeded())
    z = mean_of_powers(dense(graph), model.embeddings, num_layers)
    assert_same(model, bpr_loop(z, model.embeddings, negatives, 0.1))
    scores = model.scorer().scores(torch.arange(NUM_USERS))
    torch.testing.assert_close(scores.double(), z[:NUM_USERS] @ z[NUM_USERS:].T, atol=1e-5, rtol=0)


def view_means(model):
    for view in model.views:
        x = model.embeddings
        total = x
        for step in view:
            x = torch.from_numpy(step.adjacency.toarray()).double() @ x
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
        expected = expected + 0.7 * oracles.info_nce(one[nodes], other[nodes], side, 0.5)
    assert_same(model, expected)


def test_sgl_within_the_batch_matches_the_loop(graph):
    options = {"dropped": 0.4, "contrast_weight": 0.7, "temperature": 0.5, "candidates": "batch"}
    model = build(SGL, graph, num_layers=2, **options)
    negatives = model.unseen.draw(BATCH.users, 1, seeded())
    z = mean_of_powers(dense(graph), model.embeddings, 2)
    expected = bpr_loop(z, model.embeddings, negatives, 0.1)
    one, other = view_means(model)
    for nodes in (BATCH.users.unique(), NUM_USERS + BATCH.items.unique()):
        expected = expected + 0.7 * oracles.info_nce(one[nodes], other[nodes], other[nodes], 0.5)
    assert_same(model, expected)


def test_sgl_with_nothing_dropped_sees_the_graph(graph):
    model = build(SGL, graph, dropped=0.0)
    for view in model.views:
        for step in view:
            np.testing.assert_allclose(step.adjacency.toarray(), dense(graph), atol=1e-7)


def test_sgl_draws_views_for_every_epoch_and_walks_layer_by_layer(graph):
    model = build(SGL, graph, view="walk", dropped=0.4)
    before = [step.adjacency.toarray() for step in model.views[0]]
    assert not np.array_equal(before[0], before[1])
    model.on_epoch(np.random.default_rng(5))
    assert not np.array_equal(before[0], model.views[0][0].adjacency.toarray())
    same = build(SGL, graph, view="edges", dropped=0.4).views[0]
    assert same[0] is same[-1]


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_thinned_graphs_hold_what_they_say(share, random_graph, rng):
    graph = random_graph(33, 21)
    r = graph.interactions.toarray()
    thinning = Thinning(graph)
    for thin in (thinning.without_pairs(share, rng), thinning.without_nodes(share, rng)):
        block = thin.toarray()[:33, 33:]
        assert (r[block > 0] == 1).all()
        expected = oracles.normalized_adjacency((block > 0).astype(float))
        np.testing.assert_allclose(thin.toarray(), expected, atol=1e-7)
    assert thinning.without_pairs(share, rng).nnz == 2 * round((1 - share) * r.sum())


def test_dropping_nodes_drops_so_many_and_all_of_their_pairs(rng):
    full = Thinning(_complete(20, 10))
    kept = full.without_nodes(0.2, rng).toarray()[:20, 20:] > 0
    assert (~kept.any(1)).sum() == 4
    assert (~kept.any(0)).sum() == 2
    assert kept.sum() == 16 * 8


def _complete(num_users, num_items):
    return Graph(sp.csr_array(np.ones((num_users, num_items), dtype=np.float32)))


def shift_by_hand(x, generator, length):
    drawn = torch.rand(x.shape, generator=generator, dtype=x.dtype)
    return x + length * x.sign() * drawn / drawn.norm(dim=1, keepdim=True)


def test_shifts_have_their_length_and_change_no_sign(rng):
    x = torch.from_numpy(rng.standard_normal((40, 7)))
    moved = shifted(x, 0.3, seeded())
    torch.testing.assert_close((moved - x).norm(dim=1), torch.full((40,), 0.3).double())
    assert torch.equal(moved.sign(), x.sign())


def shifted_layers(model, adjacency, num_layers, generator):
    """Return layers of all nodes; the last one's shifts are drawn for the batch's nodes only."""
    x, found = model.embeddings, []
    for layer in range(1, num_layers + 1):
        x = adjacency @ x
        if layer == num_layers:
            nodes = model_nodes(model)
            x = x.index_copy(0, nodes, shift_by_hand(x[nodes], generator, 0.3))
        else:
            x = shift_by_hand(x, generator, 0.3)
        found.append(x)
    return found


def model_nodes(model):
    return model.triple(BATCH, seeded()).nodes


def contrast_loop(one, other, temperature):
    """InfoNCE among different users and among different items of BATCH."""
    total = 0
    for nodes in (BATCH.users.unique(), NUM_USERS + BATCH.items.unique()):
        total = total + oracles.info_nce(one[nodes], other[nodes], other[nodes], temperature)
    return total


@pytest.mark.parametrize("num_layers", [1, 2, 3])
@pytest.mark.parametrize("passes", ["three", "one"])
def test_simgcl_matches_the_loop(passes, num_layers, graph):
    options = {"noise": 0.3, "contrast_weight": 0.7, "temperature": 0.5, "passes": passes}
    model = build(SimGCL, graph, num_layers=num_layers, **options)
    generator, adjacency = seeded(), dense(graph)
    negatives = model.unseen.draw(BATCH.users, 1, generator)
    if passes == "three":
        z = mean_of_powers(adjacency, model.embeddings, num_layers, first=1)
        one, other = (
            sum(shifted_layers(model, adjacency, num_layers, generator)) / num_layers
            for _ in range(2)
        )
    else:
        layers = shifted_layers(model, adjacency, num_layers, generator)
        z = one = sum(layers) / num_layers
        other = layers[0]
    expected = bpr_loop(z, model.embeddings, negatives, 0.1) + 0.7 * contrast_loop(one, other, 0.5)
    assert_same(model, expected)


def test_simgcl_scores_without_shifts_and_without_layer_zero(graph):
    model = build(SimGCL, graph, num_layers=2)
    z = mean_of_powers(dense(graph), model.embeddings, 2, first=1)
    scores = model.scorer().scores(torch.arange(NUM_USERS))
    torch.testing.assert_close(scores.double(), z[:NUM_USERS] @ z[NUM_USERS:].T, atol=1e-5, rtol=0)
    assert torch.equal(scores, model.scorer().scores(torch.arange(NUM_USERS)))


def test_a_layer_to_contrast_with_must_exist():
    with pytest.raises(ValidationError, match="contrast_layer = 3, but num_layers = 2"):
        SimGCL.Config(passes="one", num_layers=2, contrast_layer=3)
