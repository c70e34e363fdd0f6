"""UltraGCN against its weights and its loss written out pair by pair."""

import math

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from mgformer.data.sampling import Batch
from mgformer.graph.bipartite import Graph
from mgformer.models.ultragcn import UltraGCN, item_neighbors
from tests.models.oracles_ultragcn import Published, Reference, neighbors_of

# Every weight differs from every other, and none is small: a wrong one shows.
WEIGHTS = {
    "w1": 0.3, "w2": 1.7, "w3": 0.6, "w4": 1.3, "negative_weight": 2.5, "neighbor_weight": 0.8,
    "l2": 0.05,
}  # fmt: skip


def build(graph, cheap_products=64, **options):
    config = UltraGCN.Config(**{"dim": 5, "spread": 0.7, "num_neighbors": 3, **WEIGHTS, **options})
    model = UltraGCN(config, graph, np.random.default_rng(0)).double()
    model.cheap_products = cheap_products
    return model


def beta(r, user, item):
    d_user, d_item = r[user].sum(), r[:, item].sum()
    return math.sqrt((d_user + 1) / (d_item + 1)) / d_user


def omega(r):
    """ω [I, I], entry by entry."""
    num_items = r.shape[1]
    g = np.zeros((num_items, num_items))
    for i in range(num_items):
        for j in range(num_items):
            g[i, j] = sum(r[u, i] * r[u, j] for u in range(len(r)))
    result = np.zeros(g.shape)
    for i in range(num_items):
        for j in range(num_items):
            if g[i, j]:
                row, column = g[i].sum(), g[j].sum()
                result[i, j] = g[i, j] * math.sqrt(row + 1) / (row * math.sqrt(column + 1))
    return result


def slow_loss(model, r, batch, negatives):
    """Return the formula of the module's docstring, pair by pair, with the estimated norm."""
    c, x, close = model.config, model.embeddings, omega(r)
    num_users, num_items = r.shape

    def score(user, item):
        return x[user] @ x[num_users + item]

    def softplus(s):
        return torch.log1p(torch.exp(s))

    total = torch.zeros((), dtype=torch.float64)
    shared = len(negatives) == 1
    negatives = negatives.expand(len(batch.users), -1)
    for u, i, drawn in zip(*(part.tolist() for part in (*batch, negatives)), strict=True):
        total = total + (c.w1 + c.w2 * beta(r, u, i)) * softplus(-score(u, i))
        for j in drawn:
            weight = c.negative_weight * (c.w3 + c.w4 * beta(r, u, j)) / len(drawn)
            total = total + weight * softplus(score(u, j))
        for k in sorted(range(num_items), key=lambda k: (-close[i, k], k))[: c.num_neighbors]:
            total = total + c.neighbor_weight * close[i, k] * softplus(-score(u, k))
        norm = r.sum() / r[u].sum() * (x[u] @ x[u])
        counted = drawn if shared else drawn[:1]
        for j in counted:
            norm = norm + num_items * (x[num_users + j] @ x[num_users + j]) / len(counted)
        total = total + c.l2 / 2 * norm
    return total / len(batch.users)


both_ways_to_score = pytest.mark.parametrize("cheap", [0, 64], ids=["gathered", "product"])


