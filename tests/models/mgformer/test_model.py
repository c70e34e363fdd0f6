"""MGFormer against the equations of the paper, written out over all pairs."""

import math

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from pydantic import ValidationError

from mgformer.data.sampling import Batch
from mgformer.graph.bipartite import Graph
from mgformer.models.mgformer.model import MGFormer
from mgformer.nn import naive_attention as naive
from tests.graph.oracles_graph import normalized_adjacency

SMALL = {"dim": 4, "rank": 4, "num_neighbors": 5, "num_landmarks": 6, "active_landmarks": 2}
FORMS = {
    "paper": {
        "attention": "kernel", "mask": "sine", "residual": "none", "normalized": False,
        "encoding_scale": 1.0, "query_init": "xavier",
    },
    "kernel": {"attention": "kernel", "mask": "sine", "centered": True},
    "adjacency": {"attention": "kernel", "mask": "adjacency"},
    "elu": {"attention": "kernel", "features": "elu", "mask": "sine"},
    "fourier": {"attention": "kernel", "features": "fourier"},
    "many features": {"attention": "kernel", "num_features": 24},
    "two heads": {"attention": "kernel", "num_heads": 2, "mask": "sine"},
    "softmax": {"attention": "softmax", "mask": "sine"},
    "neighbors": {"attention": "neighbors"},
    "masked neighbors": {"attention": "neighbors", "mask": "sine", "num_heads": 2},
    "landmarks": {"attention": "landmarks"},
    "none": {"attention": "none"},
    "local": {"attention": "neighbors", "local_weight": 0.5},
    "two layers": {"attention": "neighbors", "num_layers": 2},
    "two kernel layers": {"attention": "kernel", "num_layers": 2, "mask": "sine"},
}  # fmt: skip
every_form = pytest.mark.parametrize("form", FORMS)


def build(graph: Graph, form: str = "neighbors", seed: int = 0, **options) -> MGFormer:
    config = MGFormer.Config(**{**SMALL, **FORMS[form], **options})
    return MGFormer(config, graph, np.random.default_rng(seed)).double()


def everybody(model: MGFormer) -> torch.Tensor:
    return torch.arange(model.num_nodes)


def test_the_papers_layer_is_its_last_equation(random_graph):
    graph = random_graph(9, 7)
    model = build(graph, "paper")
    x = model.inputs(everybody(model))  # [E, P]
    torch.testing.assert_close(x, torch.cat([model.tokens, model.encodings], dim=1))
    (layer,) = model.layers
    degrees = np.concatenate([graph.user_degrees, graph.item_degrees])
    z = 4 / math.pi * layer.angles(everybody(model))
    assert ((z > 0) & (z < 1)).all()
    assert all(z[a] == z[b] for a in range(16) for b in range(16) if degrees[a] == degrees[b])
    scale = 8**-0.25
    q_features, k_features = (
        naive.positive_features(x @ w * scale, layer.projections[0])
        for w in (layer.w_query, layer.w_key)
    )
    weights = q_features @ k_features.T * torch.sin(math.pi / 4 * (z[:, None] + z))
    expected = naive.weighted_means(weights, x)
    torch.testing.assert_close(model.outputs(everybody(model)), expected)


def test_the_encodings_of_the_paper_are_those_of_r(random_graph):
    graph = random_graph(9, 7, isolated=False)
    model = build(graph, "paper")
    users, items = model.encodings[:9], model.encodings[9:]
    u, s, vt = np.linalg.svd(graph.interactions.toarray(), full_matrices=False)
    np.testing.assert_allclose(users @ items.T, u[:, :4] * s[:4] @ vt[:4], atol=1e-5)
    np.testing.assert_allclose(users.norm(dim=0), np.sqrt(s[:4]), rtol=1e-5)


def test_neighbors_attend_by_a_softmax_of_cosines(random_graph):
    graph = random_graph(9, 7, isolated=False)
    model = build(graph)
    x, p = model.inputs(everybody(model)), model.encodings
    expected = []
    for i in range(16):
        cosines = [-9.0 if j == i else float(p[i] @ p[j]) for j in range(16)]
        nearest = np.argsort(cosines)[::-1][:5].copy()
        weights = torch.tensor([10 * cosines[j] for j in nearest], dtype=torch.float64).softmax(0)
        expected.append(x[i] + weights @ x[torch.from_numpy(nearest)])
    torch.testing.assert_close(
        model.outputs(everybody(model)), torch.stack(expected), rtol=1e-5, atol=1e-6
    )


def test_isolated_nodes_do_not_attend(random_graph):
    graph = random_graph(9, 7)
    for form in ("neighbors", "landmarks"):
        model = build(graph, form)
        alone = torch.tensor([8, 9 + 1])
        torch.testing.assert_close(model.outputs(alone), model.inputs(alone))


