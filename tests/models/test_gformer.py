"""GFormer and its pieces against breadth-first searches, dense matrices and loops."""

import math
from collections import deque
from itertools import combinations, pairwise

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from pydantic import ValidationError

from mgformer.data.sampling import Batch
from mgformer.graph.anchors import closeness
from mgformer.graph.bipartite import Graph
from mgformer.graph.sampled_edges import (
    drawn_edges,
    edge_ends,
    edges_with_loops,
    normalized_by_rows,
    subgraph,
    with_loops,
    with_random_edges,
    with_rebuilt_edges,
)
from mgformer.models.gformer import Encoded, GFormer
from mgformer.nn.edge_attention import EdgeAttention, EdgePattern
from mgformer.nn.positions import anchor_encoding

SIZES = [1, 2, 7, 33]


def build(graph, seed=0, **options):
    config = GFormer.Config(**{"dim": 6, "num_heads": 2, "num_anchors": 4, **options})
    model = GFormer(config, graph, np.random.default_rng(seed)).double()
    with torch.no_grad():  # far from zero, so that no comparison is vacuous
        drawn = np.random.default_rng(seed + 1).standard_normal(model.embeddings.shape)
        model.embeddings.copy_(torch.from_numpy(0.7 * drawn))
    return model


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def normal(rng, *shape, scale=1.0):
    return torch.from_numpy(scale * rng.standard_normal(shape)).requires_grad_()


def random_pattern(rng, size, density=0.4):
    matrix = sp.csr_array((rng.random((size, size)) < density).astype(np.float32))
    matrix.sort_indices()
    return matrix


def edge_list(matrix):
    """Edges of a matrix, row by row."""
    dense = matrix.toarray()
    return [(r, c) for r in range(len(dense)) for c in range(len(dense)) if dense[r, c]]


def assert_same_with_gradients(fast, slow, inputs, rng, *, atol=1e-10):
    """Compare values, and gradients in a random direction."""
    torch.testing.assert_close(fast, slow, rtol=0, atol=atol)
    assert slow.detach().abs().max() > 1e-3
    direction = torch.from_numpy(np.asarray(rng.standard_normal(slow.shape)))
    wanted = torch.autograd.grad((slow * direction).sum(), inputs)
    found = torch.autograd.grad((fast * direction).sum(), inputs)
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=atol)


# Distances from anchors


def breadth_first(dense, anchor):
    distances, queue = {anchor: 0}, deque([anchor])
    while queue:
        node = queue.popleft()
        for other in np.flatnonzero(dense[node]):
            if other not in distances:
                distances[other] = distances[node] + 1
                queue.append(other)
    return distances


@pytest.mark.parametrize(("users", "items", "density"), [(1, 2, 1.0), (9, 7, 0.15), (40, 31, 0.04)])
def test_closeness_is_that_of_a_breadth_first_search(users, items, density, random_graph):
    graph = random_graph(users, items, density=density)
    dense = graph.adjacency.toarray()
    anchors = torch.arange(users + items)
    expected = np.zeros((users + items, users + items))
    for anchor in range(users + items):
        for node, distance in breadth_first(dense, anchor).items():
            expected[node, anchor] = 1 / (distance + 1)
    np.testing.assert_allclose(closeness(graph.adjacency, anchors), expected, rtol=1e-6)
    np.testing.assert_allclose(closeness(edges_with_loops(graph), anchors), expected, rtol=1e-6)
    chosen = anchors.flip(0)[:2]
    found = closeness(graph.adjacency, chosen)
    np.testing.assert_allclose(found, expected[:, chosen], rtol=1e-6)


def test_closeness_along_a_path():
    path = sp.csr_array(sp.diags_array([np.ones(5), np.ones(5)], offsets=[1, -1]), dtype=np.float32)
    path = sp.csr_array(sp.block_diag([path, np.zeros((1, 1))]), dtype=np.float32)
    found = closeness(path, torch.tensor([1, 6]))
    expected = torch.tensor([[1 / 2, 1, 1 / 2, 1 / 3, 1 / 4, 1 / 5, 0], [0] * 6 + [1]]).T
    torch.testing.assert_close(found, expected)


