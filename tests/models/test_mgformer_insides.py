"""What MGFormer shows of its attention, against direct computation."""

from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import polars as pl
import pytest
import torch
from torch import Tensor

from mgformer.graph.bipartite import Graph
from mgformer.models.bprmf import BPRMF
from mgformer.models.insides import NodeRanking, Plot
from mgformer.models.mgformer import insides
from mgformer.models.mgformer.layers import KernelAttention
from mgformer.models.mgformer.model import MGFormer
from mgformer.models.mgformer.structural import LandmarkAttention, NeighborAttention
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
        options = {"dim": 6, "rank": 6, "num_neighbors": 5, **options}
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
        {"attention": "kernel", "mask": "sine"},
        {"attention": "landmarks", "num_landmarks": 9, "active_landmarks": 3},
        {"attention": "landmarks", "num_landmarks": 9, "split": {"refit": True}},
    ],
    ids=["kernel", "landmarks", "refit"],
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
@pytest.mark.parametrize("heads", [1, 2])
def test_kernel_prototypes_mix_to_what_the_layer_attends_to(mask: str, heads: int) -> None:
    model, _, _ = rebuilt(fitted(attention="kernel", mask=mask, num_heads=heads))
    layer, everybody = cast(KernelAttention, model.layers[0]), torch.arange(model.num_nodes)
    with torch.no_grad():
        # All shares, so that they can be multiplied out; in several blocks.
        found = insides.kernel_prototypes(model, layer, named=70, block_entries=200)
        x = model.inputs(everybody)
        mean = layer(x, everybody, everybody, everybody).mean(0)
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


def test_landmark_prototypes_mix_to_what_the_layer_attends_to() -> None:
    options = {"attention": "landmarks", "num_landmarks": 9, "active_landmarks": 3}
    model, _, _ = rebuilt(fitted(**options))
    layer, everybody = cast(LandmarkAttention, model.layers[0]), torch.arange(model.num_nodes)
    with torch.no_grad():
        found = insides.landmark_prototypes(model, layer, named=70)
        x = model.inputs(everybody)
        mean = layer(x, everybody, everybody, everybody).mean(0)
    mixed = dense(found, model.num_nodes) @ found.read @ x.double().numpy()
    np.testing.assert_allclose(mixed, mean.numpy(), atol=1e-5)
    assert mean.abs().max() > 1e-2


def dense(found: insides.Prototypes, num_nodes: int) -> np.ndarray:
    """Shares [N, R] of all nodes in all prototypes."""
    shares = np.zeros((num_nodes, len(found.read)))
    np.put_along_axis(shares, found.nodes.T, found.shares.T, axis=0)
    return shares


@pytest.mark.parametrize("mask", ["none", "sine"])
def test_neighbor_weights_by_rank_match_a_loop_over_nodes(mask: str) -> None:
    model, _, _ = rebuilt(fitted(mask=mask, num_heads=2))
    layer = cast(NeighborAttention, model.layers[0])
    with torch.no_grad():
        found = insides.neighborhoods(model, layer)
    for side, nodes in (
        ("users", range(model.num_users)),
        ("items", range(model.num_users, model.num_nodes)),
    ):
        to_users, to_items, effective = np.zeros(5), np.zeros(5), 0.0
        for node in nodes:
            with torch.no_grad():
                weights = layer.weights(torch.tensor([node]))[0].mean(0)
            pairs = zip(weights.tolist(), layer.neighbors[node].tolist(), strict=True)
            for rank, (weight, neighbor) in enumerate(sorted(pairs)[::-1]):
                (to_users if neighbor < model.num_users else to_items)[rank] += weight / len(nodes)
            effective += np.exp(-sum(w * np.log(w) for w in weights.tolist() if w)) / len(nodes)
        np.testing.assert_allclose(found[side].to_users, to_users, atol=1e-6)
        np.testing.assert_allclose(found[side].to_items, to_items, atol=1e-6)
        assert found[side].effective == pytest.approx(effective, rel=1e-5)
        assert to_users.sum() > 0.01
        assert to_items.sum() > 0.01
    with torch.no_grad():
        nodes, weights = insides.strongest_neighbors(layer, 3)
    assert weights.sum() == pytest.approx(1)
    assert sorted(nodes) == sorted(layer.neighbors[3].tolist())
    assert (np.diff(weights) <= 0).all()


def test_the_mask_of_a_degree_is_that_of_its_nodes() -> None:
    model, graph, before = rebuilt(fitted(mask="sine"))
    (mask,) = insides.degree_masks(model, graph, before)
    degrees = np.concatenate([graph.user_degrees, graph.item_degrees])
    layer = cast(NeighborAttention, model.layers[0])
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
        ({}, ["What users attend to", "What items attend to"]),
        ({"attention": "landmarks", "num_landmarks": 9}, ["Prototypes"]),
        ({"attention": "kernel"}, ["Prototypes"]),
        ({"attention": "kernel", "mask": "sine"}, ["Prototypes", "Degree mask"]),
        ({"attention": "softmax", "mask": "sine"}, ["Degree mask"]),
        ({"attention": "none"}, []),
        ({"attention": "softmax"}, []),
        ({"attention": "kernel", "features": "elu"}, []),
        ({"attention": "kernel", "mask": "adjacency"}, []),
    ],
    ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, dict) else None,
)
def test_insides_are_those_of_the_form_of_attention(
    options: dict[str, Any], titles: list[str]
) -> None:
    model, graph, before = rebuilt(fitted(**options))
    found = model.insides(graph, before)
    assert [inside.title for inside in found if isinstance(inside, Plot)] == titles
    rankings = [inside for inside in found if isinstance(inside, NodeRanking)]
    assert bool(rankings) == (titles not in ([], ["Degree mask"]))
    for ranking in rankings:
        assert ((ranking.nodes >= 0) & (ranking.nodes < model.num_nodes)).all()
        assert (np.diff(ranking.weights) <= 0).all()


@pytest.mark.parametrize(
    ("options", "shown"),
    [({}, True), ({"attention": "landmarks", "num_landmarks": 9}, True), ({"mask": "sine"}, False)],
    ids=["neighbors", "landmarks", "mask"],
)
def test_without_trained_weights_a_model_shows_only_what_training_does_not_change(
    options: dict[str, Any], shown: bool
) -> None:
    bundle = fitted(**options)
    model = untrained_model(bundle)
    assert bool(model.insides(Graph(bundle.train.matrix), None)) == shown


def test_a_model_shows_nothing_by_default() -> None:
    graph = Graph(fitted("ease").train.matrix)
    model = BPRMF(BPRMF.Config(dim=4), graph, np.random.default_rng(0))
    assert model.insides(graph, {}) == []
