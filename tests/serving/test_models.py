"""Several models in one service: who answers, shares of the traffic, reloads."""

import json
import logging
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from mgformer.errors import ConfigError
from mgformer.recommend.recommender import Recommender
from mgformer.serving.app import create_app
from mgformer.serving.models import Models
from mgformer.serving.monitoring import Metrics
from tests.command import assert_one_line, mgformer
from tests.serving.running import LOCAL, samples

NAMES = "ease", "knn"
HEADER = "x-mgformer-model"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("models")
    for name, model in zip(NAMES, ("ease", "itemknn"), strict=True):
        Recommender.fit("demo", model).save(place / name)
    return {name: place / name for name in NAMES}


@pytest.fixture(scope="module")
def recommenders(folders: dict[str, Path]) -> dict[str, Recommender]:
    return {name: Recommender.load(folder) for name, folder in folders.items()}


@pytest.fixture(scope="module")
def split(folders: dict[str, Path]) -> Iterator[TestClient]:
    """A client of a service that divides its users."""
    app = create_app(folders, shares={"ease": 0.7, "knn": 0.3}, watch_seconds=None)
    with TestClient(app, client=LOCAL) as client:
        yield client


def items(answer: dict) -> list[str]:
    return [item["item"] for item in answer["items"]]


def test_models_are_listed(split: TestClient, recommenders: dict[str, Recommender]) -> None:
    listed = split.get("/models").json()
    assert [(one["name"], one["model"], one["share"], one["default"]) for one in listed] == [
        ("ease", "ease", 0.7, True),
        ("knn", "itemknn", 0.3, False),
    ]
    assert {one["dataset"] for one in listed} == {"demo"}
    described = [split.get("/model", params={"model": one["name"]}).json() for one in listed]
    assert [one["bundle"] for one in listed] == [one["bundle"] for one in described]
    assert [one["model"] for one in described] == ["ease", "itemknn"]


@pytest.mark.parametrize("name", NAMES)
def test_a_request_can_name_its_model(
    name: str, split: TestClient, recommenders: dict[str, Recommender]
) -> None:
    named, own = {"model": name}, recommenders[name]
    users = own.bundle.users.values[:9].to_list()
    expected = [[item.item for item in answer.items] for answer in own.answers(users, 5)]
    for user, mine in zip(users, expected, strict=True):
        answered = split.post("/recommend", params=named, json={"user": user, "k": 5})
        assert items(answered.json()) == mine
        assert answered.headers[HEADER] == name
    answered = split.post("/recommend/batch", params=named, json={"users": users, "k": 5})
    assert [items(answer) for answer in answered.json()] == expected
    assert answered.headers[HEADER] == name
    similar = split.post("/similar", params=named, json={"item": "jazz-03", "k": 4})
    assert [row["item"] for row in similar.json()] == own.similar_items("jazz-03", 4)[
        "item"
    ].to_list()
    for path in ("/items", "/users", f"/users/{users[0]}", "/model"):
        assert split.get(path, params=named).headers[HEADER] == name


def test_an_unknown_model_gets_a_404_with_the_names(split: TestClient) -> None:
    bodies = {
        "/recommend": {"history": []},
        "/recommend/batch": {"users": ["a"]},
        "/similar": {"item": "jazz-03"},
        "/admin/reload": None,
    }
    answers = [split.post(path, params={"model": "eas"}, json=bodies[path]) for path in bodies]
    paths = ("/items", "/users", "/users/a", "/model")
    answers += [split.get(path, params={"model": "eas"}) for path in paths]
    for answered in answers:
        message = "unknown model 'eas': this service has ease, knn; did you mean ease?"
        assert (answered.status_code, answered.json()) == (404, {"error": message})
        assert HEADER not in answered.headers


def test_a_user_keeps_the_model_and_shares_are_kept(
    split: TestClient, recommenders: dict[str, Recommender]
) -> None:
    models: Models = split.app.state.models  # type: ignore[attr-defined]
    arms = {user: models.of_user(user).name for user in range(20_000)}
    # Five standard deviations of a binomial count.
    assert abs(Counter(arms.values())["knn"] - 6_000) < 5 * (20_000 * 0.3 * 0.7) ** 0.5
    assert all(models.of_user(str(user)).name == arms[user] for user in range(100))
    users = recommenders["ease"].bundle.users.values[:40].to_list()
    expected = [models.of_user(user).name for user in users]
    assert set(expected) == set(NAMES)
    together = split.post("/recommend/batch", json={"users": users, "k": 5})
    assert together.headers[HEADER] == "ease,knn"
    for user, arm, answer in zip(users, expected, together.json(), strict=True):
        answered = split.post("/recommend", json={"user": user, "k": 5})
        assert answered.headers[HEADER] == arm
        assert answered.json() == answer
        assert answer["user"] == user
        assert items(answer) == recommenders[arm].recommend(user, 5)["item"].to_list()
    anonymous = split.post("/recommend", json={"history": ["jazz-03"]})
    assert anonymous.headers[HEADER] == "ease"


