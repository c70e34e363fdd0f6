"""`mgformer refresh`, and what other commands do with a refreshed run."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from mgformer.runs.bundle_files import load_bundle, save_bundle
from tests.command import assert_one_line, mgformer, succeed
from tests.runs.oracles_refresh import (
    NEW,
    OLD,
    USERS,
    refreshed,
    scores_of,
    trained,
)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    save_bundle(trained("guided", "times"), tmp_path / "run")
    NEW.group_by("user", "item").agg(pl.max("time")).write_csv(tmp_path / "new.csv")
    return tmp_path / "run"


def test_the_command_replaces_the_recommender(run: Path) -> None:
    before, new = load_bundle(run), run.with_name("new.csv")
    expected = refreshed(before, NEW, "times")
    done = mgformer("refresh", run, "--with", new, "--out", run.with_name("other"))
    assert done.returncode == 0, done.stderr
    counts = expected.record.refreshed
    assert f"new pairs: {counts.new_pairs}; new users: 3\n" in done.stdout
    assert f"their items are new: {counts.skipped_items_pairs}\n" in done.stdout
    assert f"saved in {run.with_name('other')}" in done.stdout
    assert "warning: new: " in done.stderr
    assert load_bundle(run).record == before.record
    shown = json.loads(succeed("refresh", run, "--with", new, "--json"))
    assert shown["run"] == str(run)
    wanted = counts.model_dump(exclude={"seconds"})
    assert wanted.items() < shown["refreshed"].items()
    for folder in (run, run.with_name("other")):
        np.testing.assert_array_equal(scores_of(load_bundle(folder)), scores_of(expected))
    listed = json.loads(succeed("recommend", run, "--user", "u07x", "-k", 2, "--json"))
    assert len(listed["users"][0]["items"]) == 2
    evaluated = json.loads(succeed("evaluate", run, "--json"))
    assert evaluated["test"] == before.record.test
    succeed("export", run, "--format", "card")
    card = (run / "export/MODEL_CARD.md").read_text()
    num_added = counts.pairs - counts.trained_pairs
    assert f"- refreshed: {num_added:,} of {counts.pairs:,} interactions were added" in card
    done = mgformer("train", new, "--from", run, "--out", run.with_name("next"))
    assert_one_line(done, "the run to continue from has no weights")
    assert "held out or added before" in succeed("refit", run, "--out", run.with_name("again"))
    again = load_bundle(run.with_name("again"))
    assert len(again.train) == counts.pairs
    assert (again.record.refreshed, len(again.folded_users)) == (None, 0)
    done = mgformer("refit", run.with_name("again"), "--out", run.with_name("more"))
    assert_one_line(done, "nothing was held out")


def test_a_report_on_a_refreshed_run(run: Path) -> None:
    pytest.importorskip("plotly")
    succeed("refresh", run, "--with", run.with_name("new.csv"))
    succeed("report", run, "--out", run.with_name("report.html"))
    assert "then refreshed with new pairs" in run.with_name("report.html").read_text()


def test_wrong_input_is_one_line(run: Path) -> None:
    before, new = load_bundle(run).record, run.with_name("new.csv")

    def refused(message: str, *arguments: object, folder: Path = run) -> None:
        assert_one_line(mgformer("refresh", folder, *arguments), message)

    refused("no trained recommender here", "--with", new, folder=run / "nowhere")
    refused("no dataset", "--with", run / "nothing.csv")
    refused("--set model: a refresh takes", "--with", new, "--set", "model.dim=3")
    refused("--set data: a refresh takes", "--with", new, "--set", "data=3")
    refused("expected 'when'", "--with", new, "--set", "data.time=when")
    refused("got no times, expected times", "--with", new, "--set", "data.time=''")
    refused("is a file, expected a folder", "--with", new, "--out", new / "x")
    parts = run.with_name("parts")
    parts.mkdir()
    for name in ("train", "test"):
        items = {"train": ("i01", "i02"), "test": ("i03",)}[name]
        rows = [(user, item, 1000) for user in USERS[:3] for item in items]
        if name == "train":
            rows += [(USERS[3], "i03", 1000)]
        pl.DataFrame(rows, OLD.schema, orient="row").write_csv(parts / f"{name}.csv")
    refused("has train and test parts, which cannot be joined", "--with", parts)
    assert mgformer("refresh", run).returncode == 2
    assert load_bundle(run).record == before