# Subgraphs


def test_edges_with_loops_are_pairs_in_both_directions(random_graph):
    graph = random_graph(9, 7)
    dense = np.eye(16)
    dense[:9, 9:] = graph.interactions.toarray()
    dense[9:, :9] = dense[:9, 9:].T
    np.testing.assert_array_equal(edges_with_loops(graph).toarray(), dense)


def inclusion(weights, count):
    """Probability of each to be among `count` drawn one after another, by all sets on the way."""
    weights = np.asarray(weights, dtype=float)
    reached = {(): 1.0}
    for size in range(count):
        following = dict.fromkeys(combinations(range(len(weights)), size + 1), 0.0)
        for chosen, probability in reached.items():
            left = [e for e in range(len(weights)) if e not in chosen]
            for e in left:
                step = weights[e] / weights[left].sum()
                following[tuple(sorted((*chosen, e)))] += probability * step
        reached = following
    return np.array(
        [sum(p for chosen, p in reached.items() if e in chosen) for e in range(len(weights))]
    )


def assert_frequencies(counts, probabilities, draws):
    errors = np.sqrt(probabilities * (1 - probabilities) / draws)
    assert (np.abs(counts / draws - probabilities) < 4.5 * errors).all()


@pytest.mark.parametrize("count", [1, 2, 4])
def test_edges_are_drawn_without_replacement_by_their_weights(count):
    weights, generator = torch.tensor([0.2, 1.0, 2.5, 0.7, 4.0]), seeded()
    draws = 10_000
    masks = torch.stack([drawn_edges(weights.log(), count, generator) for _ in range(draws)])
    assert (masks.sum(1) == count).all()
    assert_frequencies(masks.sum(0).numpy(), inclusion(weights, count), draws)


@pytest.mark.parametrize("count", [0, 17])
def test_none_or_all_of_the_edges(count):
    assert drawn_edges(torch.zeros(17), count, seeded()).sum() == count


def test_a_subgraph_has_the_edges_of_the_mask(rng):
    pattern = random_pattern(rng, 13)
    mask = torch.from_numpy(rng.random(pattern.nnz) < 0.5)
    kept = [edge for edge, keep in zip(edge_list(pattern), mask, strict=True) if keep]
    found = subgraph(pattern, mask)
    assert edge_list(found) == kept
    assert (found.data == 1).all()
    assert list(zip(*(ends.tolist() for ends in edge_ends(found)), strict=True)) == kept


def slow_normalized(dense):
    """Divided by the roots of the row sums of both ends."""
    result = np.zeros(dense.shape)
    for r in range(len(dense)):
        for c in range(len(dense)):
            if dense[r, c]:
                result[r, c] = dense[r, c] / math.sqrt(dense[r].sum() * dense[c].sum())
    return result


def test_normalisation_is_by_row_sums_and_a_kept_loop_counts_twice(rng):
    pattern = random_pattern(rng, 13)
    dense = pattern.toarray()
    assert (dense != dense.T).any()
    assert 0 < dense.diagonal().sum() < 13
    looped = dense + np.eye(13)
    np.testing.assert_array_equal(with_loops(pattern).toarray(), looped)
    found = normalized_by_rows(with_loops(pattern)).toarray()
    np.testing.assert_allclose(found, slow_normalized(looped), rtol=1e-6)


def rejoined(edges, count, generator):
    """Rows and columns of edges drawn independently, as a list of pairs."""
    if not count:
        return []
    first, second = torch.randint(len(edges), (2, count), generator=generator).tolist()
    return [(edges[a][0], edges[b][1]) for a, b in zip(first, second, strict=True)]


def both_ways(edges):
    return {*edges, *((c, r) for r, c in edges)}


