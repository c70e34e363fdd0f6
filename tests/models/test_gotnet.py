"""GOTNet against dense loops, and its transport against Sinkhorn's two potentials."""

import math

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from mgformer.data.sampling import Batch
from mgformer.models.gotnet import GOTNet, squared_distances, transport_plan
from mgformer.models.lightgcn import LightGCN
from tests.graph.oracles_graph import normalized_adjacency

BATCH = Batch(torch.tensor([0, 3, 3, 7]), torch.tensor([2, 0, 6, 5]))


def build(graph, **options):
    config = GOTNet.Config(**{"dim": 6, "num_centroids": 4, **options})
    return GOTNet(config, graph, np.random.default_rng(0)).double()


def enlarged(model):
    """Return the model with rows of length about 2, so that attention is far from uniform."""
    with torch.no_grad():
        model.embeddings *= 8
        for side in model.sides:  # no longer nodes, so that no distance is zero
            side.centroids *= 7
    return model


def slow_plan(cost, epsilon, num_rounds):
    """Sinkhorn in the log domain, one potential after the other."""
    n, k = cost.shape
    f, g = np.zeros(n), np.zeros(k)
    for _ in range(num_rounds):
        for u in range(n):
            terms = [math.exp((g[c] - cost[u, c]) / epsilon) for c in range(k)]
            f[u] = epsilon * (-math.log(n) - math.log(sum(terms)))
        for c in range(k):
            terms = [math.exp((f[u] - cost[u, c]) / epsilon) for u in range(n)]
            g[c] = epsilon * (-math.log(k) - math.log(sum(terms)))
    return np.array(
        [[math.exp((f[u] + g[c] - cost[u, c]) / epsilon) for c in range(k)] for u in range(n)]
    )


def slow_cost(h, centroids):
    """Squared distances over their mean, which is a constant, entry by entry."""
    cost = torch.stack(
        [torch.stack([((row - c) * (row - c)).sum() for c in centroids]) for row in h]
    )
    return cost / cost.detach().mean()


def slow_side(side, h):
    """Ĥ, ⟨π, D⟩ and the centroids that nodes attend to."""
    config, centroids = side.config, side.centroids
    cost = slow_cost(h if config.attract else h.detach(), centroids)
    plan = torch.from_numpy(slow_plan(cost.detach().numpy(), config.epsilon, config.num_rounds))
    total = sum(plan[u, k] * cost[u, k] for u in range(len(h)) for k in range(len(centroids)))
    if config.clustering == "kmeans":
        centroids = torch.stack(
            [
                len(centroids) * sum(plan[u, k] * h[u].detach() for u in range(len(h)))
                for k in range(len(centroids))
            ]
        )
    centroids = centroids.detach()  # moved by transport alone
    width = h.shape[1] // config.num_heads
    maps = torch.eye(h.shape[1], dtype=h.dtype)
    maps = (config.sharpness * maps, maps, maps) if side.matrices is None else side.matrices
    w_query, w_key, w_value = maps
    rows = []
    for row in h:
        heads = []
        for head in range(config.num_heads):
            own = slice(head * width, (head + 1) * width)
            query = row @ w_query[:, own]
            logits = [query @ (c @ w_key[:, own]) / math.sqrt(width) for c in centroids]
            weights = [torch.exp(logit) for logit in logits]
            values = [w * (c @ w_value[:, own]) for w, c in zip(weights, centroids, strict=True)]
            heads.append(sum(values) / sum(weights))
        rows.append(torch.cat(heads))
    return torch.stack(rows), total, centroids


def slow_encode(model, graph):
    """Z and the transport cost of both sides, from dense matrix powers."""
    # The model's weights of edges are float32 numbers, and so are these.
    adjacency = torch.from_numpy(graph.adjacency.toarray().astype(np.float64))
    exact = normalized_adjacency(graph.interactions.toarray())
    np.testing.assert_allclose(adjacency, exact, atol=1e-7)
    layers = model.config.num_layers
    powers = sum(torch.linalg.matrix_power(adjacency, k) for k in range(layers + 1))
    h = powers @ model.embeddings / (layers + 1)
    users, items = model.sides
    far_users, cost_users, _ = slow_side(users, h[: graph.num_users])
    far_items, cost_items, _ = slow_side(items, h[graph.num_users :])
    far = model.config.attention_weight * torch.cat([far_users, far_items])
    z = h + far if model.config.combine == "sum" else torch.cat([h, far], 1)
    return z, cost_users + cost_items