def test_a_larger_last_share_moves_nobody_back(folders: dict[str, Path]) -> None:
    small, large = (
        Models(folders, {"ease": 1 - share, "knn": share}, Metrics()) for share in (0.2, 0.4)
    )
    had = {user for user in range(2_000) if small.of_user(user).name == "knn"}
    have = {user for user in range(2_000) if large.of_user(user).name == "knn"}
    assert had < have
    small.close()
    large.close()


def test_metrics_and_log_name_the_model(
    split: TestClient, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="mgformer.serving"):
        split.post("/recommend", params={"model": "knn"}, json={"history": ["jazz-03"]})
    assert [getattr(record, "model", None) for record in caplog.records] == ["knn"]
    found = samples(split.get("/metrics").text)
    counted = {
        (one.labels["path"], one.labels["model"])
        for one in found
        if one.name == "mgformer_requests_total"
    }
    assert ("/recommend", "knn") in counted
    assert ("/models", "") in counted
    loaded = "mgformer_loaded_timestamp_seconds"
    assert {one.labels["model"] for one in found if one.name == loaded} == set(NAMES)


def test_each_model_is_reloaded_by_itself(tmp_path: Path) -> None:
    folders = {name: tmp_path / name for name in NAMES}
    for folder in folders.values():
        Recommender.fit("demo", "itemknn").save(folder)
    with TestClient(create_app(folders, watch_seconds=None), client=LOCAL) as client:

        def kinds() -> list[str]:
            return [one["model"] for one in client.get("/models").json()]

        for folder in folders.values():
            Recommender.fit("demo", "ease").save(folder)
        assert client.post("/admin/reload", params={"model": "knn"}).json()["changed"] is True
        assert kinds() == ["itemknn", "ease"]
        (folders["knn"] / "bundle.json").write_text("{")
        assert "damaged" in client.post("/admin/reload").json()["error"]
        assert kinds() == ["ease", "ease"]  # the other model is loaded all the same
        results = {
            (one.labels["model"], one.labels["result"]): one.value
            for one in samples(client.get("/metrics").text)
            if one.name == "mgformer_reloads_total"
        }
        assert results == {("knn", "loaded"): 1, ("knn", "failed"): 1, ("ease", "loaded"): 1}


def test_a_single_model_needs_no_name(run: Path, client: TestClient) -> None:
    (only,) = client.get("/models").json()
    assert (only["name"], only["share"], only["default"]) == ("default", 1.0, True)
    asked = client.post("/recommend", params={"model": "default"}, json={"history": []})
    assert asked.status_code == 200
    document = json.dumps(client.get("/openapi.json").json())
    assert '{"type": "string", "enum": ["default"]}' in document


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["runs/a", "runs/b"], "several models need names; write a=runs/a b=…"),
        (["a=runs/a", "a=runs/b"], "the name 'a' is used twice"),
        (["a/b=runs/a"], "model name 'a/b': expected letters"),
        (["a=runs/a", "b=runs/b", "--share", "c=1"], "--share c: unknown model; this service has"),
        (["a=runs/a", "b=runs/b", "--share", "a=0.5"], "the shares add up to 0.5, expected 1"),
        (["a=runs/a", "b=runs/b", "--share", "a=1.5"], "expected a number from 0 to 1"),
        (["a=runs/a", "b=runs/b", "--share", "a=nan"], "expected a number from 0 to 1"),
        (["a=runs/a", "--share", "a"], "--share a: expected NAME=SHARE"),
        (["a=runs/none"], "no trained recommender here"),
    ],
)
def test_wrong_names_and_shares_are_one_line(arguments: list[str], message: str) -> None:
    assert_one_line(mgformer("serve", *arguments), message)


def test_shares_are_checked_in_python_too(folders: dict[str, Path]) -> None:
    with pytest.raises(ConfigError, match="add up to"):
        create_app(folders, shares={"ease": 0.5, "knn": 0.6})