def test_landmarks_are_kernel_attention(random_graph):
    """κ(i, j) = Σ_r φ_ir φ_jr / mass_r, normalized over j: Eq. (6)."""
    graph = random_graph(9, 7, isolated=False)
    model = build(graph, "landmarks")
    (layer,) = model.layers
    features = torch.from_numpy(layer.features.toarray()).double()
    assert features.shape == (16, 6)
    torch.testing.assert_close(features.sum(1), torch.ones(16).double(), rtol=1e-6, atol=0)
    assert ((features > 0).sum(1) == 2).all()
    kernel = features / features.sum(0).clamp_min(1e-30) @ features.T
    x = model.inputs(everybody(model))
    expected = x + kernel / kernel.sum(1, keepdim=True) @ x
    torch.testing.assert_close(model.outputs(everybody(model)), expected, rtol=1e-5, atol=1e-6)


def test_the_shaped_residual(random_graph):
    graph = random_graph(9, 7)
    model = build(graph, "kernel", attention_weight=0.7)
    x = model.inputs(everybody(model))
    nodes = everybody(model)
    attended = model.layers[0](x, nodes, nodes, nodes)
    expected = x + 0.7 * (attended - x.mean(0))
    torch.testing.assert_close(model.outputs(nodes), expected)


def test_centered_subtracts_the_mean_of_the_keys(random_graph):
    """These are the sampled keys, not all rows that the batch needs."""
    model = build(random_graph(20, 13), "kernel", key_sample=5)
    nodes = torch.tensor([2, 3, 30])
    known, keys = model.layers[0].reach(nodes, torch.Generator().manual_seed(1))
    assert len(keys) < len(known)
    attended = model.layers[0](model.inputs(known), known, keys, nodes)
    expected = model.inputs(nodes) + attended - model.inputs(keys).mean(0)
    found = model.outputs(nodes, torch.Generator().manual_seed(1))
    torch.testing.assert_close(found, expected)


def test_neighbors_are_chosen_by_cosine_even_without_normalization(random_graph):
    model = build(random_graph(20, 13, isolated=False), normalized=False)
    lengths = model.encodings.norm(dim=1)
    assert lengths.max() > 1.5 * lengths.min()
    unit = model.encodings / lengths[:, None]
    (layer,) = model.layers
    cosines = torch.einsum("nr,nkr->nk", unit, unit[layer.neighbors])
    torch.testing.assert_close(layer.similarities, cosines, rtol=1e-5, atol=1e-5)


def test_the_local_term_averages_over_the_graph(random_graph):
    graph = random_graph(9, 7)
    for form in ("none", "neighbors"):
        model, plain = build(graph, form, local_weight=0.5), build(graph, form)
        x = plain.inputs(everybody(plain)).detach()
        adjacency = normalized_adjacency(graph.interactions.toarray())
        difference = model.outputs(everybody(model)) - plain.outputs(everybody(plain))
        torch.testing.assert_close(
            difference.detach(), 0.5 * torch.from_numpy(adjacency) @ x, rtol=1e-5, atol=1e-7
        )


@every_form
def test_rows_do_not_depend_on_the_other_nodes_of_a_batch(form, random_graph):
    model = build(random_graph(20, 13), form)
    whole = model.outputs(everybody(model))
    some = torch.tensor([30, 3, 3, 19, 0, 32])
    torch.testing.assert_close(model.outputs(some), whole[some])


# Landmarks are left out: k-means begins at rows drawn by number.
@pytest.mark.parametrize("form", sorted(FORMS.keys() - {"landmarks"}))
def test_renaming_nodes_renames_rows(form, random_graph, rng):
    """Permutation equivariance: users and items are sets."""
    graph = random_graph(20, 13, density=0.5, isolated=False)
    model = build(graph, form, rank=3, dim=5)
    users, items = rng.permutation(20), rng.permutation(13)
    renamed = build(Graph(sp.csr_array(graph.interactions[users][:, items])), form, rank=3, dim=5)
    nodes = torch.from_numpy(np.concatenate([users, 20 + items]))
    with torch.no_grad():
        renamed.tokens.copy_(model.tokens[nodes])
    torch.testing.assert_close(
        renamed.outputs(everybody(model)).detach(),
        model.outputs(nodes).detach(),
        rtol=1e-3,
        atol=1e-4,
    )


@every_form
def test_gradients_reach_every_parameter(form, random_graph):
    model = build(random_graph(20, 13, isolated=False), form)
    batch = Batch(torch.tensor([0, 3, 3, 7, 19]), torch.tensor([1, 0, 12, 5, 5]))
    model.loss(batch, torch.Generator().manual_seed(0)).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.any(), name


