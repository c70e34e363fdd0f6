"""A messy export, as a new user meets it: look at it, start a config from it, train."""

import json
import tomllib
from itertools import pairwise
from pathlib import Path

import pytest

from mgformer.cli import dataset_view
from mgformer.data.dataset import read_dataset
from mgformer.data.options import DataConfig
from mgformer.runs.config import build_config
from mgformer.runs.template import template
from tests.command import assert_one_line, mgformer, succeed

MESSY = """\
\ufeffcustomer,product,stars,when,comment,,
c1,"Tea, green",5,04/12/1997 15:55,"nice
really",,
c2,Jam,3,13/12/1997 08:00,,,
c1,Bread,1,1997-12-14T10:00:00Z,,,
c3,"Tea, green",4,15.12.1997,ok,,
c1,Bread,1,1997-12-14T10:00:00Z,,,
c3,Bread
,Jam,4,16/12/1997 11:00,,,
c3,Jam,5,16/12/1997 11:00,,,
"""


@pytest.fixture
def messy(tmp_path: Path) -> Path:
    path = tmp_path / "messy.csv"
    path.write_text(MESSY)
    return path


def test_a_messy_file_is_shown(messy: Path) -> None:
    skip = ("--set", "data.on_error=skip")
    facts = json.loads(succeed("datasets", "show", messy, *skip, "--json"))
    taken = {column["name"]: column["taken_as"] for column in facts["columns"]}
    assert taken == {
        "customer": "user", "product": "item", "stars": "likes", "when": "time",
        "comment": "ignored", "": "ignored",
    }  # fmt: skip
    assert facts["sample"][0] == [
        "c1",
        "Tea, green",
        "5",
        "04/12/1997 15:55",
        "nice\nreally",
        "",
        "",
    ]
    assert len(facts["sample"]) == 5
    assert (facts["users"], facts["items"], facts["interactions"]) == (3, 3, 5)
    assert (facts["duplicates"], facts["order"]) == (1, "by times")
    assert facts["times"]["from"] == "1997-12-04 15:55:00"
    assert facts["times"]["to"] == "1997-12-16 11:00:00"
    assert facts["left_out"]["rows"] == 2
    assert facts["left_out"]["first"][0].startswith(f"{messy}:8: got 2 fields, expected 7")
    ratings = facts["ratings"]
    assert ratings["histogram"] == {"1": 2, "3": 1, "4": 1, "5": 2}
    assert (ratings["treated_as_likes"], ratings["try"]) == (True, "data.min_rating=4")
    assert ratings["pairs_left"] == 3
    left = json.loads(succeed("datasets", "show", messy, *skip, "--set", ratings["try"], "--json"))
    assert left["interactions"] == ratings["pairs_left"]
    assert not left["ratings"]["treated_as_likes"]

    done = mgformer("datasets", "show", messy, *skip)
    assert "columns" not in done.stderr  # what was noticed is shown once
    assert "left out" not in done.stderr
    for shown in (
        "customer   user", "Tea, green", "(no name)", "1997-12-04 15:55:00 to 1997-12-16 11:00:00",
        "--set data.min_rating=4 leaves 3 pairs", "are read as day/month/year",
        "cannot be used: 2; the first",
    ):  # fmt: skip
        assert shown in done.stdout, shown


def test_a_file_that_cannot_be_read_shows_its_first_rows(messy: Path) -> None:
    done = mgformer("datasets", "show", messy)
    assert done.returncode == 2
    assert "Tea, green" in done.stdout
    assert done.stderr.startswith(f"error: {messy}:8: got 2 fields")
    assert done.stderr.count("\n") == 1
    assert "data.on_error=skip" in done.stderr


