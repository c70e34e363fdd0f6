"""MGFormer against the equations of the paper, written out over all pairs."""

import math
import tomllib
from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from pydantic import ValidationError
from torch import Tensor

from mgformer.data.sampling import Batch
from mgformer.graph.bipartite import Graph
from mgformer.graph.spectral import encodings_of
from mgformer.models import mgformer as module
from mgformer.models.mgformer import KernelAttention, MGFormer
from mgformer.nn import naive_attention as naive
from mgformer.runs.config import build_config, to_toml

SMALL = {"dim": 5, "rank": 4}
PAPER = {"normalized": False, "residual": 0, "sharpness": None, "key_sample": None}
ADJACENCY = {"mask": "adjacency", "key_sample": None}
FORMS = {
    "default": {},
    "paper": PAPER,
    "no residual": {"residual": 0},
    "mixed heads": {"residual": 0, "num_heads": 3, "num_layers": 2},
    "half a residual": {"residual": 0.5, "attention_weight": 0.7, "num_heads": 3},
    "no mask": {"mask": "none", "num_layers": 2},
    "adjacency": ADJACENCY,
    "two layers of adjacency": {**ADJACENCY, "num_layers": 2, "residual": 0.5},
    "elu": {"features": "elu"},
    "fourier": {"features": "fourier", "mask": "none"},
    "attention off": {"attention_weight": 0},
}
every_form = pytest.mark.parametrize("form", FORMS)


def build(graph: Graph, seed: int = 0, **options) -> MGFormer:
    config = MGFormer.Config(**{**SMALL, **options})
    return MGFormer(config, graph, np.random.default_rng(seed)).double()


def everybody(model: MGFormer) -> Tensor:
    return torch.arange(model.num_nodes)


def shake(model: MGFormer) -> MGFormer:
    """Move the parameters away from their starting values, where some gradients are special."""
    rng = np.random.default_rng(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.from_numpy(rng.standard_normal(parameter.shape))
    return model


def features(kind: str, x: Tensor, projection: Tensor | None) -> Tensor:
    """φ(x) [N, R] by the formula of each map."""
    if kind in ("simplex", "orthogonal", "iid"):
        return naive.positive_features(x, projection)
    if kind == "fourier":
        angles = x @ projection.T
        both = torch.cat([angles.cos(), angles.sin()], dim=1) / math.sqrt(len(projection))
        return (x.square().sum(1) / 2).exp()[:, None] * both
    if kind == "elu":
        return torch.nn.functional.elu(x) + 1
    positive = x.relu() + 1e-6
    if kind == "relu":
        return positive
    cubes = positive**3
    return positive.norm(dim=1, keepdim=True) * cubes / cubes.norm(dim=1, keepdim=True)


def mask_of(model: MGFormer, layer: KernelAttention, graph: Graph) -> Tensor | float:
    """M [N, N]."""
    if model.config.mask == "sine":
        place = {degree: row for row, degree in enumerate(np.unique(graph.degrees))}
        rows = [layer.angles.embedding[place[degree]] for degree in graph.degrees]
        z = torch.sigmoid(torch.stack(rows) @ layer.angles.projection)
        return torch.sin(math.pi / 2 * (z[:, None] + z) / 2)
    if model.config.mask == "adjacency":
        r = torch.from_numpy(graph.interactions.toarray()).double()
        return torch.cat(
            [
                torch.cat([torch.zeros(len(r), len(r)), r], 1),
                torch.cat([r.T, torch.zeros(r.shape[1], r.shape[1])], 1),
            ]
        )
    return 1.0


def written_out(model: MGFormer, graph: Graph, keys: list[Tensor] | None = None) -> Tensor:
    """h [N, m], layer by layer and head by head, with all nodes or the given keys of each layer."""
    config, m = model.config, model.config.dim + model.config.rank
    x = torch.cat([model.tokens, model.encodings], dim=1)
    order = range(m) if model.mixed is None else model.mixed.tolist()
    for number in range(config.num_layers):
        if config.attention_weight == 0:
            x = config.residual * x
            continue
        layer = model.layers[number]
        chosen = keys[number] if keys else everybody(model)
        mask = mask_of(model, layer, graph)
        mask = mask if isinstance(mask, float) else mask[:, chosen]
        width = m // config.num_heads
        queries, of_keys = (x[:, order] @ w * width**-0.25 for w in (layer.w_query, layer.w_key))
        attended = torch.zeros_like(x)
        for head in range(config.num_heads):
            own = slice(head * width, (head + 1) * width)
            projection = layer.projections[head] if layer.projections is not None else None
            phi_q, phi_k = (
                features(config.features, side[:, own], projection) for side in (queries, of_keys)
            )
            channels = order[own]
            values = x[chosen][:, channels]
            attended[:, channels] = naive.masked_attention(phi_q, phi_k[chosen], values, mask)
        if config.residual == 0:
            x = attended
        else:
            if config.mask != "adjacency":
                attended = attended - x[chosen].mean(0)
            x = config.residual * x + config.attention_weight * attended
    return x


def assert_same_with_gradients(model: MGFormer, fast: Tensor, slow: Tensor) -> None:
    torch.testing.assert_close(fast, slow, rtol=1e-7, atol=1e-9)
    pull = torch.from_numpy(np.random.default_rng(5).standard_normal(fast.shape))
    names, parameters = zip(*model.named_parameters(), strict=True)
    found, expected = (
        torch.autograd.grad((h * pull).sum(), parameters, allow_unused=True) for h in (fast, slow)
    )
    for name, one, other in zip(names, found, expected, strict=True):
        assert other is not None, name
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-8, msg=name)
        assert other.abs().max() > 1e-6, name


