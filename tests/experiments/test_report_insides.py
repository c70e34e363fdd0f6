"""What a report computes itself, beside slow references: lists, attention, the map."""

from typing import Any, cast

import numpy as np
import polars as pl
import pytest
import torch

from mgformer.experiments.report import attention, shown
from mgformer.experiments.report.attention_section import binned
from mgformer.experiments.report.inside import principal_plane
from mgformer.models.mgformer.layers import KernelAttention
from mgformer.models.mgformer.model import MGFormer
from mgformer.models.mgformer.structural import LandmarkAttention, NeighborAttention
from mgformer.ranking.evaluation import popularity_groups
from mgformer.ranking.score import rescored
from mgformer.ranking.scorers import DotScorer
from mgformer.recommend.recommender import Recommender
from mgformer.runs.bundle import Bundle
from mgformer.runs.train import untrained_model


def fitted(
    model: str = "mgformer", *, split: dict[str, Any] | None = None, **options: Any
) -> Bundle:
    """A bundle of forty people and thirty things, of which the first are popular."""
    rng = np.random.default_rng(7)
    users, items = np.nonzero(rng.random((40, 30)) < np.linspace(0.7, 0.08, 30))
    pairs = pl.DataFrame({"user": users, "item": items})
    if model == "mgformer":
        options = {"dim": 6, "rank": 6, "num_neighbors": 5, **options}
    sections = {"train": {"epochs": 3, "batch_size": 64}} if model == "mgformer" else {}
    return Recommender.fit(pairs, model, options=options, split=split or {}, **sections).bundle


@pytest.mark.parametrize(
    "options",
    [
        {"attention": "kernel", "mask": "sine"},
        {"attention": "landmarks", "num_landmarks": 9, "active_landmarks": 3},
        {"attention": "landmarks", "num_landmarks": 9, "split": {"refit": True}},
    ],
    ids=["kernel", "landmarks", "refit"],
)
def test_a_model_built_anew_with_its_weights_is_the_one_that_was_saved(options) -> None:
    bundle = fitted(**options)
    model = untrained_model(bundle)
    assert any((value != bundle.weights[name]).any() for name, value in model.state_dict().items())
    model.load_state_dict(dict(bundle.weights))
    record, degrees = bundle.record, torch.from_numpy(bundle.item_degrees)
    again = rescored(model.eval().scorer(), record["score"], record["gamma"], degrees)
    saved = cast(DotScorer, bundle.scorer)
    assert torch.equal(again.users, saved.users)
    assert torch.equal(again.items, saved.items)


def insight_of(bundle: Bundle) -> attention.Insight:
    found = attention.look_into(bundle)
    assert found is not None
    return found


@pytest.mark.parametrize("mask", ["none", "sine"])
@pytest.mark.parametrize("heads", [1, 2])
def test_prototypes_of_the_kernel_mix_to_what_the_layer_attends_to(
    mask: str, heads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "NAMED", 70)  # all shares, so that they can be multiplied out
    monkeypatch.setattr("mgformer.graph.sparse.BLOCK_ENTRIES", 200)  # in several blocks
    insight = insight_of(fitted(attention="kernel", mask=mask, num_heads=heads))
    model, found = insight.model, insight.prototypes
    assert found is not None
    everybody = torch.arange(model.num_nodes)
    layer = cast(KernelAttention, model.layers[0])
    with torch.no_grad():
        x = model.inputs(everybody)
        mean = layer(x, everybody, everybody, everybody).mean(0)
    shares = dense(found, model.num_nodes)
    assert shares.sum(0) == pytest.approx(np.ones(shares.shape[1]), abs=1e-6)
    assert found.read.sum() == pytest.approx(heads)
    # Attention averaged over queries is what prototypes hold, weighted by how much they are read.
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
    np.testing.assert_allclose(found.holds, np.exp(entropy), rtol=1e-6)
    np.testing.assert_allclose(found.of_items, shares[model.num_users :].sum(0), rtol=1e-6)


def test_prototypes_of_landmarks_mix_to_what_the_layer_attends_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(attention, "NAMED", 70)
    bundle = fitted(attention="landmarks", num_landmarks=9, active_landmarks=3)
    insight = insight_of(bundle)
    model, found = insight.model, insight.prototypes
    assert found is not None
    everybody = torch.arange(model.num_nodes)
    layer = cast(LandmarkAttention, model.layers[0])
    with torch.no_grad():
        x = model.inputs(everybody)
        mean = layer(x, everybody, everybody, everybody).mean(0)
    mixed = dense(found, model.num_nodes) @ found.read @ x.double().numpy()
    np.testing.assert_allclose(mixed, mean.numpy(), atol=1e-5)
    assert mean.abs().max() > 1e-2


def dense(found: attention.Prototypes, num_nodes: int) -> np.ndarray:
    """Shares [N, R] of all nodes in all prototypes."""
    shares = np.zeros((num_nodes, len(found.read)))
    np.put_along_axis(shares, found.nodes.T, found.shares.T, axis=0)
    return shares


@pytest.mark.parametrize("mask", ["none", "sine"])
def test_weights_of_neighbours_by_rank_and_kind(mask: str) -> None:
    insight = insight_of(fitted(mask=mask, num_heads=2))
    model, found = insight.model, insight.neighborhoods
    assert found is not None
    layer = cast(NeighborAttention, model.layers[0])
    for who, nodes in (
        ("users", range(model.num_users)),
        ("items", range(model.num_users, model.num_nodes)),
    ):
        to_users, to_items = np.zeros(5), np.zeros(5)
        for node in nodes:
            with torch.no_grad():
                weights = layer.weights(torch.tensor([node]))[0].mean(0)
            ranked = sorted(zip(weights.tolist(), layer.neighbors[node].tolist(), strict=True))[
                ::-1
            ]
            for rank, (weight, neighbor) in enumerate(ranked):
                (to_users if neighbor < model.num_users else to_items)[rank] += weight / len(nodes)
        np.testing.assert_allclose(found.to_users[who], to_users, atol=1e-6)
        np.testing.assert_allclose(found.to_items[who], to_items, atol=1e-6)
        assert to_users.sum() > 0.01
        assert to_items.sum() > 0.01
    nodes, weights = attention.neighbors_of(model, 3)
    assert weights.sum() == pytest.approx(1)
    assert sorted(nodes) == sorted(layer.neighbors[3].tolist())
    assert (np.diff(weights) <= 0).all()


