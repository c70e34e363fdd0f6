"""What MGFormer shows of its attention, against direct computation."""

from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import polars as pl
import pytest
import torch
from torch import Tensor

from mgformer.graph.bipartite import Graph
from mgformer.models import mgformer_insides as insides
from mgformer.models.bprmf import BPRMF
from mgformer.models.insides import NodeRanking, Plot
from mgformer.models.mgformer import KernelAttention, MGFormer
from mgformer.ranking.score import rescored
from mgformer.ranking.scorers import DotScorer
from mgformer.recommend.recommender import Recommender
from mgformer.runs.bundle import Bundle
from mgformer.runs.train import untrained_model


def fitted(
    model: str = "mgformer", *, split: dict[str, Any] | None = None, **options: Any
) -> Bundle:
    """A bundle of 40 users and 30 items, the first of which are popular."""
    rng = np.random.default_rng(7)
    users, items = np.nonzero(rng.random((40, 30)) < np.linspace(0.7, 0.08, 30))
    pairs = pl.DataFrame({"user": users, "item": items})
    if model == "mgformer":
        options = {"dim": 6, "rank": 6, "key_sample": 20, **options}
    sections = {"train": {"epochs": 3, "batch_size": 64}} if model == "mgformer" else {}
    return Recommender.fit(pairs, model, options=options, split=split or {}, **sections).bundle


def rebuilt(bundle: Bundle) -> tuple[MGFormer, Graph, Mapping[str, Tensor]]:
    """The trained model of a bundle, its graph, and its weights before training."""
    model = cast(MGFormer, untrained_model(bundle))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    model.load_state_dict(dict(bundle.weights))
    return model.eval(), Graph(bundle.train.matrix), before


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"residual": 0, "num_heads": 3},
        {"attention_weight": 0},
        {"split": {"refit": True}},
    ],
    ids=["default", "mixed heads", "attention off", "refit"],
)
def test_a_model_rebuilt_with_its_weights_is_the_one_that_was_saved(
    options: dict[str, Any],
) -> None:
    bundle = fitted(**options)
    model, _, before = rebuilt(bundle)
    assert any((value != bundle.weights[name]).any() for name, value in before.items())
    record, degrees = bundle.record, torch.from_numpy(bundle.item_degrees)
    again = rescored(model.scorer(), record.score, record.gamma, degrees)
    saved = cast(DotScorer, bundle.scorer)
    assert torch.equal(again.users, saved.users)
    assert torch.equal(again.items, saved.items)


@pytest.mark.parametrize("mask", ["none", "sine"])
@pytest.mark.parametrize(("heads", "residual"), [(1, 1), (2, 1), (2, 0)])
def test_prototypes_mix_to_what_the_layer_attends_to(mask: str, heads: int, residual: int) -> None:
    model, _, _ = rebuilt(fitted(mask=mask, num_heads=heads, residual=residual))
    layer, everybody = cast(KernelAttention, model.layers[0]), torch.arange(model.num_nodes)
    with torch.no_grad():
        # All shares, so that they can be multiplied out; in several blocks.
        found = insides.kernel_prototypes(model, layer, named=70, block_entries=200)
        x = model.inputs(everybody)
        mean = layer(x, everybody, x, everybody).mean(0)
    shares = dense(found, model.num_nodes)
    assert shares.sum(0) == pytest.approx(np.ones(shares.shape[1]), abs=1e-6)
    assert found.read.sum() == pytest.approx(heads)
    # Attention averaged over queries is what the prototypes hold, weighted by how they are read.
    width = len(found.read) // heads
    parts = [
        (shares[:, part] @ found.read[part]) @ values.double().numpy()
        for part, values in zip(
            (slice(h * width, (h + 1) * width) for h in range(heads)),
            x.chunk(heads, 1),
            strict=True,
        )
    ]
    np.testing.assert_allclose(np.concatenate(parts), mean.numpy(), atol=1e-5)
    assert mean.abs().max() > 1e-2
    entropy = -(shares * np.log(np.where(shares > 0, shares, 1))).sum(0)
    np.testing.assert_allclose(found.size, np.exp(entropy), rtol=1e-6)
    np.testing.assert_allclose(found.of_items, shares[model.num_users :].sum(0), rtol=1e-6)


def dense(found: insides.Prototypes, num_nodes: int) -> np.ndarray:
    """Shares [N, R] of all nodes in all prototypes."""
    shares = np.zeros((num_nodes, len(found.read)))
    np.put_along_axis(shares, found.nodes.T, found.shares.T, axis=0)
    return shares


def test_the_mask_of_a_degree_is_that_of_its_nodes() -> None:
    model, graph, before = rebuilt(fitted())
    (mask,) = insides.degree_masks(model, graph, before)
    degrees = np.concatenate([graph.user_degrees, graph.item_degrees])
    layer = cast(KernelAttention, model.layers[0])
    assert layer.angles is not None
    with torch.no_grad():
        z = layer.angles(torch.arange(len(degrees))).numpy() / (np.pi / 4)
    for degree, value, count in zip(mask.degrees, mask.after, mask.num_nodes, strict=True):
        assert z[degrees == degree] == pytest.approx(value, abs=1e-6)
        assert count == (degrees == degree).sum()
    assert np.abs(mask.after - mask.before).max() > 1e-3  # training has moved it


def test_similar_degrees_are_averaged_over_their_nodes() -> None:
    degrees, z = np.array([0, 1, 2, 50, 51]), np.array([0.9, 0.1, 0.4, 0.2, 0.8])
    x, y = insides.binned(degrees, z, np.array([7, 9, 1, 3, 1]))
    assert x == pytest.approx([1, 2, 50.25])
    assert y == pytest.approx([0.1, 0.4, 0.35])


@pytest.mark.parametrize(
    ("options", "titles"),
    [
        ({}, ["Prototypes", "Degree mask"]),
        ({"num_layers": 2, "features": "iid"}, ["Prototypes", "Degree mask"]),
        ({"mask": "none"}, ["Prototypes"]),
        ({"features": "elu"}, ["Degree mask"]),
        ({"features": "elu", "mask": "none"}, []),
        ({"mask": "adjacency", "key_sample": None}, []),
        ({"attention_weight": 0}, []),
    ],
    ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, dict) else None,
)
def test_insides_are_those_of_the_features_and_the_mask(
    options: dict[str, Any], titles: list[str]
) -> None:
    model, graph, before = rebuilt(fitted(**options))
    found = model.insides(graph, before)
    assert [inside.title for inside in found if isinstance(inside, Plot)] == titles
    rankings = [inside for inside in found if isinstance(inside, NodeRanking)]
    assert bool(rankings) == ("Prototypes" in titles)
    for ranking in rankings:
        assert ((ranking.nodes >= 0) & (ranking.nodes < model.num_nodes)).all()
        assert (np.diff(ranking.weights) <= 0).all()


def test_without_trained_weights_a_model_shows_nothing() -> None:
    bundle = fitted()
    graph = Graph(bundle.train.matrix)
    assert untrained_model(bundle).insides(graph, None) == []
    assert untrained_model(bundle).insides(graph, bundle.weights) != []


def test_a_model_shows_nothing_by_default() -> None:
    graph = Graph(fitted("ease").train.matrix)
    model = BPRMF(BPRMF.Config(dim=4), graph, np.random.default_rng(0))
    assert model.insides(graph, {}) == []