def example(graph, num_negatives):
    """Return pairs with a repeated user and item, and drawn items that are seen or isolated."""
    users, items = graph.interactions.nonzero()
    chosen = [0, 1, len(users) // 2, len(users) - 1, 1]
    batch = Batch(*(torch.from_numpy(side[chosen]).long() for side in (users, items)))
    shape = (len(chosen), num_negatives)
    negatives = torch.randint(graph.num_items, shape, generator=torch.Generator().manual_seed(2))
    negatives[0, 0], negatives[1, 0] = batch.items[0], 1
    return batch, negatives


@both_ways_to_score
@pytest.mark.parametrize("num_negatives", [1, 7])
@pytest.mark.parametrize("options", [{}, {"neighbor_weight": 0}, {"w2": 0, "w4": 0}, {"l2": 0}])
def test_the_loss_is_its_formula(num_negatives, options, cheap, random_graph):
    graph = random_graph(9, 13)
    assert graph.item_degrees[1] == 0
    model = build(graph, cheap, **options)
    batch, negatives = example(graph, num_negatives)
    slow = slow_loss(model, graph.interactions.toarray().astype(float), batch, negatives)
    (expected,) = torch.autograd.grad(slow, model.embeddings)
    fast = model.loss_against(batch, negatives)
    fast.backward()
    # β and ω are float32 numbers.
    torch.testing.assert_close(fast, slow, rtol=1e-6, atol=0)
    torch.testing.assert_close(model.embeddings.grad, expected, rtol=0, atol=1e-6)
    assert expected.abs().max() > 0.1


@pytest.mark.parametrize("num_negatives", [1, 7])
def test_the_loss_with_shared_items_is_its_formula(num_negatives, random_graph):
    graph = random_graph(9, 13)
    model = build(graph)
    batch, negatives = example(graph, num_negatives)
    slow = slow_loss(model, graph.interactions.toarray().astype(float), batch, negatives[:1])
    (expected,) = torch.autograd.grad(slow, model.embeddings)
    fast = model.loss_against(batch, negatives[:1])
    fast.backward()
    torch.testing.assert_close(fast, slow, rtol=1e-6, atol=0)
    torch.testing.assert_close(model.embeddings.grad, expected, rtol=0, atol=1e-6)


def test_a_batch_may_share_its_items(random_graph, monkeypatch):
    graph = random_graph(9, 13)
    batch = Batch(torch.tensor([0, 3]), torch.tensor([2, 5]))
    for draw, rows in (("pair", 2), ("batch", 1)):
        model, drawn = build(graph, num_negatives=6, draw=draw), []
        monkeypatch.setattr(
            model, "loss_against", lambda _, negatives, to=drawn: to.append(negatives)
        )
        model.loss(batch, torch.Generator().manual_seed(1))
        assert drawn[0].shape == (rows, 6)


def test_without_degrees_and_neighbors_it_is_weighted_logistic_factorization(random_graph):
    graph = random_graph(9, 13)
    model = build(graph, w2=0, w4=0, neighbor_weight=0, l2=0)
    batch, negatives = example(graph, 4)
    users, items = model.scorer().users, model.scorer().items
    labels = torch.tensor([1.0, 0, 0, 0, 0], dtype=torch.float64).expand(5, 5)
    logits = items[torch.cat([batch.items[:, None], negatives], 1)] @ users[batch.users, :, None]
    weights = torch.tensor([0.3] + 4 * [2.5 * 0.6 / 4], dtype=torch.float64)
    expected = torch.nn.functional.binary_cross_entropy_with_logits(
        logits.squeeze(2), labels, weights, reduction="sum"
    )
    torch.testing.assert_close(model.loss_against(batch, negatives), expected / 5)


def test_a_batch_twice_has_the_same_loss(random_graph):
    graph = random_graph(9, 13)
    model = build(graph)
    batch, negatives = example(graph, 4)
    twice = Batch(batch.users.repeat(2), batch.items.repeat(2))
    torch.testing.assert_close(
        model.loss_against(twice, negatives.repeat(2, 1)), model.loss_against(batch, negatives)
    )


def test_the_estimated_norm_is_unbiased(random_graph):
    """Over all pairs, and every item drawn equally often, the estimate is exact."""
    graph = random_graph(9, 13)
    model = build(graph, w1=0, w2=0, w3=0, w4=0, neighbor_weight=0, l2=2.0)
    pairs = Batch(*(torch.from_numpy(side).long() for side in graph.interactions.nonzero()))
    losses = [
        model.loss_against(pairs, torch.full((len(pairs.users), 1), item)) for item in range(13)
    ]
    x = model.embeddings.detach()
    expected = x.square().sum() - x[8].square().sum()  # the last user has no pairs
    torch.testing.assert_close(torch.stack(losses).mean().detach(), expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize("num_neighbors", [1, 4, 50])
@pytest.mark.parametrize("block", [1, 1 << 24])
def test_neighbors_have_the_largest_omega(num_neighbors, block, random_graph):
    graph = random_graph(17, 11)
    dense = omega(graph.interactions.toarray().astype(float))
    neighbors, found = item_neighbors(graph, num_neighbors, block_entries=block)
    width = min(num_neighbors, 11)
    assert neighbors.shape == found.shape == (11, width)
    np.testing.assert_allclose(found, -np.sort(-dense, axis=1)[:, :width], rtol=1e-5)
    assert (np.diff(found, axis=1) <= 0).all()
    for item, row in enumerate(neighbors):
        real = row[found[item] > 0]
        assert len(set(real)) == len(real)
        np.testing.assert_allclose(found[item, : len(real)], dense[item, real], rtol=1e-5)
    assert (neighbors[1] == 1).all()  # an item without users
    assert not found[1].any()
    assert dense.max() > 0.1


def test_an_item_may_be_its_own_neighbor():
    neighbors, found = item_neighbors(Graph(sp.csr_array(np.eye(3, dtype=np.float32))), 2)
    assert neighbors.tolist() == [[0, 0], [1, 1], [2, 2]]
    np.testing.assert_allclose(found, [[1, 0]] * 3)


def test_items_are_drawn_from_all_items(random_graph, monkeypatch):
    graph = random_graph(9, 13)
    model = build(graph, num_negatives=500)
    drawn = []
    monkeypatch.setattr(model, "loss_against", lambda batch, negatives: drawn.append(negatives))
    batch = Batch(torch.tensor([0, 3]), torch.tensor([2, 5]))
    for seed in (1, 1, 2):
        model.loss(batch, torch.Generator().manual_seed(seed))
    assert drawn[0].shape == (2, 500)
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
    assert not torch.equal(drawn[0][0], drawn[0][1])
    for row in drawn[0]:
        counts = torch.bincount(row, minlength=13)  # 500 / 13 = 38 each, deviation 6
        assert counts.min() > 14
        assert counts.max() < 62


def test_the_default_weight_of_drawn_items_follows_density(random_graph):
    graph = random_graph(9, 13)
    model = build(graph, negative_weight=None)
    assert model.negative_weight == pytest.approx(0.3 * 9 * 13 / graph.interactions.nnz)
    batch, negatives = example(graph, 3)
    given = build(graph, negative_weight=model.negative_weight)
    assert torch.equal(model.loss_against(batch, negatives), given.loss_against(batch, negatives))
    assert build(graph, negative_weight=0).negative_weight == 0


def test_embeddings_begin_with_their_spread(random_graph):
    graph = random_graph(90, 80)
    drawn = UltraGCN(UltraGCN.Config(spread=0.02), graph, np.random.default_rng(0)).embeddings
    assert drawn.std().item() == pytest.approx(0.02, rel=0.05)


@both_ways_to_score
def test_sparse_gradients_equal_dense_gradients(cheap, random_graph):
    graph = random_graph(40, 90)
    batch, negatives = example(graph, 3)
    dense, sparse = build(graph, cheap), build(graph, cheap)
    sparse.sparse_gradients = True
    for model in (dense, sparse):
        model.loss_against(batch, negatives).backward()
    assert sparse.tables() == [sparse.embeddings]
    assert sparse.embeddings.grad.is_sparse
    torch.testing.assert_close(sparse.embeddings.grad.to_dense(), dense.embeddings.grad)
    touched = set(sparse.embeddings.grad.coalesce().indices()[0].tolist())
    items = [*batch.items, *negatives.flatten(), *sparse.neighbors[batch.items].flatten()]
    assert touched == {*batch.users.tolist(), *(40 + int(item) for item in items)}


@pytest.mark.parametrize("num_negatives", [1, 7])
def test_loss_and_gradient_are_those_of_the_published_update(num_negatives, random_graph):
    """Ours is the published loss divided by B, but for the norm: ours is that of the batch."""
    graph = random_graph(9, 13)
    model = build(graph, l2=0)
    c = model.config
    published = Published(
        dim=5, w1=c.w1, w2=c.w2, w3=c.w3, w4=c.w4, negative_weight=2.5, neighbors=3,
        item_lambda=c.neighbor_weight, gamma=0,
    )  # fmt: skip
    reference = Reference(graph.interactions, published, seed=0, dtype=torch.float64)
    with torch.no_grad():
        reference.users.copy_(model.embeddings[:9])
        reference.items.copy_(model.embeddings[9:])
    batch, negatives = example(graph, num_negatives)
    theirs, ours = reference.loss(*batch, negatives), model.loss_against(batch, negatives)
    (theirs / len(batch.users)).backward()
    ours.backward()
    torch.testing.assert_close(ours, theirs / len(batch.users), rtol=1e-6, atol=0)
    expected = torch.cat([reference.users.grad, reference.items.grad])
    torch.testing.assert_close(model.embeddings.grad, expected, rtol=0, atol=1e-6)
    assert expected.abs().max() > 0.1


def test_the_published_norm_is_ours_on_average(random_graph):
    """With γ = l2 B, over all pairs and every item drawn equally often."""
    graph = random_graph(9, 13)
    model = build(graph, w1=0, w2=0, w3=0, w4=0, neighbor_weight=0, l2=0.1)
    pairs = Batch(*(torch.from_numpy(side).long() for side in graph.interactions.nonzero()))
    published = Published(
        dim=5, w1=0, w2=0, w3=0, w4=0, item_lambda=0, gamma=0.1 * len(pairs.users)
    )
    reference = Reference(graph.interactions, published, seed=0, dtype=torch.float64)
    with torch.no_grad():
        reference.users.copy_(model.embeddings[:9])
        reference.users[8] = 0  # has no pairs, so that ours never sees it
        reference.items.copy_(model.embeddings[9:])
    drawn = [torch.full((len(pairs.users), 1), item) for item in range(13)]
    ours = torch.stack([model.loss_against(pairs, items) for items in drawn]).mean()
    theirs = reference.loss(*pairs, drawn[0]) / len(pairs.users)
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=0)


def test_neighbors_are_those_of_the_reference(random_graph):
    graph = random_graph(17, 11)
    _, ours = item_neighbors(graph, 4)
    _, theirs = neighbors_of(graph.interactions, 4)
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)
