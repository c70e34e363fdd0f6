"""GFormer against dense matrices and loops."""

from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from pydantic import ValidationError

from mgformer.data.sampling import Batch
from mgformer.graph.bipartite import Graph
from mgformer.models.gformer.edge_attention import EdgePattern
from mgformer.models.gformer.model import GFormer
from mgformer.models.gformer.positions import closeness
from mgformer.models.gformer.sampled_edges import (
    edges_with_loops,
    with_random_edges,
)
from tests.models.gformer.oracles_edges import (
    assert_frequencies,
    assert_same_with_gradients,
    edge_list,
    inclusion,
    normal,
    seeded,
    slow_attention,
    slow_normalized,
    slow_shares,
)


def build(graph, seed=0, **options):
    config = GFormer.Config(**{"dim": 6, "num_heads": 2, "num_anchors": 4, **options})
    model = GFormer(config, graph, np.random.default_rng(seed)).double()
    with torch.no_grad():  # far from zero, so that no comparison is vacuous
        drawn = np.random.default_rng(seed + 1).standard_normal(model.embeddings.shape)
        model.embeddings.copy_(torch.from_numpy(0.7 * drawn))
    return model


def slow_positions(model, x, weight, bias):
    total, num_nodes, num_anchors = torch.zeros_like(x), len(x), len(model.anchors)
    for a, anchor in enumerate(model.anchors):
        from_anchor = model.closeness[:, a, None] * x[anchor]
        own = x
        if model.config.reference_quirks:  # x is tiled as a whole, not row by row
            own = torch.stack([x[(v * num_anchors + a) % num_nodes] for v in range(num_nodes)])
        total = total + torch.cat([from_anchor, own], dim=1) @ weight.T + bias
    return total / num_anchors


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
        {"reference_quirks": False, "num_position_layers": 2},
        {"num_anchors": 16},
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
    fast = model.objective(BATCH, negatives, *encoded)
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


def test_graphs_have_the_right_number_of_edges(random_graph, monkeypatch):
    monkeypatch.setattr(
        "mgformer.models.gformer.sampled_edges.normalized_by_rows", lambda counts: counts
    )
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
    z = model.encode(model.drawn_graphs(seeded()))[0].detach()
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


def test_graphs_are_drawn_again_after_some_steps_and_for_every_epoch(rng, random_graph):
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


def test_heads_must_divide_the_channels():
    with pytest.raises(ValidationError, match="num_heads: got 4, expected a divisor of dim = 6"):
        GFormer.Config(dim=6)
    assert GFormer.Config(dim=8).dim == 8