def slow_loss(model, graph, triple_of):
    z, cost = slow_encode(model, graph)
    x = model.embeddings
    total = torch.zeros((), dtype=torch.float64)
    for u, i, others in triple_of:
        for j in others:
            margin = z[u] @ z[i] - z[u] @ z[j]
            total = total - torch.log(torch.sigmoid(margin)) / len(others)
        norm = x[u] @ x[u] + x[i] @ x[i] + sum(x[j] @ x[j] for j in others)
        total = total + model.config.l2 / 2 * norm
    return total / len(triple_of) + model.config.transport_weight * cost


FORMS = [
    {"sharpness": 2.0},
    {"matrices": True},
    {"matrices": True, "clustering": "kmeans"},
    {"num_heads": 3, "combine": "concat", "sharpness": 0.7},
    {"num_layers": 1, "attention_weight": 1.3, "num_centroids": 50, "num_negatives": 3},
    {"num_centroids": 1, "epsilon": 0.5, "num_rounds": 3},
    {"attract": True, "clustering": "kmeans"},
]
forms = pytest.mark.parametrize("options", FORMS)


@forms
def test_embeddings_are_the_formula(options, random_graph):
    graph = random_graph(9, 7)
    model = enlarged(build(graph, **options))
    slow, _ = slow_encode(model, graph)
    fast = model.encode()
    torch.testing.assert_close(fast, slow, rtol=0, atol=1e-10)
    nodes = torch.tensor([12, 0, 15, 8, 0])
    torch.testing.assert_close(model.encode(nodes), slow[nodes], rtol=0, atol=1e-10)
    assert slow.abs().max() > 0.5


@forms
def test_the_loss_and_its_gradient_are_the_formula(options, random_graph):
    graph = random_graph(9, 7)
    model = enlarged(build(graph, transport_weight=0.7, l2=0.3, **options))
    drawn = model.triple(BATCH, torch.Generator().manual_seed(1))
    parts = (drawn.nodes[drawn.users], drawn.nodes[drawn.items], drawn.nodes[drawn.others])
    slow = slow_loss(model, graph, list(zip(*(part.tolist() for part in parts), strict=True)))
    names, parameters = zip(*model.named_parameters(), strict=True)
    expected = torch.autograd.grad(slow, parameters, allow_unused=True)
    fast = model.loss(BATCH, torch.Generator().manual_seed(1))
    torch.testing.assert_close(fast, slow, rtol=0, atol=1e-10)
    found = torch.autograd.grad(fast, parameters, allow_unused=True)
    for name, one, other in zip(names, found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-9, msg=lambda m, n=name: f"{n}: {m}")
        assert other.abs().max() > 1e-4, name


def test_without_attention_it_is_lightgcn_bit_for_bit(random_graph):
    graph = random_graph(9, 7)
    options = {"dim": 6, "num_layers": 2}
    plain = LightGCN(LightGCN.Config(**options), graph, np.random.default_rng(0))
    config = GOTNet.Config(**options, attention_weight=0, transport_weight=0)
    model = GOTNet(config, graph, np.random.default_rng(0))
    assert torch.equal(model.encode(), plain.encode())
    losses = [m.loss(BATCH, torch.Generator().manual_seed(1)) for m in (model, plain)]
    torch.testing.assert_close(*losses)


def test_users_attend_to_centroids_of_users_and_items_to_those_of_items(random_graph):
    model = build(random_graph(9, 7))
    before = model.encode().detach()
    with torch.no_grad():
        model.sides[0].centroids += 0.5
    changed = (model.encode() - before).abs().amax(1) > 1e-9
    assert changed.tolist() == [True] * 9 + [False] * 7


def test_with_one_centroid_all_nodes_receive_the_same(random_graph):
    model = build(random_graph(9, 7), num_centroids=1)
    h = LightGCN.encode(model)
    far = model.encode() - h
    for part in (far[:9], far[9:]):
        torch.testing.assert_close(part, part[:1].expand_as(part), rtol=0, atol=1e-12)
        assert part.abs().max() > 1e-3
    assert (far[0] - far[9]).abs().max() > 1e-3


@pytest.mark.parametrize("clustering", ["trained", "kmeans"])
def test_the_order_of_centroids_does_not_matter(clustering, random_graph):
    model = build(random_graph(9, 7), transport_weight=1.0, clustering=clustering)
    z = model.encode()
    shuffled = torch.tensor([2, 0, 3, 1])
    kept = [side.centroids.detach().clone() for side in model.sides]
    loss = model.loss(BATCH, torch.Generator().manual_seed(1))
    for side, centroids in zip(model.sides, kept, strict=True):
        side.centroids.data = centroids[shuffled]
    torch.testing.assert_close(model.encode(), z, rtol=0, atol=1e-12)
    again = model.loss(BATCH, torch.Generator().manual_seed(1))
    torch.testing.assert_close(again, loss, rtol=0, atol=1e-12)