RESIDUALS = [(0, 1), (0.5, 0.7), (1, 1), (1, 0)]


@pytest.mark.parametrize("weights", RESIDUALS)
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("mask", ["sine", "none", "adjacency"])
def test_layers_are_their_formula_with_gradients(mask, heads, layers, weights, random_graph):
    graph = random_graph(11, 8)
    residual, weight = weights
    model = build(
        graph, mask=mask, num_heads=heads, num_layers=layers, residual=residual,
        attention_weight=weight, key_sample=None,
    )  # fmt: skip
    shake(model)
    assert_same_with_gradients(model, model.outputs(everybody(model)), written_out(model, graph))


@pytest.mark.parametrize("kind", list(module.FEATURE_MAPS))
@pytest.mark.parametrize(("mask", "heads", "residual"), [("sine", 1, 1), ("none", 3, 0)])
def test_every_feature_map_is_its_formula(kind, mask, heads, residual, random_graph):
    graph = random_graph(11, 8)
    model = build(graph, features=kind, mask=mask, num_heads=heads, residual=residual)
    # Short rows, where the negative terms of Fourier features do not reach the floor.
    with torch.no_grad():
        model.tokens *= 0.3
        for layer in model.layers:
            rng = np.random.default_rng(2)
            for w in (layer.w_query, layer.w_key):
                w.copy_(torch.from_numpy(0.4 * rng.standard_normal(w.shape)))
    assert_same_with_gradients(model, model.outputs(everybody(model)), written_out(model, graph))


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("residual", [0, 1])
def test_drawn_keys_are_the_only_keys_of_a_step(residual, layers, random_graph):
    """The mean that is subtracted is that of the drawn keys, not of all rows of the batch."""
    graph = random_graph(20, 13)
    model = shake(build(graph, key_sample=6, num_layers=layers, residual=residual, num_heads=3))
    generator = torch.Generator().manual_seed(3)
    drawn = [torch.randint(33, (6,), generator=generator).unique() for _ in range(layers)]
    nodes = torch.tensor([30, 3, 3, 19, 0, 32])
    fast = model.outputs(nodes, torch.Generator().manual_seed(3))
    assert_same_with_gradients(model, fast, written_out(model, graph, drawn[::-1])[nodes])


def test_the_papers_model_is_its_last_equation(random_graph):
    graph = random_graph(9, 7, isolated=False)
    model = shake(build(graph, dim=4, rank=4, **PAPER))
    p = encodings_of(graph, 4, np.random.default_rng(0), normalized=False).double()
    x = torch.cat([model.tokens, p], dim=1)
    torch.testing.assert_close(model.inputs(everybody(model)), x)
    (layer,) = model.layers
    z = 4 / math.pi * layer.angles(everybody(model))
    assert ((z > 0) & (z < 1)).all()
    q, k = (
        naive.positive_features(x @ w * 8**-0.25, layer.projections[0])
        for w in (layer.w_query, layer.w_key)
    )
    mask = torch.sin(math.pi / 2 * (z[:, None] + z) / 2)
    torch.testing.assert_close(
        model.outputs(everybody(model)), naive.weighted_means(mask * (q @ k.T), x)
    )


