"""add-items, add-users and rules, as a person runs them."""

import json
import shutil
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from mgformer.recommend.recommender import Recommender
from mgformer.serving.app import create_app
from tests.command import assert_one_line, mgformer, succeed

HIDE = "[[hide]]\nwhere = 'taste = jazz'\n[[pin]]\nitems = ['sailing-01']\n"
LISTED = {"history": ["jazz-03", "jazz-04"], "k": 6}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    Recommender.fit("demo", "ease").save(folder)
    return folder


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "run"))


def items_of(client: TestClient) -> list[str]:
    return [item["item"] for item in client.post("/recommend", json=LISTED).json()["items"]]


def test_a_service_serves_items_that_were_added(run: Path, tmp_path: Path) -> None:
    new = tmp_path / "new.csv"
    new.write_text("item,name,taste\njazz-99,Blue in Green,jazz\njazz-01,So What,\n")
    with TestClient(create_app(run, watch_seconds=None), client=("127.0.0.1", 1)) as client:
        done = json.loads(succeed("add-items", run, new, "--json"))
        assert (done["new"], done["updated"], done["added"]["items"]) == (1, 1, 1)
        assert client.post("/admin/reload").json()["changed"]
        found = client.get("/items", params={"q": "blue in"}).json()
        assert "jazz-99" in json.dumps(found)
        body = {**LISTED, "k": 100, "where": {"taste": "jazz"}}
        listed = [item["item"] for item in client.post("/recommend", json=body).json()["items"]]
        assert "jazz-99" in listed
    assert "new items: 0; updated: 2" in succeed("add-items", run, new)
    exported = tmp_path / "exported"
    succeed("export", run, "--format", "parquet", "--out", exported)
    assert "jazz-99" in succeed("search", run, "blue")


def test_the_new_recommender_can_go_elsewhere(run: Path, tmp_path: Path) -> None:
    new, other = tmp_path / "new.csv", tmp_path / "other"
    new.write_text("item,taste,note\njazz-99,jazz,good\n")
    wrong = mgformer("add-items", run, new, "--out", other)
    assert_one_line(wrong, "got the column 'note', expected columns that the recommender knows")
    assert not (other / "bundle.json").exists()
    ignored = ["--set", 'data.kinds={note="ignore"}']
    succeed("add-items", run, new, "--out", other, *ignored)
    assert "jazz-99" not in Recommender.load(run).bundle.items.values
    assert "jazz-99" in Recommender.load(other).bundle.items.values


@pytest.mark.parametrize("command", ["add-items", "add-users"])
def test_what_cannot_be_added_is_refused_in_one_line(
    command: str, run: Path, tmp_path: Path
) -> None:
    missing = tmp_path / "none.csv"
    expected = "no attributes of users" if command == "add-users" else "none.csv"
    assert_one_line(mgformer(command, run, missing), expected)


def test_rules_are_set_shown_and_cleared(run: Path, tmp_path: Path) -> None:
    file = tmp_path / "rules.toml"
    file.write_text(HIDE)
    assert "has no rules" in succeed("rules", run)
    with TestClient(create_app(run, watch_seconds=None), client=("127.0.0.1", 1)) as client:
        first = items_of(client)
        assert any(item.startswith("jazz") for item in first)
        shown = succeed("rules", run, file)
        assert 'hide 1: where = "taste = jazz"' in shown
        assert 'pin 1: items = ["sailing-01"]' in shown
        assert items_of(client) == first
        assert client.post("/admin/reload").json()["changed"]
        ruled = items_of(client)
        assert ruled[0] == "sailing-01"
        assert not any(item.startswith("jazz") for item in ruled)
        kept = json.loads(succeed("rules", run, "--json"))["rules"]
        assert kept == {"hide": [{"where": "taste = jazz"}], "pin": [{"items": ["sailing-01"]}]}
        file.write_text(HIDE.replace("taste", "tastes"))
        assert_one_line(mgformer("rules", run, file), "hide 1: ")
        assert_one_line(mgformer("rules", run, file, "--clear"), "give one of them")
        assert json.loads(succeed("rules", run, "--json"))["rules"] == kept
        assert "has no rules" in succeed("rules", run, "--clear")
        assert client.post("/admin/reload").json()["changed"]
        assert items_of(client) == first
