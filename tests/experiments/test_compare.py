"""Comparing: one protocol for all, the figures of `train`, equal trials, tests against the best."""

import json
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from scipy import stats

from mgformer.errors import ConfigError
from mgformer.experiments.compare import Comparison, compare, contestants
from mgformer.experiments.tables import comparison_table, explanation
from mgformer.experiments.tune import load_tuning
from mgformer.runs.config import build_config, to_toml
from mgformer.runs.train import train
from tests.command import assert_one_line, mgformer, succeed

SMALL = ["train.epochs=3", "train.batch_size=256"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("compare") / "out"


@pytest.fixture(scope="module")
def found(table: Path, folder: Path) -> Comparison:
    configs = contestants(["popularity", "EASE", "BprMF"], str(table), settings=SMALL)
    return compare(configs, folder, num_seeds=2)


def test_figures_equal_those_of_train(found: Comparison, table: Path) -> None:
    assert set(found.runs) == {"popularity", "ease", "bprmf"}
    for name, runs in found.runs.items():
        for seed, run in enumerate(runs):
            training = {"epochs": 3, "batch_size": 256}
            raw = {"dataset": str(table), "seed": seed, "model": {"name": name}, "train": training}
            record = train(build_config(raw)).record
            assert run.record.seed == seed
            for part in ("valid", "test", "protocol", "fingerprint", "epochs"):
                assert getattr(run.record, part) == getattr(record, part), (name, seed, part)


def test_the_best_on_validation_comes_first_and_the_others_are_tested_against_it(
    found: Comparison, folder: Path
) -> None:
    means = [sum(run.record.valid["ndcg@20"] for run in runs) / 2 for runs in found.runs.values()]
    assert means == sorted(means, reverse=True)
    assert found.best == "ease"
    assert set(found.tests) == {"bprmf", "popularity"}

    def values(name: str) -> list[float]:
        """A user's NDCG@20, averaged over the seeds by hand."""
        by_user: dict[str, list[float]] = {}
        for seed in (0, 1):
            per_user = pl.read_parquet(folder / name / f"seed-{seed}" / "per_user.parquet")
            for user, value in per_user.select("user", "ndcg@20").iter_rows():
                by_user.setdefault(user, []).append(value)
        return [sum(own) / len(own) for _, own in sorted(by_user.items())]

    for name, tests in found.tests.items():
        expected = stats.ttest_rel(values(name), values("ease"))
        assert tests["ndcg@20"].p_value == pytest.approx(expected.pvalue)
        assert tests["ndcg@20"].num_users == 120


def test_comparison_table(found: Comparison) -> None:
    columns, rows = comparison_table(found.runs, found.tests)
    assert columns[:3] == ["model", "Recall@20", "NDCG@20"]
    cells = {row[0]: dict(zip(columns, row, strict=True)) for row in rows}
    assert cells["ease"]["p"] == "–"
    assert "*" not in cells["ease"]["NDCG@20"]
    assert " ± " in cells["ease"]["NDCG@20"]
    p = found.tests["popularity"]["ndcg@20"].p_value
    assert cells["popularity"]["p"] == f"{p:.2g}"
    assert cells["popularity"]["NDCG@20"].endswith("*") == (p < 0.025)  # 0.05 for two tests
    assert cells["popularity"]["NDCG@20"].endswith("*")
    assert cells["popularity"]["s/epoch"] == "–"
    assert float(cells["bprmf"]["s/epoch"]) >= 0
    told = explanation(found.best, 2, found.tests)
    assert "over 120 users against ease" in told
    assert "p < 0.025" in told


def test_an_interrupted_comparison_continues(found: Comparison, table: Path, folder: Path) -> None:
    kept = {
        path: path.stat().st_mtime_ns
        for path in folder.rglob("record.json")
        if path.parent != folder / "bprmf" / "seed-1"
    }
    assert len(kept) == 5
    shutil.rmtree(folder / "bprmf" / "seed-1")
    arguments = ["compare", table, "--models", "popularity,ease,bprmf", "--seeds", 2]
    settings = [part for setting in SMALL for part in ("--set", setting)]
    results = json.loads(succeed(*arguments, *settings, "--out", folder, "--json"))
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert [(r["name"], r["seed"]) for r in results] == [
        (name, seed) for name in found.runs for seed in (0, 1)
    ]
    for result in results:
        run = found.runs[result["name"]][result["seed"]]
        assert result["test"] == run.record.test
        assert result["run"] == str(run.folder)
        assert result["seconds_to_best"] >= 0
        assert (result["seconds_per_epoch"] is None) == (result["name"] != "bprmf")
        assert {"model", "dataset", "protocol", "valid", "seconds", "peak_mb"} <= set(result)
        if result["name"] != "ease":
            assert result["against"]["name"] == "ease"
            test = found.tests[result["name"]]["recall@20"]
            assert result["against"]["metrics"]["recall@20"]["p_value"] == test.p_value
    document = (folder / "compare.md").read_text()
    assert "Generated by `mgformer compare " in document
    assert comparison_table(found.runs, found.tests).rows[0][1] in document  # EASE's, not retrained
    record = found.runs["ease"][0].record
    assert f"- data: {record.fingerprint}" in document
    assert f"- protocol: {record.protocol}" in document


def test_every_model_gets_the_same_number_of_trials(table: Path, tmp_path: Path) -> None:
    arguments = ["--models", "ease,itemknn,popularity", "--tune", 3, "--out", tmp_path]
    results = json.loads(succeed("compare", table, *arguments, "--seeds", 2, "--json"))
    assert len(results) == 6
    for name in ("ease", "itemknn"):
        tuning = load_tuning(tmp_path / name / "tune")
        assert tuning is not None
        assert len(tuning.trials) == 3
        best = max(tuning.trials, key=lambda trial: trial.value)
        for seed in (0, 1):
            record = json.loads((tmp_path / name / f"seed-{seed}" / "record.json").read_text())
            own = {f"model.{option}": value for option, value in record["config"]["model"].items()}
            assert best.options.items() <= own.items()
            if seed == 0:
                assert record["valid"]["ndcg@20"] == best.value
    assert not (tmp_path / "popularity" / "tune").exists()
    assert "- ease: 3 trials, 0 pruned, 0 failed; " in (tmp_path / "compare.md").read_text()
    done = mgformer("compare", table, *arguments[:3], 2, "--out", tmp_path)
    assert_one_line(done, "has 3 trials, but every model gets 2; give --tune 3")
    done = mgformer("compare", table, *arguments[:2], "--out", tmp_path)  # not tuned: other runs
    assert done.returncode == 2
    assert ", expected " in done.stderr


def test_an_interrupted_comparison_says_how_to_continue(
    table: Path, tmp_path: Path, interrupt_at: Callable[[str], AbstractContextManager[None]]
) -> None:
    arguments = ["compare", table, "--models", "ease,gfcf", "--out", tmp_path, "--json"]
    with interrupt_at("training gfcf"):
        done = mgformer(*arguments)
    assert done.returncode == 130
    assert "interrupted; run the same command again" in done.stderr
    assert len(json.loads(succeed(*arguments))) == 2


def preset(folder: Path, stem: str, **raw: Any) -> Path:
    path = folder / f"{stem}.toml"
    path.write_text(to_toml(build_config(raw)))
    return path


def test_files_of_runs_are_compared_by_their_names(table: Path, tmp_path: Path) -> None:
    strong = preset(tmp_path, "ease-strong", model={"name": "ease", "l2": 900})
    preset(tmp_path, "ease", model={"name": "ease", "l2": 7})
    configs = contestants([str(strong), "Ease", "gfcf"], str(table), presets=tmp_path)
    assert list(configs) == ["ease-strong", "ease", "gfcf"]
    assert [config.model.model_dump().get("l2") for config in configs.values()] == [900, 7, None]
    assert {config.dataset for config in configs.values()} == {str(table)}
    assert list(contestants(["ease-strong"], str(table), presets=tmp_path)) == ["ease-strong"]
    shown = succeed(
        "compare", table, "--models", f"{strong},ease", "--config-dir", tmp_path,
        "--out", tmp_path / "out",
    )  # fmt: skip
    assert "ease-strong" in shown
    assert "valid NDCG@20" in shown
    assert str(tmp_path / "out" / "compare.md") in shown
    assert r"\begin{tabular}" in (tmp_path / "out" / "compare.tex").read_text()
    lines = pl.read_csv(tmp_path / "out" / "compare.csv")
    assert sorted(lines["name"]) == ["ease", "ease-strong"]


def test_a_model_from_outside_is_compared(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shop_models.py").write_text(
        "from mgformer.models.simple.popularity import Popularity\n\n\n"
        "class Bestsellers(Popularity):\n    pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    arguments = ["--models", "shop_models:Bestsellers,popularity", "--out", tmp_path / "out"]
    results = json.loads(succeed("compare", table, *arguments, "--json"))
    assert {result["name"] for result in results} == {"shop_models:Bestsellers", "popularity"}
    assert results[0]["test"] == results[1]["test"]
    assert (tmp_path / "out" / "shop_models-Bestsellers" / "seed-0" / "record.json").is_file()


def test_runs_of_different_protocols_are_refused(tmp_path: Path) -> None:
    one = preset(tmp_path, "one", model={"name": "ease"}, split={"test": 0.2})
    two = preset(tmp_path, "two", model={"name": "gfcf"})
    with pytest.raises(ConfigError, match=r"split\.test is 0\.2 for one and 0\.1 for two; a comp"):
        contestants([str(one), str(two)])
    assert list(contestants([str(one), str(two)], settings=["split.test=0.2"])) == ["one", "two"]
    other = preset(tmp_path, "other", dataset="ml-100k", model={"name": "ease"})
    with pytest.raises(ConfigError, match="dataset is 'demo' for two and 'ml-100k' for other"):
        contestants([str(two), str(other)])


def test_a_model_without_a_file_takes_the_protocol_of_the_files(tmp_path: Path) -> None:
    preset(tmp_path, "ease", model={"name": "ease"}, split={"test": 0.2})
    configs = contestants(["gfcf", "ease"], presets=tmp_path)
    assert {config.split.test for config in configs.values()} == {0.2}


def test_bad_arguments(table: Path, tmp_path: Path) -> None:
    for arguments, expected in {
        ("lightgnc,ease",): "--models: unknown model 'lightgnc'; did you mean lightgcn?",
        ("ease,EASE",): "--models: ease is named twice",
        (" , ",): "--models is empty",
        ("none.toml",): "none.toml: no such config file",
        ("ease", "--seeds", "0"): "--seeds must be at least 1, got 0",
        ("ease", "--tune", "-1"): "--tune must be at least 0, got -1",
        ("ease", "--set", "evaluation.ks=[10]"): "a comparison needs the cut-off 20",
        ("ease", "--set", "split.valid=0"): "tastes: the valid part is empty",
        ("ease", "--set", "split.test=0"): "tastes: the test part is empty",
        ("ease,gfcf", "--set", "model.l2=3"): "gfcf: model.l2: unknown option of gfcf",
    }.items():
        done = mgformer("compare", table, "--out", tmp_path / "x", "--models", *arguments)
        assert_one_line(done, expected)
    assert not (tmp_path / "x").exists()
