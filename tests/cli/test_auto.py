"""A model by default on the command line: the table, the choice, and a warning if it is poor."""

import json
from pathlib import Path

import pytest

from mgformer.cli.durations import seconds_of
from mgformer.errors import ConfigError
from mgformer.runs import auto
from tests.command import assert_one_line, mgformer, succeed


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("1.5m", 90), ("2h", 7200), (" 3 m ", 180)]
)
def test_lengths_of_time(text: str, seconds: float) -> None:
    assert seconds_of(text, "--budget") == seconds


@pytest.mark.parametrize("text", ["", "0", "0m", "-3", "10 minutes", "1e9", "m"])
def test_other_lengths_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"--budget: got '.*', expected a time such as 90s"):
        seconds_of(text, "--budget")


def test_train_chooses_a_model_and_shows_what_it_tried(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auto, "MODELS", ("popularity", "itemknn", "ease"))
    run = tmp_path / "run"
    found = json.loads(succeed("train", table, "--budget", "5m", "--json", "--out", run))
    assert found["auto"]["budget"] == 300
    assert {c["model"] for c in found["auto"]["contestants"]} == set(auto.MODELS)
    assert found["model"] in auto.MODELS
    assert found["below_popularity"] is False
    again = json.loads(succeed("evaluate", run, "--json"))
    assert again["auto"] == found["auto"]
    shown = succeed("train", table, "--model", "auto", "--out", tmp_path / "shown")
    assert "models on validation" in shown
    assert f"chosen: {found['model']}" in shown
    refit = json.loads(succeed("refit", run, "--json"))
    assert (refit["auto"], refit["model"]) == (found["auto"], found["model"])


def test_a_model_no_better_than_popularity_is_called_so(table: Path, tmp_path: Path) -> None:
    shown = succeed("train", table, "--model", "popularity", "--out", tmp_path / "run")
    assert "WARNING: everyone gets the same list" in shown
    assert "--budget 10m" in shown


def test_bad_requests_cost_one_line(table: Path, tmp_path: Path) -> None:
    for arguments, expected in {
        ("--budget", "soon"): "--budget: got 'soon'",
        ("--budget", "3m", "--model", "ease"): "leave it out, or --model ease",
        ("--profile",): "--profile measures one model",
        ("--set", "model.l2=3"): "got an option of a model, but no model",
    }.items():
        done = mgformer("train", table, *arguments, "--out", tmp_path / "run")
        assert_one_line(done, expected)
    assert_one_line(mgformer("tune", table, "--out", tmp_path / "tune"), "no model to tune")
    assert list(tmp_path.iterdir()) == []