def test_nodes_of_the_same_degree_have_the_same_angle(random_graph):
    graph = random_graph(20, 13)
    angles = build(graph).layers[0].angles(torch.arange(33)).detach().numpy()
    same = graph.degrees[:, None] == graph.degrees
    assert same.sum() > 33
    np.testing.assert_array_equal(np.abs(angles[:, None] - angles) < 1e-12, same)


def test_the_loss_is_alignment_and_the_sum_of_both_uniformities(random_graph):
    model = build(random_graph(20, 13), uniformity_weight=0.3, uniformity_t=1.5, key_sample=None)
    batch = Batch(torch.tensor([0, 3, 3, 7]), torch.tensor([1, 0, 12, 5]))
    h = torch.nn.functional.normalize(model.outputs(everybody(model)).detach())
    users, items = h[batch.users], h[20 + batch.items]
    expected = (users - items).square().sum(1).mean()
    for side in (users, items):
        weights = [
            math.exp(-1.5 * float((side[a] - side[b]).square().sum()))
            for a in range(4) for b in range(4) if a != b
        ]  # fmt: skip
        expected = expected + 0.3 * math.log(np.mean(weights))
    assert model.loss(batch, torch.Generator()).item() == pytest.approx(float(expected), rel=1e-9)


@pytest.mark.parametrize("normalized", [True, False])
def test_sharpness_is_the_factor_of_encodings_in_the_scores(normalized, random_graph):
    graph = random_graph(20, 13)
    model = build(graph, sharpness=7.0, normalized=normalized, num_heads=3)
    p = encodings_of(graph, 4, np.random.default_rng(0), normalized=normalized).double()
    if normalized:
        p = torch.nn.functional.normalize(p)
    torch.testing.assert_close(model.encodings, p * (0.2 if normalized else 1), rtol=1e-6, atol=0)
    x = model.inputs(everybody(model))
    scores = sum(q @ k.T for q, k in zip(*model.layers[0].projected(x, x), strict=True))
    torch.testing.assert_close(scores, 7 * p @ p.T, rtol=1e-5, atol=1e-5)
    assert scores.max() > 6


@pytest.mark.parametrize(("rank", "square"), [(0, 9), (4, 10)])
@pytest.mark.parametrize("heads", [1, 4])
def test_without_a_residual_sharpness_is_the_factor_of_inputs(heads, rank, square, random_graph):
    model = build(random_graph(60, 30), dim=64, rank=rank, num_heads=heads, residual=0, sharpness=7)
    assert model.tokens.norm(dim=1).mean().item() == pytest.approx(3, rel=0.02)
    lengths = model.encodings.norm(dim=1)
    assert all(length == pytest.approx(1, abs=1e-5) or length == 0 for length in lengths.tolist())
    x = model.inputs(everybody(model))
    scores = sum(q @ k.T for q, k in zip(*model.layers[0].projected(x, x), strict=True))
    torch.testing.assert_close(scores, 7 / square * x @ x.T, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("residual", [0, 1])
def test_without_sharpness_everything_starts_as_is_usual(residual, random_graph):
    graph = random_graph(60, 30)
    model = build(graph, dim=64, rank=64, sharpness="none", residual=residual)
    w_query, w_key = model.layers[0].w_query, model.layers[0].w_key
    bound = math.sqrt(3 / 128)
    for w in (w_query, w_key):
        assert 0.99 * bound < w.abs().max() <= bound
        assert w.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.02)
    assert not torch.equal(w_query, w_key)
    assert model.tokens.std().item() == pytest.approx(math.sqrt(2 / (90 + 64)), rel=0.05)
    assert model.encodings.norm(dim=1).max().item() == pytest.approx(0.2, rel=1e-5)