@pytest.mark.parametrize("share", [0.0, 0.3, 1.5])
def test_random_edges_join_rows_and_columns_of_edges(share, random_graph):
    pattern = edges_with_loops(random_graph(9, 7))
    edges = edge_list(pattern)
    added = rejoined(edges, int(share * len(edges)), seeded())
    found = with_random_edges(pattern, share, seeded())
    assert edge_list(found) == sorted({*edges, *both_ways(added)})
    assert (found.data == 1).all()
    assert found.has_sorted_indices


def test_ends_of_added_edges_are_drawn_independently_of_each_other():
    pattern = sp.csr_array(np.array([[1, 1, 1], [0, 0, 1], [0, 0, 0]], dtype=np.float32))
    edges = edge_list(pattern)
    generator, draws, counts = seeded(), 3000, np.zeros((3, 3))
    for _ in range(draws):
        added = with_random_edges(pattern, 0.25, generator).toarray() - pattern.toarray()
        counts += added
    # Only these are neither edges nor reverses of one of (0, ·): row 1 with 0, 1; row 1 is 1/4.
    rows, columns = (np.bincount([e[k] for e in edges], minlength=3) / 4 for k in (0, 1))
    expected = {(1, 1): rows[1] * columns[1], (1, 0): rows[1] * columns[0] + rows[0] * columns[1]}
    for edge, probability in expected.items():
        assert_frequencies(counts[edge], np.array(probability), draws)


@pytest.mark.parametrize(("pool_share", "share"), [(0.5, 0.8), (0.0, 0.8), (2.0, 0.1), (0.5, 0.0)])
def test_rebuilt_edges_join_ends_of_those_dropped(pool_share, share, rng, random_graph):
    pattern = edges_with_loops(random_graph(9, 7))
    edges, mask = edge_list(pattern), torch.from_numpy(rng.random(pattern.nnz) < 0.7)
    kept = [(v, v) for v in range(16)]
    kept += [edge for edge, keep in zip(edges, mask, strict=True) if keep]
    dropped = [edge for edge, keep in zip(edges, mask, strict=True) if not keep]
    generator = seeded()
    pool = rejoined(kept, int(pool_share * len(dropped)), generator) + dropped
    drawn = rejoined(pool, int(share * len(edges)), generator)
    found = with_rebuilt_edges(
        pattern, mask, pool_share=pool_share, share=share, generator=seeded()
    )
    assert edge_list(found) == sorted({*kept, *both_ways(drawn)})
    assert (found.data == 1).all()


def test_nothing_dropped_nothing_rebuilt(random_graph):
    pattern = edges_with_loops(random_graph(9, 7))
    mask = torch.ones(pattern.nnz, dtype=torch.bool)
    found = with_rebuilt_edges(pattern, mask, pool_share=0.5, share=0.8, generator=seeded())
    np.testing.assert_array_equal(found.toarray(), pattern.toarray())


# Attention along edges


def slow_shares(dense, queries, keys, num_heads):
    """α [H, N, N], zero where there is no edge."""
    size = queries.shape[1] // num_heads
    result = []
    for head in range(num_heads):
        part = slice(head * size, (head + 1) * size)
        weights = (queries[:, part] @ keys[:, part].T).clamp(-10, 10).exp() * (dense != 0)
        result.append(weights / (weights.sum(1, keepdim=True) + 1e-8))
    return torch.stack(result)


def slow_attention(module, dense, x):
    dense = torch.from_numpy(dense)
    shares = slow_shares(dense, x @ module.w_query, x @ module.w_key, module.num_heads)
    values = (x @ module.w_value).chunk(module.num_heads, dim=1)
    return torch.cat([a @ v for a, v in zip(shares, values, strict=True)], dim=1)


