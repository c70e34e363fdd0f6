"""What a report computes from a trained recommender, against slow references."""

import numpy as np
import polars as pl
import pytest
import torch

from mgformer.data.dataset import read_dataset
from mgformer.experiments.report import lists
from mgformer.experiments.report.one_run import principal_plane
from mgformer.ranking.evaluation import popularity_groups
from mgformer.runs.config import build_config
from mgformer.runs.train import train
from tests.models.test_mgformer_insides import fitted


@pytest.mark.parametrize("kind", ["ratio", "users"])
def test_lists_are_those_of_the_test(kind: str) -> None:
    bundle = fitted("ease", split={"kind": kind})
    users = lists.audience(bundle)
    assert bundle.per_user is not None
    assert bundle.users.decode(users).to_list() == bundle.per_user["user"].to_list()
    listed = lists.lists_for(bundle, users).items
    recall = []
    for user, items in zip(users, listed, strict=True):
        held_out = set(bundle.test.indices[bundle.test.indptr[user] : bundle.test.indptr[user + 1]])
        recall.append(len(held_out & set(items.tolist())) / len(held_out))
    assert recall == pytest.approx(bundle.per_user["recall@20"].to_list())


def test_users_without_known_items_are_no_examples() -> None:
    early = [(f"u{u}", f"i{(u + n) % 9}", 10 * u + n) for u in range(12) for n in range(5)]
    late = [(f"u{u}", f"i{(u + n) % 9}", 1000 + n) for u in (0, 1, 90, 91) for n in (6, 7)]
    table = pl.DataFrame(early + late, schema=["user", "item", "time"], orient="row")
    options = {"model": {"name": "itemknn"}, "split": {"kind": "time", "test": 0.1}}
    bundle = train(build_config({"dataset": "late", **options}), read_dataset(table))
    users = bundle.users.decode(lists.audience(bundle)).to_list()
    assert bundle.per_user is not None
    assert users == bundle.per_user["user"].to_list() == ["u0", "u1"]
    assert all(len(person.history) for person in lists.example_users(bundle))
    assert sum(lists.best_recall(bundle).values()) == pytest.approx(1)


def test_long_tail_matches_a_count_by_hand() -> None:
    bundle = fitted("ease")
    tail = lists.long_tail(bundle)
    assert tail is not None
    listed = lists.lists_for(bundle, lists.audience(bundle)).items
    degrees = bundle.item_degrees
    order = sorted(range(30), key=lambda item: (-degrees[item], item))
    for share, trained, places in zip(tail.items, tail.trained, tail.recommended, strict=True):
        top = order[: round(share * 30)]
        assert trained == pytest.approx(sum(degrees[top]) / len(bundle.train))
        assert places == pytest.approx(np.isin(listed, top).sum() / (listed >= 0).sum())
    assert tail.items[0] == tail.recommended[0] == 0
    assert tail.items[-1] == tail.recommended[-1] == pytest.approx(1)
    assert tail.coverage == len(set(listed[listed >= 0].tolist())) / 30
    assert np.sum(list(tail.groups.values()), axis=0) == pytest.approx([1, 1, 1])
    assert tail.groups["popular"][0] == pytest.approx(np.mean(popularity_groups(degrees) == 2))


def test_no_group_has_more_than_its_best_recall() -> None:
    bundle = fitted("ease")
    reach = lists.best_recall(bundle)
    assert sum(reach.values()) == pytest.approx(1)
    for name, most in reach.items():
        assert bundle.record.groups[name]["recall@50"] == pytest.approx(most)  # all items ranked
        assert bundle.record.groups[name]["recall@10"] <= most


def test_principal_plane_matches_a_singular_value_decomposition(rng: np.random.Generator) -> None:
    rows = rng.standard_normal((50, 7)) * np.arange(1, 8)
    plane, shares = principal_plane(torch.from_numpy(rows))
    left, values, _ = np.linalg.svd(rows - rows.mean(0), full_matrices=False)
    np.testing.assert_allclose(np.abs(plane), np.abs(left[:, :2] * values[:2]), atol=1e-9)
    assert shares == pytest.approx((values[:2] ** 2 / (values**2).sum()).tolist())


def test_example_users_are_sorted_by_history_length() -> None:
    bundle = fitted("ease")
    people = lists.example_users(bundle)
    assert len(people) == 4
    lengths = [len(person.history) for person in people]
    assert lengths == sorted(lengths)
    for person in people:
        assert not set(person.items.tolist()) & set(person.history.tolist())
        assert isinstance(bundle.users.values[person.user], int)
    again = lists.example_users(bundle)
    assert [p.items.tolist() for p in again] == [p.items.tolist() for p in people]
