"""Example users, and what the page tells about the model."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from fastapi.testclient import TestClient

from mgformer.recommend.recommender import Recommender
from mgformer.serving import examples
from mgformer.serving.app import create_app
from mgformer.serving.examples import EXAMPLES, LOOKED_AT, SHOWN, example_users


def test_examples_are_typical_users_with_the_lists_of_the_recommender(
    client: TestClient, recommender: Recommender
) -> None:
    found = client.get("/examples").json()
    assert len({one["user"] for one in found}) == EXAMPLES
    for one in found:
        items = recommender.items_of(one["user"])
        assert one["total"] == len(items) >= examples.FEWEST
        assert one["items"] == items.reverse().head(SHOWN).to_dicts()
        listed = recommender.recommend(one["user"], k=SHOWN).select("item", "name")
        assert one["recommended"] == listed.to_dicts()


def test_examples_have_little_in_common() -> None:
    rows = [
        (user, f"{taste}-{item}")
        for taste in range(5)
        for user in range(40 * taste, 40 * taste + 40)
        for item in range(6)
    ]
    table = pl.DataFrame(rows, schema=["user", "item"], orient="row")
    bundle = Recommender.fit(table, "popularity").bundle
    tastes = {
        str(item.item).partition("-")[0] for one in example_users(bundle) for item in one.items
    }
    assert len(tastes) == 5


def test_the_cost_of_examples_does_not_grow_with_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [(user, (user + step) % 50) for user in range(1_000) for step in range(6)]
    table = pl.DataFrame(rows, schema=["user", "item"], orient="row")
    bundle = Recommender.fit(table, "popularity").bundle
    asked = []
    real = examples.items_of
    monkeypatch.setattr(examples, "items_of", lambda b, user: asked.append(user) or real(b, user))
    assert len(example_users(bundle)) == EXAMPLES
    assert len(asked) == LOOKED_AT
    assert np.ptp(asked) == 999  # from all users, not the first ones


def test_few_users_and_no_histories(recommender: Recommender) -> None:
    table = pl.DataFrame({"user": ["a", "a", "b"], "item": ["x", "y", "x"]})
    bundle = Recommender.fit(table, "popularity").bundle
    assert {str(one.user) for one in example_users(bundle)} == {"a", "b"}
    record = recommender.bundle.record.model_copy(update={"histories": False})
    found = example_users(replace(recommender.bundle, record=record))
    assert (found == []) == (record.model == "ease")  # ease needs the histories


def test_examples_are_refused_if_users_are_not_listed(run: Path) -> None:
    with TestClient(create_app(run, watch_seconds=None, list_users=False)) as client:
        answer = client.get("/examples")
    assert answer.status_code == 403
    assert answer.json() == {"error": "this service does not list users"}


def test_examples_follow_the_bundle(tmp_path: Path) -> None:
    Recommender.fit("demo", "popularity").save(tmp_path / "run")
    with TestClient(create_app(tmp_path / "run", watch_seconds=None)) as client:
        before = client.get("/examples").json()
        assert client.get("/examples").json() == before
        Recommender.fit("demo", "ease").save(tmp_path / "run")
        client.portal.call(client.app.state.models.reload)  # type: ignore[union-attr]
        after = client.get("/examples").json()
    assert [one["user"] for one in after] == [one["user"] for one in before]
    assert [one["recommended"] for one in after] != [one["recommended"] for one in before]


def test_the_card_has_what_the_page_draws(client: TestClient, recommender: Recommender) -> None:
    card = client.get("/model").json()
    record, bundle = recommender.bundle.record, recommender.bundle
    assert card["groups"] == record.groups
    assert card["num_pairs"] == bundle.known.nnz
    assert card["max_k"] == 1_000
    assert card["about"]
    assert card["curve"] == []