# Scores of 5 and more are mostly clipped.
@pytest.mark.parametrize("scale", [0.7, 5.0])
@pytest.mark.parametrize("num_heads", [1, 3])
@pytest.mark.parametrize("size", SIZES)
def test_attention_is_a_dense_masked_softmax(size, num_heads, scale, rng):
    matrix = random_pattern(rng, size, 1.0 if size < 3 else 0.4)
    module = EdgeAttention(6, num_heads, rng).double()
    x = normal(rng, size, 6, scale=scale)
    inputs = [x, module.w_value]
    if size > 1:  # a single share of one has no gradient but that of epsilon
        inputs += [module.w_query, module.w_key]
    fast = module(EdgePattern(matrix), x)
    assert_same_with_gradients(fast, slow_attention(module, matrix.toarray(), x), inputs, rng)


def test_scores_that_are_clipped_at_both_ends(rng):
    # A single edge of score -10 has a weight of 5e-5, where epsilon shows.
    module = EdgeAttention(1, 1, rng).double()
    with torch.no_grad():
        for w in module.parameters():
            w.fill_(1.0)
    x = torch.tensor([[-5.0], [5.0], [1.0]], dtype=torch.float64, requires_grad=True)
    matrix = sp.csr_array(np.array([[0, 1, 0], [0, 1, 1], [0, 0, 0]], dtype=np.float32))
    found = module(EdgePattern(matrix), x)
    low, high, free = math.exp(-10), math.exp(10), math.exp(5)
    expected = [5 * low / (low + 1e-8), (5 * high + free) / (high + free + 1e-8), 0.0]
    torch.testing.assert_close(
        found[:, 0], torch.tensor(expected, dtype=x.dtype), rtol=0, atol=1e-12
    )
    assert_same_with_gradients(found, slow_attention(module, matrix.toarray(), x), [x], rng)


def test_attention_along_many_edges(rng):
    matrix = random_pattern(rng, 81, 0.9)
    module, x = EdgeAttention(4, 2, rng).double(), normal(rng, 81, 4)
    slow = slow_attention(module, matrix.toarray(), x)
    inputs = [x, *module.parameters()]
    assert_same_with_gradients(module(EdgePattern(matrix), x), slow, inputs, rng)


def test_shares_are_those_of_the_edges_in_order_and_sum_to_one(rng):
    matrix = with_loops(random_pattern(rng, 33))
    module, x = EdgeAttention(6, 3, rng).double(), normal(rng, 33, 6).detach()
    shares = module.shares(EdgePattern(matrix), x)
    slow = slow_shares(torch.from_numpy(matrix.toarray()), x @ module.w_query, x @ module.w_key, 3)
    rows, columns = (list(ends) for ends in zip(*edge_list(matrix), strict=True))
    torch.testing.assert_close(shares, slow[:, rows, columns].T, rtol=0, atol=1e-12)
    sums = torch.zeros(33, 3).double().index_add(0, torch.tensor(rows), shares)
    torch.testing.assert_close(sums, torch.ones(33, 3).double(), rtol=0, atol=1e-6)


def test_attention_in_single_precision(rng):
    matrix, module = random_pattern(rng, 33), EdgeAttention(6, 3, rng)
    x = normal(rng, 33, 6)
    fast = module(EdgePattern(matrix), x.float())
    slow = slow_attention(module.double(), matrix.toarray(), x)
    torch.testing.assert_close(fast.double(), slow, rtol=0, atol=1e-5)


# Softmax over all candidates, positions


@pytest.mark.parametrize("size", SIZES)
def test_positions_are_the_mean_of_messages_of_all_anchors(size, rng):
    count = min(4, size)
    anchors = torch.from_numpy(rng.choice(size, count, replace=False))
    omega = torch.from_numpy(rng.random((size, count)))
    x, weight, bias = normal(rng, size, 3), normal(rng, 3, 6), normal(rng, 3)
    messages = torch.stack(
        [
            torch.stack([torch.cat([omega[v, a] * x[anchors[a]], x[v]]) for a in range(count)])
            for v in range(size)
        ]
    )  # [N, A, 2d]
    slow = torch.nn.functional.linear(messages, weight, bias).mean(1)
    fast = anchor_encoding(x, anchors, omega, weight, bias)
    assert_same_with_gradients(fast, slow, [x, weight, bias], rng, atol=1e-12)


