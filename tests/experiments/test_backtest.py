"""Backtests: nothing of the future in a model, figures of `train`, floors, policies, files."""

import json
import shutil
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import polars as pl
import pytest
from scipy import stats

from mgformer.data.cuts import CutData, at_cut, choose_cuts
from mgformer.data.dataset import open_dataset, read_dataset
from mgformer.errors import ConfigError
from mgformer.experiments import retraining
from mgformer.experiments.backtest import FLOORS, Backtest, backtest, rows_of
from mgformer.experiments.chart import line_chart
from mgformer.ranking.topk import top_k
from mgformer.runs.bundle import Bundle
from mgformer.runs.bundle_files import _pack_scorer, load_bundle
from mgformer.runs.config import build_config, to_toml
from mgformer.runs.train import train
from tests.command import assert_one_line, mgformer, succeed
from tests.events import changed, events

MODELS = ["popularity", "ease", "gfcf", "directau"]
SHARE = 0.15
SMALL: dict[str, dict[str, Any]] = {
    "directau": {"model": {"name": "directau", "dim": 8}, "train": {"epochs": 1, "batch_size": 64}}
}
FILES = {"table.md", "table.csv", "backtest.json", "plot.svg"}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("events") / "events.csv"
    events().write_csv(path)
    return path


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The options of a small DirectAU."""
    path = tmp_path_factory.mktemp("presets") / "directau.toml"
    path.write_text(to_toml(build_config(SMALL["directau"])))
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("backtest") / "out"


@pytest.fixture(scope="module")
def found(table: Path, tiny: Path, folder: Path) -> Backtest:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(retraining, "_refreshed", lambda bundle, new: bundle)
        configs = rows_of(["ease", "gfcf", str(tiny)], str(table), SHARE)
        return backtest(configs, folder, num_cuts=3, policy=True)


def data_of(rows: pl.DataFrame, place: int) -> CutData:
    dataset = read_dataset(rows, keep_rows=True)
    return at_cut(dataset, choose_cuts(dataset, 3, SHARE)[place])


def trained(name: str, data: CutData) -> Bundle:
    config = build_config(SMALL.get(name, {"model": {"name": name}}))
    return train(config, data.dataset, split=data.split)


def bits(bundle: Bundle) -> dict[str, object]:
    """Every bit of a model, and everything that was chosen for it."""
    settings, tensors = _pack_scorer(bundle.scorer)
    tensors |= {f"weight {name}": tensor for name, tensor in bundle.weights.items()}
    names = {"users": bundle.users.values.to_list(), "items": bundle.items.values.to_list()}
    contents = {name: (t.shape, t.numpy().tobytes()) for name, t in tensors.items()}
    return {**settings, **names, **contents, "chosen": bundle.record.chosen}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("place", [0, 1])
def test_the_future_changes_no_bit_of_a_model(name: str, place: int) -> None:
    rows = events()
    data = data_of(rows, place)
    first = trained(name, data)
    start, last = int(data.cut.start), int(data.cut.last)
    assert {"eta", "kappa"} <= set(first.record.chosen.weights._asdict())

    later = data_of(changed(rows, last + 1, sys.maxsize, seed=7), place)
    assert later.cut == data.cut
    unchanged = trained(name, later)
    assert bits(unchanged) == bits(first)
    assert unchanged.record.test == first.record.test
    assert unchanged.record.valid == first.record.valid
    assert first.per_user is not None
    assert first.per_user.equals(unchanged.per_user)

    inside = trained(name, data_of(changed(rows, start, last, seed=7), place))
    assert bits(inside) == bits(first)
    assert inside.record.valid == first.record.valid
    assert inside.record.test != first.record.test

    before = trained(name, data_of(changed(rows, 0, start - 1, seed=7), place))
    assert bits(before) != bits(first)  # the comparison sees differences


def test_figures_are_those_of_train_at_each_cut(found: Backtest, table: Path, folder: Path) -> None:
    dataset = open_dataset(str(table), keep_rows=True)
    assert set(found.runs) == {"ease", "gfcf", "directau", *FLOORS}
    for place, cut in enumerate(choose_cuts(dataset, 3, SHARE)):
        data = at_cut(dataset, cut)
        window = found.windows[place]
        assert window.cut == cut
        assert (window.pairs, window.drift) == (len(data.window), data.drift)
        assert (window.ranked, window.unknown) == (data.num_ranked, data.num_unknown)
        for name, runs in found.runs.items():
            run = runs[place]
            assert run.folder == folder / f"cut-{cut.number}" / name.replace(" ", "-")
            assert run.per_user.height == data.num_ranked
            if name not in FLOORS:
                record = trained(name, data).record
                assert run.record.test == record.test
                assert run.record.protocol == record.protocol
        assert found.runs["popularity"][place].record.test == run.record.popularity


def test_a_run_can_be_evaluated_again(found: Backtest) -> None:
    run = found.runs["directau"][1]
    again = json.loads(succeed("evaluate", run.folder, "--json"))
    assert again["test"] == pytest.approx(run.record.test)
    bundle = load_bundle(run.folder)
    assert bundle.missing is not None
    assert bundle.missing.sum() > 0  # which are not forgotten


def test_floors_follow_time_or_do_not(found: Backtest) -> None:
    for plain, trend in zip(
        found.runs["popularity"], found.runs["popularity with trend"], strict=True
    ):
        assert plain.record.eta is None
        assert trend.record.eta is not None
        assert plain.record.model == trend.record.model == "popularity"


def test_all_users_of_all_cuts_test_a_model_against_the_best(found: Backtest) -> None:
    means = [found.mean(name, "ndcg@20", "valid") for name in found.runs]
    assert means == sorted(means, reverse=True)
    assert set(found.tests) == set(found.runs) - {found.best}

    def values(name: str) -> list[float]:
        by_user: dict[str, list[float]] = {}
        for run in found.runs[name]:
            for user, value in run.per_user.select("user", "ndcg@20").iter_rows():
                by_user.setdefault(user, []).append(value)
        return [sum(own) / len(own) for _, own in sorted(by_user.items())]

    for name, tests in found.tests.items():
        expected = stats.ttest_rel(values(name), values(found.best))
        assert tests["ndcg@20"].p_value == pytest.approx(expected.pvalue)
        assert tests["ndcg@20"].num_users == len(values(name))


def test_a_stale_model_is_tested_on_the_users_that_it_knows(
    found: Backtest, table: Path, folder: Path
) -> None:
    assert found.retraining is not None
    dataset = open_dataset(str(table), keep_rows=True)
    cuts = choose_cuts(dataset, 3, SHARE)
    assert found.retraining.cuts == [2, 3]
    ways = {(way.name, way.way): way for way in found.retraining.ways}
    assert len(ways) == 3 * len(found.runs)
    for name, runs in found.runs.items():
        bundle = load_bundle(folder / "cut-1" / name.replace(" ", "-"))
        users, items = bundle.users.values.to_list(), bundle.items.values.to_list()
        losses = []
        for place, cut in enumerate(cuts[1:]):
            window = at_cut(dataset, cut).window
            wanted: dict[str, set[str]] = {}
            for user, item in zip(
                window.users.decode(window.rows), window.items.decode(window.indices), strict=True
            ):
                if user in users:
                    wanted.setdefault(user, set()).add(item)
            asked = sorted(wanted)
            assert found.retraining.users[place] == len(asked) > 10
            numbers = [users.index(user) for user in asked]
            lists = top_k(bundle.scorer, numbers, 20, seen=bundle.train.matrix).items
            figures = []
            for user, ranked in zip(asked, lists, strict=True):
                hits = [n >= 0 and items[n] in wanted[user] for n in ranked]
                gain = sum(hit / np.log2(rank + 2) for rank, hit in enumerate(hits))
                best = sum(1 / np.log2(rank + 2) for rank in range(min(20, len(wanted[user]))))
                figures.append(gain / best)
            stale = ways[name, "stale"].figures[place]["ndcg@20"]
            assert stale == pytest.approx(np.mean(figures))
            again = runs[place + 1].per_user.filter(pl.col("user").is_in(asked))
            assert again.height == len(asked)
            retrained = ways[name, "retrained"].figures[place]["ndcg@20"]
            assert retrained == pytest.approx(again["ndcg@20"].mean())
            losses.append(retrained - stale)
        loss = ways[name, "stale"].loss
        assert loss is not None
        assert loss.mean == pytest.approx(np.mean(losses))
        assert loss.per_window == pytest.approx((losses[0] + 2 * losses[1]) / 5)
        weeks = [(cut.start - cuts[0].start) / 604_800 for cut in cuts[1:]]
        slope = np.dot(weeks, losses) / np.dot(weeks, weeks)
        assert loss.per_week == pytest.approx(slope)
        assert ways[name, "retrained"].loss is None
        # The refreshed one of this test is the stale one.
        assert ways[name, "refreshed"].figures == ways[name, "stale"].figures


def test_refreshing_gets_what_came_since_the_first_cut(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def refreshed(bundle: Bundle, new: Any) -> Bundle:
        calls.append(new.interactions)
        assert not len(bundle.test)
        return replace(bundle)

    monkeypatch.setattr(retraining, "_refreshed", refreshed)
    found = backtest(rows_of(["popularity"], str(table), SHARE), tmp_path, num_cuts=3, policy=True)
    assert found.retraining is not None
    assert found.retraining.can_refresh
    cuts = [window.cut for window in found.windows]
    assert len(calls) == 2 * len(FLOORS)
    for number, new in enumerate(calls):
        end = cuts[1 + number // len(FLOORS)].start
        assert cuts[0].start == new.times.min()
        assert new.times.max() < end


def test_without_a_module_that_refreshes_the_row_is_left_out(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retraining, "REFRESH", "mgformer.runs.no_such_module")
    shown = succeed(
        "backtest", table, "--models", "ease", "--cuts", 2, "--policy", "--out", tmp_path
    )
    assert "ease, stale" in shown
    assert "ease, refreshed" not in shown
    assert "refreshed is left out: this version of mgformer cannot refresh" in shown
    assert "loss/window" in shown
    assert "loss/week" in shown
    assert " days." in shown


def test_a_backtest_continues_and_writes_its_files(
    found: Backtest, table: Path, tiny: Path, folder: Path
) -> None:
    dropped = folder / "cut-2" / "directau"
    kept = {
        path: path.stat().st_mtime_ns
        for path in folder.rglob("record.json")
        if path.parent != dropped
    }
    assert len(kept) == 3 * 5 - 1
    shutil.rmtree(dropped)
    arguments = ["backtest", table, "--models", f"ease,gfcf,{tiny}", "--cuts", 3]
    arguments += ["--window", SHARE, "--out", folder]
    result = json.loads(succeed(*arguments, "--json"))
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert {path.name for path in folder.iterdir()} >= FILES
    assert result.pop("folder") == str(folder)
    assert json.loads((folder / "backtest.json").read_text()) == result
    assert [row["name"] for row in result["models"]] == [*found.runs]
    for row in result["models"]:
        runs = found.runs[row["name"]]
        assert [cut["test"] for cut in row["cuts"]] == [run.record.test for run in runs]
        assert row["mean"]["ndcg@20"] == found.mean(row["name"], "ndcg@20")
        assert all((folder / cut["run"] / "record.json").is_file() for cut in row["cuts"])
        if row["name"] != found.best:
            test = found.tests[row["name"]]["recall@20"]
            assert row["against"]["metrics"]["recall@20"]["p_value"] == test.p_value
    assert [cut["unknown_users"] for cut in result["cuts"]] == [w.unknown for w in found.windows]
    assert result["cuts"][0]["from"].startswith("2024-01-")
    assert result["cuts"][0]["days"] > 0
    lines = pl.read_csv(folder / "table.csv")
    assert lines.height == 3 * 5
    assert (
        lines.filter(model="ease", cut=2)["ndcg@20"][0]
        == (found.runs["ease"][1].record.test["ndcg@20"])
    )
    document = (folder / "table.md").read_text()
    assert "Generated by `mgformer backtest " in document
    assert "## Cut 3: 2024-01-" in document
    assert f"| {found.best} | {found.mean(found.best, 'recall@20'):.4f} |" in document
    assert f"- data: {found.fingerprint}" in document
    picture = ElementTree.fromstring((folder / "plot.svg").read_text())
    assert len(picture.findall(".//{*}polyline")) == 5
    shown = succeed(*arguments)
    for text in ("Mean over 3 cuts", "Cut 1: ", "Drift", "popular kept", str(folder / "table.md")):
        assert text in shown


def test_other_windows_or_data_are_refused(found: Backtest, table: Path, folder: Path) -> None:
    arguments = ["backtest", table, "--models", "ease,gfcf", "--out", folder]
    done = mgformer(*arguments, "--cuts", 3, "--window", 0.1)
    assert done.returncode == 2
    assert "has split.test = 0.15, expected 0.1; delete it, or choose another" in done.stderr
    done = mgformer(*arguments, "--cuts", 2, "--window", SHARE)
    assert done.returncode == 2
    assert "was trained on other data" in done.stderr


def test_an_interrupted_backtest_says_how_to_continue(
    table: Path, tmp_path: Path, interrupt_at: Callable[[str], AbstractContextManager[None]]
) -> None:
    arguments = ["backtest", table, "--models", "ease", "--cuts", 2, "--out", tmp_path, "--json"]
    with interrupt_at("training ease at cut 2"):
        done = mgformer(*arguments)
    assert done.returncode == 130
    assert "interrupted; run the same command again" in done.stderr
    assert len(json.loads(succeed(*arguments))["cuts"]) == 2


def test_the_seed_and_the_core_reach_the_runs(table: Path, tmp_path: Path) -> None:
    arguments = ["--models", "popularity", "--cuts", 1, "--seed", 4, "--out", tmp_path]
    result = json.loads(succeed("backtest", table, *arguments, "--set", "data.k_core=5", "--json"))
    assert result["seed"] == 4
    assert {row["name"] for row in result["models"]} == set(FLOORS)
    record = json.loads((tmp_path / "cut-1" / "popularity" / "record.json").read_text())
    assert record["config"]["data"]["k_core"] == 5
    dataset = open_dataset(str(table), keep_rows=True)
    (cut,) = choose_cuts(dataset, 1, 0.1)
    assert result["cuts"][0]["ranked_users"] == at_cut(dataset, cut, 5).num_ranked
    assert at_cut(dataset, cut, 5).num_ranked < at_cut(dataset, cut).num_ranked


def test_bad_arguments(table: Path, tiny: Path, tmp_path: Path) -> None:
    timeless = tmp_path / "timeless.csv"
    events().select("user", "item").unique().write_csv(timeless)
    floor = tmp_path / "popularity.toml"
    floor.write_text(to_toml(build_config({"model": {"name": "ease"}})))
    for arguments, expected in {
        (timeless, "ease"): "timeless: a backtest needs times, got no time column; name it with",
        (table, "eese"): "--models: unknown model 'eese'; did you mean ease?",
        (table, "ease", "--cuts", 0): "--cuts must be at least 1, got 0",
        (table, "ease", "--window", 1.5): "--window must be a share between 0 and 1, got 1.5",
        (table, "ease", "--window", 0.2): "4 windows of 0.2 and one for validation leave nothing",
        (table, "ease", "--cuts", 1, "--policy"): "--policy needs a later window",
        (table, "ease", "--set", "split.kind=last"): "--set split.kind has no use in a backtest",
        (table, "ease", "--set", "warm_start=x"): "--set warm_start has no use in a backtest",
        (table, "ease", "--set", "evaluation.ks=[5]"): "needs the cut-off 20",
        (table, floor): "--models: popularity is the name of a floor; rename the file",
    }.items():
        data, models, *others = arguments
        place = tmp_path / "x"
        done = mgformer("backtest", data, "--models", models, "--out", place, *others)
        assert_one_line(done, expected)
    assert not (tmp_path / "x").exists()
    earlier = {**SMALL["directau"], "warm_start": "runs/before"}
    tiny_again = tmp_path / "continued.toml"
    tiny_again.write_text(to_toml(earlier))
    with pytest.raises(ConfigError, match="continued: warm_start has no use in a backtest"):
        rows_of([str(tiny_again)], str(table))


def test_files_with_other_splits_are_compared(table: Path, tmp_path: Path) -> None:
    paths = []
    for name, split in (("one", {"kind": "ratio", "test": 0.3}), ("two", {"kind": "last"})):
        paths.append(tmp_path / f"{name}.toml")
        paths[-1].write_text(to_toml({"split": split, "model": {"name": "ease"}}))
    configs = rows_of([*map(str, paths)], str(table), 0.2)
    assert [*configs] == ["one", "two", *FLOORS]
    assert {(c.split.kind, c.split.test, c.split.valid) for c in configs.values()} == {
        ("time", 0.2, 0.2)
    }


def test_a_line_for_each_name() -> None:
    names = [f"model & {n}" for n in range(9)]
    lines = {name: [0.1 * n, 0.5] for n, name in enumerate(names)}
    picture = ElementTree.fromstring(line_chart("a < b", ["one", "two"], lines))
    drawn = picture.findall(".//{*}polyline")
    assert len(drawn) == 9
    assert len(picture.findall(".//{*}circle")) == 18
    assert drawn[8].get("stroke-dasharray")  # there are seven colors
    beside = {t.text: float(t.get("y", 0)) for t in picture.findall(".//{*}text")}
    heights = sorted(beside[name] for name in names)
    assert min(np.diff(heights)) >= 14  # names of equal lines do not overlap
    ends = [line.get("points", "").split()[-1].split(",")[1] for line in drawn]
    assert len(set(ends)) == 1
    alone = ElementTree.fromstring(line_chart("one", ["2024-01-01"], {"x": [0.0]}))
    assert len(alone.findall(".//{*}circle")) == 1
    many = [f"2024-01-{day:02}" for day in range(1, 31)]
    crowded = ElementTree.fromstring(line_chart("many", many, {"x": [0.1] * 30}))
    dates = [t for t in crowded.findall(".//{*}text") if t.text in many]
    assert 2 <= len(dates) <= 10