def test_columns_that_cannot_be_guessed(tmp_path: Path) -> None:
    path = tmp_path / "export.csv"
    path.write_text("kunde;artikel;datum\nk1;Tee, grün;01.02.2024\nk2;Tee, grün;02.02.2024\n")
    done = mgformer("datasets", "show", path)
    assert done.returncode == 2
    assert "expected one of user ids" in done.stderr
    assert "Tee, grün" in done.stdout
    assert f"datasets show {path} --set data.user=kunde --set data.item=artikel" in done.stdout
    facts = json.loads(mgformer("datasets", "show", path, "--json").stdout)
    assert facts["try"] == ["data.user=kunde", "data.item=artikel"]
    assert "expected one of user ids" in facts["problem"]
    settings = [part for setting in facts["try"] for part in ("--set", setting)]
    assert json.loads(succeed("datasets", "show", path, *settings, "--json"))["users"] == 2


def test_a_table_keeps_to_the_width_of_a_terminal(
    messy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = json.loads(succeed("datasets", "show", messy, "--set", "data.on_error=skip", "--json"))
    monkeypatch.setattr(dataset_view, "WIDEST_TABLE", 80)
    shown = dataset_view.columns_table(facts)
    widths = [max(len(row[at]) for row in shown) for at in range(len(shown[0]))]
    assert sum(widths) + 2 * (len(widths) - 1) <= 80


def test_settings_must_be_about_reading(messy: Path) -> None:
    done = mgformer("datasets", "show", messy, "--set", "model.l2=3")
    assert_one_line(done, "--set model: expected options for reading")
    assert_one_line(mgformer("datasets", "show", messy, "--set", "data.usr=3"), "did you mean user")


def test_training_says_what_was_taken(messy: Path, tmp_path: Path) -> None:
    rows = [f"c{n % 30},p{n // 30},{1 + n % 5},{964982703 + n}" for n in range(300)]
    path = tmp_path / "many.csv"
    path.write_text("customer,product,stars,when\n" + "\n".join(rows))
    done = mgformer("train", path, "--model", "popularity", "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    first, second = done.stderr.splitlines()[:2]
    assert first == f"{path}: columns: user = customer, item = product, time = when"
    assert second.startswith(f"{path}: ratings in stars are treated as likes, also low ones")


def test_a_config_to_start_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [f"c{n % 30},p{n // 30},{1 + n % 5},{964982703 + n}" for n in range(300)]
    Path("export.csv").write_text("customer,product,stars,when\n" + "\n".join(rows))
    assert "mgformer train --config run.toml" in succeed("init", "export.csv")
    text = Path("run.toml").read_text()
    raw = tomllib.loads(text)
    assert raw["dataset"] == "export.csv"
    assert raw["data"] == {
        "user": "customer", "item": "product", "time": "when", "on_error": "stop", "k_core": 0
    }  # fmt: skip
    assert raw["split"]["kind"] == "time"
    assert {"model", "score"} <= raw.keys()
    assert "# min_rating = 4.0" in text
    assert "4 leaves 120 pairs" in " ".join(text.replace("#", "").split())
    lines = text.splitlines()
    for before, line in pairwise(lines):
        assert not line or line.startswith("#") or before.startswith("#"), line
    succeed("train", "--config", "run.toml", "--model", "popularity", "--out", "run")
    assert_one_line(mgformer("init", "export.csv"), "run.toml: exists already; choose another")
    assert Path("run.toml").read_text() == text
    made = json.loads(succeed("init", "export.csv", "--out", "new/own.toml", "--json"))
    assert made == {"config": "new/own.toml", "dataset": "export.csv"}


@pytest.mark.parametrize("odd", ['a"b', "a\\b", "a\nb = 1", "[a]", "a\x01\x85b", "'a'", "é"])
def test_odd_names_make_a_config_that_can_be_read(tmp_path: Path, odd: str) -> None:
    path = tmp_path / f"{odd.replace('/', '')}.csv"
    quoted = odd.replace('"', '""')
    path.write_text(f'"{quoted}",item,rating\na,b,1\nc,d,5\n', newline="")
    options = DataConfig(user=odd)
    text = template(str(path), options, read_dataset(path, options), tmp_path / f"{odd}.toml")
    raw = tomllib.loads(text)
    assert (raw["dataset"], raw["data"]["user"]) == (str(path), odd)
    assert build_config({**raw, "model": {"name": "ease"}}).data.user == odd