# The model


def slow_positions(model, x, weight, bias):
    total = torch.zeros_like(x)
    for a, anchor in enumerate(model.anchors):
        told = model.closeness[:, a, None] * x[anchor]
        total = total + torch.cat([told, x], dim=1) @ weight.T + bias
    return total / len(model.anchors)


def dense_of(pattern):
    dense = np.zeros((len(pattern.starts) - 1,) * 2)
    dense[pattern.rows, pattern.columns] = 1
    return dense


def slow_encode(model, graphs):
    average = torch.from_numpy(graphs.encoder.matrix.toarray()).double()
    layers = [model.embeddings]
    for _ in range(model.config.num_layers):
        layers.append(average @ layers[-1])
    views = []
    for view in (graphs.rationale, graphs.complement):
        matrix = view.average.matrix.toarray()
        own = slow_attention(model.attention, matrix, model.embeddings)
        total = model.embeddings + model.config.view_attention * own
        for x in layers[:-1]:
            total = total + torch.from_numpy(matrix).double() @ x
        views.append(total)
    for weight, bias in zip(model.position_weights, model.position_biases, strict=True):
        layers.append(slow_positions(model, layers[-1], weight, bias))
    layers.append(slow_attention(model.attention, dense_of(graphs.decoder), layers[-1]))
    return sum(layers), *views


def slow_objective(model, batch, negatives, z, rationale, complement):
    """Every term by a loop over the batch."""
    config, num_users, size = model.config, model.num_users, len(batch.users)
    users, items = z[:num_users], z[num_users:]

    def log_sum(row, others):
        return sum((row @ other).exp() for other in others).log()

    total = 0.0
    for u, i, j in zip(batch.users, batch.items, negatives[:, 0], strict=True):
        s_u, s_i = rationale[u], rationale[num_users + i]
        term = log_sum(users[u], items) - users[u] @ items[i]
        term = term + config.independence_weight * (s_u * complement[u]).exp().sum().log()
        difference = s_u @ s_i - s_u @ items[j]
        total = total + term - config.rationale_weight * difference.sigmoid().log()
    total = total / size
    for nodes, table in ((batch.users, users), (batch.items, items)):
        distinct = set(nodes.tolist())
        mean = sum(log_sum(table[v], table) for v in distinct) / len(distinct)
        total = total + config.uniformity_weight * mean
    return total


BATCH = Batch(torch.tensor([0, 3, 3, 7, 0]), torch.tensor([1, 0, 6, 5, 1]))  # with repetitions


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_layers": 1, "num_heads": 3, "view_attention": 0.9},
        {"num_layers": 3, "num_position_layers": 2, "view_share": 0.4, "keep_share": 0.6},
    ],
)
def test_the_encoder_is_that_of_dense_matrices(options, rng, random_graph):
    model = build(random_graph(9, 7), **options)
    graphs = model.drawn_graphs(seeded())
    fast, slow = torch.cat(model.encode(graphs)), torch.cat(slow_encode(model, graphs))
    assert_same_with_gradients(fast, slow, [*model.parameters()], rng)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"uniformity_weight": 0.3, "independence_weight": 0.0, "rationale_weight": 0.0},
        {"uniformity_weight": 0.0, "independence_weight": 2.0, "rationale_weight": 0.0},
        {"uniformity_weight": 0.0, "independence_weight": 0.0, "rationale_weight": 0.7},
    ],
)
def test_the_loss_is_that_of_loops(options, rng, random_graph):
    model = build(random_graph(9, 7), **options)
    encoded = [normal(rng, 16, 6) for _ in range(3)]
    negatives = torch.tensor([[2], [4], [4], [0], [3]])
    fast = model.objective(BATCH, negatives, Encoded(*encoded))
    slow = slow_objective(model, BATCH, negatives, *encoded)
    used = encoded if options.get("independence_weight", 1) else encoded[:2]
    assert_same_with_gradients(fast, slow, used, rng, atol=1e-12)