def test_centroids_begin_as_different_nodes(random_graph):
    model = build(random_graph(9, 7), num_centroids=8)
    h = LightGCN.encode(model)
    for side, part, count in zip(model.sides, (h[:9], h[9:]), (8, 7), strict=True):
        places = torch.cdist(side.centroids, part).argmin(1)
        assert len(places.unique()) == len(side.centroids) == count
        torch.testing.assert_close(side.centroids, part[places], rtol=0, atol=1e-6)


def test_kmeans_continues_from_the_last_centroids_and_saves_them(random_graph):
    graph = random_graph(30, 20)
    model = build(graph, clustering="kmeans")
    h = LightGCN.encode(model).detach()
    parts = (h[:30], h[30:])
    for _ in range(3):
        expected = [slow_side(side, part)[2] for side, part in zip(model.sides, parts, strict=True)]
        model.encode()  # ranking is no step
        model.loss(BATCH, torch.Generator().manual_seed(1)).backward()
        for side, centroids in zip(model.sides, expected, strict=True):
            torch.testing.assert_close(side.centroids, centroids, rtol=0, atol=1e-10)
            assert not side.centroids.requires_grad
    fresh = build(graph, clustering="kmeans")
    assert not torch.equal(fresh.encode(), model.encode())
    fresh.load_state_dict(model.state_dict())
    assert torch.equal(fresh.encode(), model.encode())


def test_heads_must_divide_the_channels():
    with pytest.raises(ValidationError, match="num_heads: got 4, expected a divisor of dim = 6"):
        GOTNet.Config(dim=6, num_heads=4)


@pytest.mark.parametrize(("n", "k"), [(1, 1), (2, 1), (7, 3), (33, 7), (5, 5)])
@pytest.mark.parametrize("num_rounds", [1, 4])
def test_the_plan_is_that_of_two_potentials(n, k, num_rounds, rng):
    cost = rng.random((n, k)) * 2
    plan = transport_plan(torch.from_numpy(cost), 0.2, num_rounds)
    slow = slow_plan(cost, 0.2, num_rounds)
    np.testing.assert_allclose(plan, slow, rtol=0, atol=1e-13)
    assert slow.max() > 1e-3


def test_columns_are_exact_and_rows_converge(rng):
    cost = torch.from_numpy(rng.random((200, 8)))
    errors = {}
    for num_rounds in (1, 5, 20):
        plan = transport_plan(cost, 0.1, num_rounds)
        torch.testing.assert_close(
            plan.sum(0), torch.full((8,), 1 / 8, dtype=torch.float64), rtol=0, atol=1e-12
        )
        errors[num_rounds] = (plan.sum(1) * 200 - 1).abs().max().item()
    assert errors[1] > 0.05
    assert errors[5] <= 1e-2
    assert errors[20] <= 1e-6


def test_much_entropy_spreads_the_plan_evenly_and_little_leaves_an_assignment(rng):
    cost = torch.from_numpy(rng.random((33, 7)))
    even = transport_plan(cost, 1e7, 5)
    torch.testing.assert_close(even, torch.full_like(even, 1 / (33 * 7)), rtol=1e-6, atol=0)
    points = torch.arange(6.0)[:, None]  # centroids at 0 and 5: each takes the nearer half
    sharp = transport_plan(squared_distances(points, torch.tensor([[0.0], [5.0]])), 0.01, 50)
    expected = torch.tensor([[1.0, 0.0]] * 3 + [[0.0, 1.0]] * 3) / 6
    torch.testing.assert_close(sharp, expected, rtol=0, atol=1e-6)


def test_far_centroids_and_equal_nodes_leave_the_plan_finite():
    """Shares underflow where costs are hundreds of ε apart."""
    cost = torch.tensor([[0.0, 50.0, 500.0]]).expand(7, 3)
    for num_rounds in (1, 10):
        assert transport_plan(cost, 0.1, num_rounds).isfinite().all()
    plan = transport_plan(cost, 0.1, 100)
    torch.testing.assert_close(plan, torch.full((7, 3), 1 / 21), rtol=1e-3, atol=0)
    same = torch.zeros(7, 3)
    torch.testing.assert_close(transport_plan(same, 0.1, 3), torch.full((7, 3), 1 / 21))


def test_distances_are_squared_and_never_negative(rng):
    points, centroids = (torch.from_numpy(rng.standard_normal((n, 5))) for n in (33, 7))
    found = squared_distances(points, centroids)
    torch.testing.assert_close(found, torch.cdist(points, centroids) ** 2, rtol=0, atol=1e-10)
    near = points.float() + 100
    assert (squared_distances(near, near) >= 0).all()
