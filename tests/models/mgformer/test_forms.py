"""Every form of MGFormer against all its layers written out with dense matrices [N, N]."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from mgformer.models.mgformer.layers import KernelAttention
from mgformer.models.mgformer.model import MGFormer
from mgformer.nn import naive_attention as naive
from tests.graph.oracles_graph import normalized_adjacency
from tests.models.mgformer.test_model import FORMS, build, everybody

EVERY_FORM = {
    **FORMS,
    "relu": {"attention": "kernel", "features": "relu", "mask": "sine"},
    "focused": {"attention": "kernel", "features": "focused"},
    "iid": {"attention": "kernel", "features": "iid"},
    "four neighbor heads": {"attention": "neighbors", "num_heads": 4, "attention_weight": 0.3},
    "two masked layers": {"attention": "neighbors", "mask": "sine", "num_layers": 2},
    "three layers": {"attention": "neighbors", "num_layers": 3, "local_weight": 0.2},
    "two centered layers": {"attention": "softmax", "centered": True, "num_layers": 2},
}


def features(model: MGFormer, x: Tensor, head: int, layer: KernelAttention) -> Tensor:
    """φ(x) [N, R] of the rows of a head, by the formula of each map."""
    kind = model.config.features
    projection = layer.projections[head] if layer.projections is not None else None
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


def sines(layer, count: int) -> Tensor:
    angles = layer.angles(torch.arange(count))
    return naive.sine_weights(angles, angles)


def weights_of_head(model: MGFormer, layer, x: Tensor, head: int, graph) -> Tensor:
    """Return the weights [N, N] of all pairs before rows are scaled to sum one."""
    config, count = model.config, model.num_nodes
    if config.attention == "none":
        return torch.zeros(count, count).double()
    if config.attention == "landmarks":
        phi = torch.from_numpy(layer.features.toarray()).double()
        return phi / phi.sum(0).clamp_min(1e-30) @ phi.T
    if config.attention == "neighbors":
        unit = torch.nn.functional.normalize(model.encodings)
        cosines = (unit @ unit.T).fill_diagonal_(-9)
        near = torch.zeros(count, count).double()
        near.scatter_(1, cosines.topk(config.num_neighbors).indices, 1.0)
        near *= unit.any(1)[:, None]
        spread = head / (config.num_heads - 1) - 0.5 if config.num_heads > 1 else 0.0
        weights = near * (config.sharpness * 4**spread * cosines).exp()
        return weights * sines(layer, count) if config.mask == "sine" else weights
    width = x.shape[1] // config.num_heads
    own = slice(head * width, (head + 1) * width)
    queries, keys = ((x @ w)[:, own] * width**-0.25 for w in (layer.w_query, layer.w_key))
    if config.attention == "softmax":
        weights = (queries @ keys.T).exp()
    else:
        weights = features(model, queries, head, layer) @ features(model, keys, head, layer).T
    if config.mask == "sine":
        weights = weights * sines(layer, count)
    if config.mask == "adjacency":
        weights = weights * (torch.from_numpy(graph.adjacency.toarray()) > 0)
    return weights


def written_out(model: MGFormer, graph) -> Tensor:
    """Return h [N, m], layer by layer and head by head."""
    config = model.config
    x = torch.cat([model.tokens, config.encoding_scale * model.encodings], dim=1)
    local = torch.from_numpy(normalized_adjacency(graph.interactions.toarray()))
    for layer in model.layers or [None] * config.num_layers:
        width = x.shape[1] // config.num_heads
        heads = [
            naive.weighted_means(
                weights_of_head(model, layer, x, head, graph),
                x[:, head * width : (head + 1) * width],
            )
            for head in range(config.num_heads)
        ]
        attended = torch.cat(heads, dim=1)
        if config.residual == "none":
            x = attended
            continue
        if config.centered:
            attended = attended - x.mean(0)
        x = x + config.attention_weight * attended + config.local_weight * local @ x
    return x


@pytest.mark.parametrize("form", EVERY_FORM)
def test_every_form_is_its_formula_with_gradients(form, random_graph, monkeypatch):
    monkeypatch.setitem(FORMS, form, EVERY_FORM[form])
    graph = random_graph(11, 8, isolated=form not in ("landmarks", "paper"))
    model = build(graph, form)
    pull = torch.from_numpy(np.random.default_rng(5).standard_normal((19, 8)))
    trained = dict(model.named_parameters())
    gradients = []
    for h in (model.outputs(everybody(model)), written_out(model, graph)):
        loss = (h * pull).sum()
        found = torch.autograd.grad(loss, list(trained.values()), allow_unused=True)
        gradients.append((h.detach(), dict(zip(trained, found, strict=True))))
    (fast, of_fast), (slow, of_slow) = gradients
    # Weights of structural forms are float32; all else is double.
    torch.testing.assert_close(fast, slow, rtol=1e-5, atol=1e-6)
    for name, gradient in of_slow.items():
        if gradient is None:
            assert of_fast[name] is None or not of_fast[name].any(), name
        else:
            torch.testing.assert_close(of_fast[name], gradient, rtol=1e-4, atol=1e-6, msg=name)