def test_a_step_is_the_loss_of_graphs_and_negatives_drawn(random_graph):
    model, generator = build(random_graph(9, 7)), seeded(5)
    loss = model.loss(BATCH, seeded(5))
    graphs = model.drawn_graphs(generator)
    negatives = model.unseen.draw(BATCH.users, 1, generator)
    slow = slow_objective(model, BATCH, negatives, *slow_encode(model, graphs))
    torch.testing.assert_close(loss, slow, rtol=0, atol=1e-10)


def test_every_parameter_receives_a_gradient(random_graph):
    model = build(random_graph(9, 7), num_position_layers=2)
    model.loss(BATCH, seeded()).backward()
    names = {name for name, _ in model.named_parameters()}
    of_attention = {f"attention.w_{kind}" for kind in ("query", "key", "value")}
    assert names == {"embeddings", "position_weights", "position_biases", *of_attention}
    for name, parameter in model.named_parameters():
        parts = parameter.grad if name.startswith("position") else parameter.grad[None]
        assert (parts.flatten(1).abs().amax(1) > 1e-6).all(), name


def test_scores_are_the_attention_of_all_heads_clipped(random_graph):
    graph = random_graph(9, 7)  # user 8 has no items, so a loop only: all of its attention
    model = build(graph, dim=8, num_heads=4)
    x = slow_positions(model, model.embeddings, model.sampler_weight, model.sampler_bias)
    dense = torch.from_numpy(model.pattern.toarray())
    attention = model.attention
    shares = slow_shares(dense, x @ attention.w_query, x @ attention.w_key, 4).sum(0)
    rows, columns = (list(ends) for ends in zip(*edge_list(model.pattern), strict=True))
    scores = model.edge_scores(EdgePattern(model.pattern))
    assert not scores.requires_grad
    assert shares[8, 8] > 3.9
    assert scores.std() > 0.1
    torch.testing.assert_close(scores, shares[rows, columns].clamp_max(3), rtol=0, atol=1e-12)


def test_as_many_edges_are_kept_as_promised(random_graph, monkeypatch):
    monkeypatch.setattr("mgformer.models.gformer.normalized_by_rows", lambda counts: counts)
    model = build(random_graph(20, 13), added_share=0.0, keep_share=0.77, view_share=0.13)
    graphs = model.drawn_graphs(seeded())
    shares = (0.77, 0.13, 0.13)
    averages = (graphs.encoder, graphs.rationale.average, graphs.complement.average)
    for average, share in zip(averages, shares, strict=True):
        counts = average.matrix
        assert counts.sum() - 33 == int(share * model.pattern.nnz)  # and a loop for each node
        assert (counts.diagonal() >= 1).all()


def test_added_edges_are_scored_and_drawn_too(random_graph):
    model = build(random_graph(20, 13), added_share=1.0, keep_share=1.0)
    found = model.drawn_graphs(seeded()).encoder.matrix.toarray() != 0
    expected = with_random_edges(model.pattern, 1.0, seeded()).toarray() != 0
    np.testing.assert_array_equal(found, expected)
    assert found[:20, :20].sum() > 20  # user-user edges are possible