@pytest.mark.parametrize("form", ["paper", "masked neighbors", "landmarks"])
def test_the_gradient_is_that_of_the_loss(form, random_graph):
    model = build(random_graph(6, 5, isolated=False), form)
    batch = Batch(torch.tensor([0, 3, 3]), torch.tensor([1, 0, 4]))
    for parameter in model.parameters():
        entry = np.unravel_index(parameter.numel() // 2, parameter.shape)
        model.zero_grad()
        model.loss(batch, torch.Generator()).backward()
        values = []
        for shift in (1e-5, -2e-5):
            with torch.no_grad():
                parameter[entry] += shift
            values.append(model.loss(batch, torch.Generator()).item())
        with torch.no_grad():
            parameter[entry] += 1e-5
        # The sparse products are computed in float32 weights, the differences in float64.
        assert parameter.grad[entry].item() == pytest.approx(
            (values[0] - values[1]) / 2e-5, rel=2e-4, abs=1e-8
        )


def test_sparse_gradients_equal_dense_gradients(random_graph):
    graph = random_graph(20, 13)
    batch = Batch(torch.tensor([0, 3, 3, 7]), torch.tensor([1, 0, 12, 5]))
    dense, sparse = build(graph), build(graph)
    sparse.sparse_gradients = True
    for model in (dense, sparse):
        model.loss(batch, torch.Generator()).backward()
    assert sparse.tokens.grad.is_sparse
    torch.testing.assert_close(sparse.tokens.grad.to_dense(), dense.tokens.grad)


def test_a_step_touches_only_its_batch_and_the_keys(random_graph):
    graph = random_graph(200, 100, density=0.05)
    for form, options, bound in [
        ("neighbors", {}, 4 * 6), ("kernel", {"key_sample": 10}, 4 + 10),
        ("softmax", {"key_sample": 10}, 4 + 10),
    ]:  # fmt: skip
        model = build(graph, form, **options)
        model.sparse_gradients = True
        batch = Batch(torch.tensor([0, 3]), torch.tensor([1, 9]))
        model.loss(batch, torch.Generator().manual_seed(1)).backward()
        assert 4 <= model.tokens.grad.coalesce().indices().shape[1] <= bound


def test_keys_are_sampled_in_training_only(random_graph):
    graph = random_graph(20, 13)
    sampled, whole = build(graph, "kernel", key_sample=5), build(graph, "kernel")
    nodes = torch.arange(8)
    torch.testing.assert_close(sampled.outputs(nodes), whole.outputs(nodes))
    drawn = sampled.outputs(nodes, torch.Generator().manual_seed(0))
    assert not torch.allclose(drawn, whole.outputs(nodes))


def test_new_features_are_drawn_only_with_redraw(random_graph, rng):
    graph = random_graph(9, 7)
    for redraw in (False, True):
        model = build(graph, "kernel", redraw=redraw)
        before = model.layers[0].projections.clone()
        model.on_epoch(rng)
        assert torch.equal(before, model.layers[0].projections) is not redraw


def test_heads_differ_in_sharpness(random_graph):
    model = build(random_graph(20, 13, isolated=False), "masked neighbors", mask="none")
    weights = model.layers[0].weights(everybody(model))  # [N, H, K]
    assert (weights[:, 1].max(1).values >= weights[:, 0].max(1).values).all()
    torch.testing.assert_close(weights.sum(2), torch.ones(33, 2).double())


def test_no_pairs_no_nan():
    graph = Graph(sp.csr_array((4, 5), dtype=np.float32))
    for form in FORMS:
        assert build(graph, form).outputs(torch.arange(9)).isfinite().all(), form


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"attention": "kernel", "num_features": 300}, "256 channels of a head; choose 256"),
        ({"attention": "kernel", "num_features": 300}, "num_features: got 300"),
        ({"num_heads": 3}, "num_heads: got 3, expected a divisor of dim + rank = 256"),
        ({"mask": "sine", "degree_dim": 0}, "mask = sine needs degrees"),
        ({"mask": "adjacency"}, "mask = adjacency needs attention = kernel"),
        ({"mask": "adjacency", "attention": "kernel", "features": "elu"}, "positive random"),
        ({"rank": 0}, "attention = neighbors needs encodings"),
        ({"rank": 0, "attention": "kernel"}, "query_init = structure needs encodings"),
        ({"attention": "kernel", "features": "relu", "num_features": 256}, "has no use"),
        ({"redraw": True}, "redraw needs attention = kernel"),
        ({"key_sample": 10}, "key_sample needs attention = kernel"),
        ({"dim": 0}, "greater than 0"),
        ({"local_weight": 1, "residual": "none"}, "local_weight needs residual = shaped"),
        ({"attention": "none", "residual": "none"}, "attention = none needs residual"),
        ({"attention": "none", "mask": "sine"}, "mask = sine does not work with attention = none"),
        ({"centered": True}, "centered needs attention to all nodes"),
        ({"centered": True, "attention": "kernel", "mask": "adjacency"}, "centered needs"),
        ({"attention": "landmarks", "mask": "sine"}, "not work with attention = landmarks"),
        ({"attention": "landmarks", "num_heads": 2}, "one head"),
    ],
)  # fmt: skip
def test_impossible_options_are_refused(options, message):
    with pytest.raises(ValidationError) as caught:
        MGFormer.Config(**options)
    assert message in str(caught.value)