def test_channels_are_mixed_over_the_heads_without_a_residual(random_graph):
    graph = random_graph(20, 13, isolated=False)
    model = build(graph, num_heads=3, residual=0, mask="none")
    assert sorted(model.mixed.tolist()) == list(range(9))
    assert model.mixed.tolist() != list(range(9))
    assert torch.equal(build(graph, num_heads=3, residual=0).mixed, model.mixed)
    assert not torch.equal(build(graph, 1, num_heads=3, residual=0).mixed, model.mixed)
    assert "mixed" not in model.state_dict()
    assert build(graph, num_heads=3).mixed is build(graph, residual=0).mixed is None
    # Uniform attention returns the mean of [e, p], in this order.
    with torch.no_grad():
        model.layers[0].w_query.zero_()
        model.layers[0].w_key.zero_()
    mean = torch.cat([model.tokens, model.encodings], dim=1).mean(0)
    torch.testing.assert_close(model.outputs(everybody(model)), mean.expand(33, -1))


def test_attention_off_computes_no_attention(random_graph, monkeypatch):
    def refuse(*_: object) -> None:
        raise AssertionError("attention is off")

    monkeypatch.setattr(module, "KernelAttention", refuse)
    model = build(random_graph(20, 13), attention_weight=0, residual=0.5, num_layers=3)
    assert [name for name, _ in model.named_parameters()] == ["tokens"]
    expected = torch.cat([model.tokens, model.encodings], dim=1) / 8
    torch.testing.assert_close(model.outputs(everybody(model)), expected)


@every_form
def test_rows_do_not_depend_on_the_other_nodes_of_a_batch(form, random_graph):
    model = shake(build(random_graph(20, 13), **FORMS[form]))
    whole = model.outputs(everybody(model))
    some = torch.tensor([30, 3, 3, 19, 0, 32])
    torch.testing.assert_close(model.outputs(some), whole[some])


@every_form
def test_renaming_nodes_renames_rows(form, random_graph, rng):
    """Permutation equivariance: users and items are sets."""
    options = {**FORMS[form], "rank": 3, "dim": 6}
    graph = random_graph(20, 13, density=0.5, isolated=False)
    model = build(graph, **options)
    users, items = rng.permutation(20), rng.permutation(13)
    renamed = build(Graph(sp.csr_array(graph.interactions[users][:, items])), **options)
    nodes = torch.from_numpy(np.concatenate([users, 20 + items]))
    with torch.no_grad():
        renamed.tokens.copy_(model.tokens[nodes])
        found, expected = renamed.outputs(everybody(model)), model.outputs(nodes)
    assert expected.std(0).max() > 1e-2
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)


@every_form
def test_gradients_reach_every_parameter(form, random_graph):
    model = build(random_graph(20, 13, isolated=False), **FORMS[form])
    batch = Batch(torch.tensor([0, 3, 3, 7, 19]), torch.tensor([1, 0, 12, 5, 5]))
    model.loss(batch, torch.Generator().manual_seed(0)).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.any(), name


@pytest.mark.parametrize("form", ["default", "attention off"])
def test_sparse_gradients_equal_dense_gradients(form, random_graph):
    graph = random_graph(20, 13)
    batch = Batch(torch.tensor([0, 3, 3, 7]), torch.tensor([1, 0, 12, 5]))
    dense, sparse = build(graph, **FORMS[form]), build(graph, **FORMS[form])
    sparse.sparse_gradients = True
    for model in (dense, sparse):
        model.loss(batch, torch.Generator()).backward()
    assert sparse.tables() == [sparse.tokens]
    assert sparse.tokens.grad.is_sparse
    torch.testing.assert_close(sparse.tokens.grad.to_dense(), dense.tokens.grad)


@pytest.mark.parametrize(
    ("options", "most"),
    [({"key_sample": 10}, 4 + 10), ({"key_sample": 10, "num_layers": 2}, 4 + 20),
     ({"attention_weight": 0}, 4), (ADJACENCY, 100)],
)  # fmt: skip
def test_a_step_touches_only_its_batch_and_the_keys(options, most, random_graph):
    model = build(random_graph(200, 100, density=0.05), **options)
    model.sparse_gradients = True
    batch = Batch(torch.tensor([0, 3]), torch.tensor([2, 9]))
    model.loss(batch, torch.Generator().manual_seed(1)).backward()
    assert 4 <= model.tokens.grad.coalesce().indices().shape[1] <= most


def test_keys_are_sampled_in_training_only(random_graph):
    graph = random_graph(20, 13)
    sampled, whole = build(graph, key_sample=5), build(graph, key_sample="none")
    nodes = torch.arange(8)
    torch.testing.assert_close(sampled.outputs(nodes), whole.outputs(nodes))
    drawn, again, other = (
        sampled.outputs(nodes, torch.Generator().manual_seed(seed)) for seed in (0, 0, 1)
    )
    assert torch.equal(drawn, again)
    assert not torch.allclose(drawn, other)
    assert not torch.allclose(drawn, whole.outputs(nodes))
    # In training, too, all nodes are keys if none are drawn.
    all_keys = whole.outputs(nodes, torch.Generator().manual_seed(0))
    assert torch.equal(all_keys, whole.outputs(nodes))