def test_edges_of_high_score_are_masked_and_make_the_rationale(monkeypatch):
    graph = Graph(sp.csr_array(np.array([[1, 1], [0, 1]], dtype=np.float32)))
    model = build(graph, added_share=0.0, keep_share=0.6, view_share=0.3)
    edges = edge_list(model.pattern)
    scores = np.linspace(0.02, 2.9, len(edges))
    monkeypatch.setattr(model, "edge_scores", lambda pattern: torch.from_numpy(scores))
    draws, generator = 800, seeded()
    counts = np.zeros((3, len(edges)))
    for _ in range(draws):
        graphs = model.drawn_graphs(generator)
        averages = (graphs.encoder, graphs.rationale.average, graphs.complement.average)
        for place, average in enumerate(averages):
            dense = average.matrix.toarray()
            counts[place] += [dense[edge] > 0 for edge in edges]
    proper = np.array([r != c for r, c in edges])  # loops are always there
    kept = inclusion(np.exp(-scores), 6)
    rationale, complement = inclusion(scores + 1e-3, 3), inclusion(np.exp(-scores), 3)
    for found, expected in zip(counts, (kept, rationale, complement), strict=True):
        assert np.ptp(expected[proper]) > 0.3
        assert_frequencies(found[proper], expected[proper], draws)
        assert (found[~proper] == draws).all()


def test_without_masks_positions_and_attention_it_is_a_sum_of_layers(random_graph):
    graph = random_graph(9, 7)
    model = build(graph, keep_share=1.0, added_share=0.0, num_layers=3)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name != "embeddings":
                parameter.zero_()
    z = model.encode(model.drawn_graphs(seeded())).z.detach()
    looped = edges_with_loops(graph).toarray() + np.eye(16)  # all loops are kept, and added
    powers = [np.linalg.matrix_power(slow_normalized(looped), k) for k in range(4)]
    np.testing.assert_allclose(z, sum(powers) @ model.embeddings.detach().numpy(), atol=1e-5)


@pytest.mark.parametrize("num_layers", [1, 3])
def test_ranking_is_by_a_sum_of_layers_on_the_full_graph(num_layers, random_graph):
    graph = random_graph(9, 7)
    model = build(graph, num_layers=num_layers)
    model.loss(BATCH, seeded())
    average = slow_normalized(edges_with_loops(graph).toarray())
    powers = [np.linalg.matrix_power(average, k) for k in range(num_layers + 1)]
    expected = sum(powers) @ model.embeddings.detach().numpy()
    scorer = model.scorer()
    np.testing.assert_allclose(torch.cat([scorer.users, scorer.items]), expected, atol=1e-5)


def test_graphs_stay_for_some_steps_and_are_drawn_anew_with_an_epoch(rng, random_graph):
    model, generator = build(random_graph(9, 7), refresh=3), seeded()
    seen = []
    for step in range(8):
        if step == 7:
            model.on_epoch(rng)
        model.loss(BATCH, generator)
        seen.append(model.graphs)
    same = [a is b for a, b in pairwise(seen)]
    assert same == [True, True, False, True, True, False, False]


def test_an_epoch_does_not_depend_on_what_was_before(random_graph):
    graph = random_graph(9, 7)
    fresh, used = build(graph), build(graph)
    for _ in range(4):
        used.loss(BATCH, seeded(8))
    used.on_epoch(np.random.default_rng(7))
    used.loss(BATCH, seeded(9))
    losses = []
    for model in (fresh, used):
        generator = seeded(3)
        model.on_epoch(np.random.default_rng(1))
        losses.append([model.loss(BATCH, generator) for _ in range(12)])
    assert torch.equal(*(torch.stack(of_model) for of_model in losses))


def test_anchors_are_different_nodes_drawn_for_every_epoch(rng, random_graph):
    graph = random_graph(9, 7)
    model = build(graph, num_anchors=5)
    drawn = set()
    for _ in range(20):
        assert len(set(model.anchors.tolist())) == 5
        expected = closeness(graph.adjacency, model.anchors).double()
        assert torch.equal(model.closeness, expected)
        drawn |= set(model.anchors.tolist())
        model.on_epoch(rng)
    assert drawn == set(range(16))
    assert len(build(graph, num_anchors=99).anchors) == 16


def test_channels_that_heads_cannot_share_are_refused():
    with pytest.raises(ValidationError, match="num_heads = 4"):
        GFormer.Config(dim=6)
    assert GFormer.Config(dim=8).dim == 8
