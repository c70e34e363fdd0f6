import numpy as np
import pytest
import scipy.sparse as sp
import torch
from pydantic import ValidationError
from torch.nn import functional

from mgformer.data.sampling import Batch
from mgformer.graph.bipartite import Graph
from mgformer.graph.sparse import block_slices
from mgformer.models.guided import Guided, attention_weights, guide_lists, guided_attention
from mgformer.models.simple.ridge import Ridge
from mgformer.ranking.scorers import HistoryScorer
from tests.graph.oracles_graph import largest
from tests.nn import oracles_losses

SIZES = [(2, 3), (7, 2), (33, 20), (13, 29)]


def build(graph, seed=0, **options):
    return Guided(Guided.Config(**options), graph, np.random.default_rng(seed))


def distinct(num_users, num_items, seed=3):
    random = np.random.default_rng(seed)
    return Graph(sp.csr_array((random.random((num_users, num_items)) < 0.3).astype(np.float32)))


def attention_oracle(r, b, count, power):
    """M [N, N], node by node, for scores r B."""
    num_users, num_items = r.shape
    lists = np.zeros((num_users, num_items))
    for u in range(num_users):
        scores = np.array([sum(b[i, j] for i in np.flatnonzero(r[u])) for j in range(num_items)])
        lists[u] = largest(np.where(r[u] > 0, 0, scores), count) ** power
    m = np.zeros((num_users + num_items, num_users + num_items))
    for u in range(num_users):
        if lists[u].sum():
            m[u, num_users:] = lists[u] / lists[u].sum()
    for i in range(num_items):
        users = largest(lists[:, i], count)
        items = largest(np.where(np.arange(num_items) == i, 0, b[i]), count) ** power
        if users.sum():
            m[num_users + i, :num_users] = 0.5 * users / users.sum()
        if items.sum():
            m[num_users + i, num_users:] = 0.5 * items / items.sum()
    return m


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("count", [1, 3, 100])
@pytest.mark.parametrize("power", [1.0, 2.5])
def test_attention_to_the_lists_of_the_guide(size, count, power):
    graph = distinct(*size)
    b = np.random.default_rng(5).standard_normal((size[1], size[1])).astype(np.float32)
    np.fill_diagonal(b, 0)
    r = graph.interactions.toarray().astype(np.float64)
    expected = attention_oracle(r, b.astype(np.float64), count, power)
    for weights in (sp.csr_array(b), torch.from_numpy(b)):  # the sparse path and the dense one
        guide = HistoryScorer(graph.interactions, weights)
        found = guided_attention(guide, graph, count, power).toarray()
        np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("entries", [1, 40, 1 << 24])
def test_blocks_of_the_attention_do_not_change_it(entries, monkeypatch):
    """The identity is added, and the lists of items are joined, in blocks of rows."""
    graph, slices = distinct(33, 20), block_slices
    whole = build(graph, l2=1.0, num_neighbors=3, attention_weight=0.7)
    monkeypatch.setattr("mgformer.models.guided.block_slices", lambda *size: slices(*size, entries))
    found = build(graph, l2=1.0, num_neighbors=3, attention_weight=0.7)
    expected = np.eye(53) + 0.7 * guided_attention(whole.guide(), graph, 3, 2.0).toarray()
    np.testing.assert_allclose(found.matrix.toarray(), expected, atol=1e-6)
    np.testing.assert_array_equal(found.matrix.toarray(), whole.matrix.toarray())
    np.testing.assert_allclose(whole.attention.toarray(), (expected - np.eye(53)) / 0.7, atol=1e-6)
    assert found.matrix.indices.dtype == np.int32
    assert found.matrix.has_sorted_indices


def test_lists_leave_out_what_users_have():
    graph = distinct(40, 15)
    guide = build(graph, l2=1.0).guide()
    lists = guide_lists(guide, graph.interactions, 5)
    assert lists.nnz > 40
    assert lists.multiply(graph.interactions).nnz == 0
    assert (lists.data > 0).all()


def test_rows_sum_to_one_or_are_empty():
    matrix = sp.csr_array(np.array([[1, 3, 0], [0, 0, 0], [0, 0, 2]], dtype=np.float32))
    expected = [[0.1, 0.9, 0], [0, 0, 0], [0, 0, 1]]
    np.testing.assert_allclose(attention_weights(matrix, 2.0).toarray(), expected)
    tiny = attention_weights(matrix * np.float32(1e-30), 2.0)  # squares would be zero
    np.testing.assert_allclose(tiny.toarray(), expected)