@every_form
def test_no_pairs_no_nan(form):
    graph = Graph(sp.csr_array((4, 5), dtype=np.float32))
    assert build(graph, **FORMS[form]).outputs(torch.arange(9)).isfinite().all()


CHANGES = {
    "dim": 6, "rank": 3, "normalized": False, "num_layers": 2, "num_heads": 3, "features": "iid",
    "mask": "none", "residual": 0.5, "attention_weight": 0.5, "sharpness": 3.0, "key_sample": 7,
    "uniformity_weight": 0.1, "uniformity_t": 1.0,
}  # fmt: skip


EACH = [{option: value} for option, value in CHANGES.items()]
EACH += [{"sharpness": None}, {"key_sample": None}]


@pytest.mark.parametrize(
    ("residual", "changed"),
    [(residual, changed) for residual in (0, 1) for changed in EACH
     if residual or "attention_weight" not in changed],
)  # fmt: skip
def test_every_option_acts(residual, changed, random_graph):
    batch = Batch(torch.tensor([0, 3, 3, 7]), torch.tensor([1, 0, 12, 5]))
    graph = random_graph(20, 13)
    losses = [
        build(graph, **{"residual": residual, "key_sample": 9, **options}).loss(
            batch, torch.Generator().manual_seed(0)
        )
        for options in ({}, changed)
    ]
    assert abs(losses[0] - losses[1]) > 1e-6


def test_these_are_all_options():
    assert set(MGFormer.Config.model_fields) == set(CHANGES)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_heads": 3}, "num_heads: got 3, expected a divisor of dim + rank = 256"),
        ({"dim": 0}, "greater than 0"),
        ({"residual": -1}, "greater than or equal to 0"),
        ({"residual": 0, "attention_weight": 0.5}, "got 0.5, expected 1 with residual = 0"),
        ({"residual": 0, "attention_weight": 0}, "got 0.0, expected 1 with residual = 0"),
        ({"rank": 0}, "sharpness needs encodings with a residual"),
        ({"rank": 0, "normalized": False, "sharpness": None}, "normalized = false needs encodings"),
        ({**ADJACENCY, "features": "elu"}, "positive random features, got elu"),
        ({"features": "relu", "num_heads": 2}, "cannot train heads without encodings"),
        ({"features": "fourier", "num_heads": 2}, "cannot train heads without encodings"),
        ({"mask": "adjacency"}, "key_sample has no use with mask = adjacency"),
        ({"uniformity_weight": 0, "uniformity_t": 1}, "uniformity_t has no use"),
        ({"sharpness": "much"}, "valid number"),
        ({"key_sample": 0}, "greater than 0"),
        ({"attention": "kernel"}, "Extra inputs"),
    ],
)  # fmt: skip
def test_impossible_options_are_refused(options, message):
    with pytest.raises(ValidationError) as caught:
        MGFormer.Config(**options)
    assert message in str(caught.value)


@pytest.mark.parametrize("options", [{"rank": 0, "sharpness": None}, {"rank": 0, "residual": 0}])
def test_encodings_can_be_left_out(options, random_graph):
    model = build(random_graph(20, 13), **options)
    assert model.inputs(everybody(model)).shape == (33, 5)
    assert model.outputs(everybody(model)).shape == (33, 5)


@pytest.mark.parametrize(
    ("sharpness", "key_sample"), list(product((None, "none", 3.0), (None, "none", 50)))
)
def test_none_can_be_written(sharpness, key_sample):
    given = {"name": "mgformer", "sharpness": sharpness, "key_sample": key_sample}
    config = build_config({"model": given})
    assert config.model.sharpness == (3.0 if sharpness == 3.0 else None)
    assert config.model.key_sample == (50 if key_sample == 50 else None)
    assert build_config(tomllib.loads(to_toml(config))) == config
    assert config.to_mapping()["model"]["sharpness"] == (sharpness or "none")
    assert config.to_mapping()["model"]["key_sample"] == (key_sample or "none")