def test_the_mask_of_a_degree_is_that_of_its_nodes() -> None:
    bundle = fitted(mask="sine")
    insight = insight_of(bundle)
    (mask,) = insight.masks
    degrees = np.concatenate([np.diff(bundle.train.indptr), bundle.item_degrees])
    layer = cast(NeighborAttention, insight.model.layers[0])
    assert layer.angles is not None
    with torch.no_grad():
        z = layer.angles(torch.arange(len(degrees))).numpy() / (np.pi / 4)
    for degree, value, count in zip(mask.degrees, mask.z, mask.num_nodes, strict=True):
        assert z[degrees == degree] == pytest.approx(value, abs=1e-6)
        assert count == (degrees == degree).sum()
    assert np.abs(mask.z - mask.z_before).max() > 1e-3  # training has moved it


def test_near_degrees_are_averaged_by_their_nodes() -> None:
    x, z = binned(np.array([1, 2, 50, 51]), np.array([0.1, 0.4, 0.2, 0.8]), np.array([9, 1, 3, 1]))
    assert x == pytest.approx([1, 2, 50.25])
    assert z == pytest.approx([0.1, 0.4, 0.35])


@pytest.mark.parametrize(
    "options",
    [
        {"attention": "none"},
        {"attention": "softmax"},
        {"attention": "kernel", "features": "elu"},
        {"attention": "kernel", "mask": "adjacency"},
    ],
)
def test_attention_that_has_no_picture_is_left_out(options: dict[str, Any]) -> None:
    assert attention.look_into(fitted(**options)) is None


@pytest.mark.parametrize("kind", ["ratio", "users"])
def test_lists_of_a_sample_are_those_of_the_test(kind: str) -> None:
    bundle = fitted("ease", split={"kind": kind})
    users = shown.audience(bundle)
    assert bundle.per_user is not None
    assert bundle.users.decode(users).to_list() == bundle.per_user["user"].to_list()
    listed = shown.lists_for(bundle, users).items
    recall = []
    for user, items in zip(users, listed, strict=True):
        held_out = set(bundle.test.indices[bundle.test.indptr[user] : bundle.test.indptr[user + 1]])
        recall.append(len(held_out & set(items.tolist())) / len(held_out))
    assert recall == pytest.approx(bundle.per_user["recall@20"].to_list())


def test_the_long_tail_is_counted_as_by_hand() -> None:
    bundle = fitted("ease")
    tail = shown.long_tail(bundle)
    assert tail is not None
    listed = shown.lists_for(bundle, shown.audience(bundle)).items
    degrees = bundle.item_degrees
    order = sorted(range(30), key=lambda item: (-degrees[item], item))
    for share, trained, places in zip(tail.items, tail.trained, tail.shown, strict=True):
        top = order[: round(share * 30)]
        assert trained == pytest.approx(sum(degrees[top]) / len(bundle.train))
        assert places == pytest.approx(np.isin(listed, top).sum() / (listed >= 0).sum())
    assert tail.items[0] == tail.shown[0] == 0
    assert tail.items[-1] == tail.shown[-1] == pytest.approx(1)
    assert tail.coverage == len(set(listed[listed >= 0].tolist())) / 30
    assert np.sum(list(tail.groups.values()), axis=0) == pytest.approx([1, 1, 1])
    assert tail.groups["popular"][0] == pytest.approx(np.mean(popularity_groups(degrees) == 2))


def test_groups_never_reach_more_than_is_held_out_of_them() -> None:
    bundle = fitted("ease")
    reach = shown.within_reach(bundle)
    assert sum(reach.values()) == pytest.approx(1)
    for name, most in reach.items():
        assert bundle.record.groups[name]["recall@50"] == pytest.approx(most)  # all items ranked
        assert bundle.record.groups[name]["recall@10"] <= most


def test_the_plane_is_that_of_a_singular_value_decomposition(rng: np.random.Generator) -> None:
    rows = rng.standard_normal((50, 7)) * np.arange(1, 8)
    plane, shares = principal_plane(torch.from_numpy(rows))
    left, values, _ = np.linalg.svd(rows - rows.mean(0), full_matrices=False)
    np.testing.assert_allclose(np.abs(plane), np.abs(left[:, :2] * values[:2]), atol=1e-9)
    assert shares == pytest.approx((values[:2] ** 2 / (values**2).sum()).tolist())


def test_examples_go_from_short_histories_to_long_ones() -> None:
    bundle = fitted("ease")
    people = shown.examples(bundle)
    assert len(people) == 4
    lengths = [len(person.history) for person in people]
    assert lengths == sorted(lengths)
    for person in people:
        assert not set(person.items.tolist()) & set(person.history.tolist())
        assert isinstance(bundle.users.values[person.user], int)
    again = shown.examples(bundle)
    assert [p.items.tolist() for p in again] == [p.items.tolist() for p in people]


def test_only_mgformer_is_looked_into() -> None:
    assert attention.look_into(fitted("ease")) is None
    assert isinstance(insight_of(fitted()).model, MGFormer)