@pytest.mark.parametrize("guide", ["ridge", "gfcf"])
@pytest.mark.parametrize(("beta", "w"), [(1.0, 0.0), (0.6, 0.4), (0.0, 1.0)])
def test_outputs_and_gradients(guide, beta, w):
    graph = distinct(23, 17)
    model = build(
        graph, guide=guide, dim=5, num_neighbors=3, attention_weight=beta, graph_weight=w
    ).double()
    nodes = torch.tensor([0, 4, 22, 23, 39])
    attention = guided_attention(model.guide(), graph, 3, 2.0).toarray().astype(np.float64)
    hop = graph.adjacency.toarray().astype(np.float64)
    whole = torch.from_numpy(np.eye(40) + beta * attention + w * hop)
    tokens = model.tokens.detach().clone().requires_grad_()
    expected = (whole @ tokens)[nodes]
    weights = torch.randn(5, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    (expected * weights).sum().backward()
    for sparse in (False, True):
        model.sparse_gradients, model.tokens.grad = sparse, None
        found = model.outputs(nodes)
        (found * weights).sum().backward()
        gradient = model.tokens.grad.to_dense() if sparse else model.tokens.grad
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-7)
        torch.testing.assert_close(gradient, tokens.grad, rtol=1e-5, atol=1e-7)
    scorer = model.scorer()
    torch.testing.assert_close(torch.cat([scorer.users, scorer.items]), whole @ tokens.detach())


def test_the_loss_is_alignment_and_uniformity():
    graph = distinct(23, 17)
    model = build(graph, dim=6, uniformity_weight=0.7).double()
    batch = Batch(torch.tensor([0, 3, 3, 9]), torch.tensor([2, 2, 5, 16]))
    h = model.scorer()
    users, items = h.users[batch.users], h.items[batch.items]
    uniform = oracles_losses.uniformity(users, 2.0) + oracles_losses.uniformity(items, 2.0)
    expected = oracles_losses.alignment(users, items) + 0.7 * uniform / 2
    torch.testing.assert_close(model.loss(batch, torch.Generator()).detach(), expected)


def test_a_step_reaches_the_batch_and_its_lists_only():
    graph = distinct(60, 40)
    model = build(graph, dim=4, num_neighbors=2)
    model.sparse_gradients = True
    model.loss(Batch(torch.tensor([1]), torch.tensor([7])), torch.Generator()).backward()
    touched = set(model.tokens.grad.coalesce().indices()[0].tolist())
    allowed = {1, 67, *model.matrix[[1, 67]].indices.tolist()}
    assert touched == allowed
    assert len(touched) <= 2 + 2 + 4


def test_spectral_guide_has_the_encodings_as_channels():
    graph = distinct(23, 17)
    model = build(graph, guide="spectral", rank=6, dim=4, num_neighbors=3)
    assert model.guide() is None
    assert model.scorer().items.shape == (17, 10)
    attention = (model.matrix - sp.eye_array(40)).toarray()
    np.testing.assert_allclose(attention.sum(1), 1, atol=1e-5)
    assert (np.count_nonzero(attention, axis=1) == 3).all()
    encodings = model.fixed / 0.2
    lengths = functional.normalize(
        torch.linalg.solve(torch.from_numpy(model.matrix.toarray()).double(), encodings.double())
    ).norm(dim=1)
    torch.testing.assert_close(lengths, torch.ones(40, dtype=torch.float64))


def test_options_of_other_guides_are_refused():
    with pytest.raises(ValidationError, match="rank has no use with guide = ridge"):
        Guided.Config(rank=64)
    with pytest.raises(ValidationError, match="l2 has no use with guide = gfcf"):
        Guided.Config(guide="gfcf", l2=3.0)


@pytest.mark.parametrize("options", [{"num_predictors": 2}, {"l2": 500.0}, {"dropout": 3.0}])
def test_options_of_the_guide_act(options):
    graph = distinct(40, 15)
    usual, other = (build(graph, **given).guide().weights for given in ({}, options))
    assert abs(usual - other).max() > 1e-3


def test_users_and_items_without_pairs():
    r = np.zeros((4, 5), dtype=np.float32)
    r[0, :2] = r[1, :2] = 1
    model = build(Graph(sp.csr_array(r)), dim=3, l2=1.0)
    assert torch.isfinite(model.loss(Batch(torch.tensor([0, 1]), torch.tensor([0, 1])), None))
    np.testing.assert_array_equal(model.matrix[[2, 3, 6]].toarray(), np.eye(9)[[2, 3, 6]])


def test_users_look_where_the_guide_points_with_aged_histories(random_graph):
    plain = random_graph(12, 9, isolated=False)
    positions = np.random.default_rng(0).random(plain.interactions.nnz).astype(np.float32)
    graph = Graph(plain.interactions, positions)
    guide = Ridge(Ridge.Config(l2=2.0), graph, np.random.default_rng(0)).scorer()
    aged = plain.interactions.copy()
    aged.data = np.exp(-3 * (1 - positions))
    found = guided_attention(guide, graph, 3, 2.0, 3.0)[:12, 12:].toarray()
    scores = np.maximum(aged.toarray() @ guide.weights.toarray(), 0)
    scores[plain.interactions.toarray() > 0] = 0
    scores[scores < np.sort(scores, axis=1)[:, [-3]]] = 0
    expected = scores**2 / np.maximum((scores**2).sum(1, keepdims=True), 1e-30)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    unaged = guided_attention(guide, plain, 3, 2.0, 3.0)[:12, 12:].toarray()
    assert np.abs(unaged - found).max() > 0.01
