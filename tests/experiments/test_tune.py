"""Tuning: never worse than the given run, blind to test, able to continue."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mgformer.data.dataset import Dataset
from mgformer.data.splits import Split
from mgformer.errors import BundleError, ConfigError, DataError
from mgformer.experiments.tune import BEST, load_tuning, tune
from mgformer.ranking import selection
from mgformer.runs import train as pipeline
from mgformer.runs.config import RunConfig, build_config, flat_options, read_config
from mgformer.runs.train import prepare
from tests.command import assert_one_line, mgformer, succeed


def described(table: Path, model: str = "ease", **sections: Any) -> RunConfig:
    options = sections.pop("options", {})
    return build_config({"dataset": str(table), "model": {"name": model, **options}, **sections})


def options_in(folder: Path) -> list[dict[str, Any]]:
    tuning = load_tuning(folder)
    assert tuning is not None
    return [trial.options for trial in tuning.trials]


def test_the_first_trial_is_the_given_run_and_the_best_is_not_worse(
    table: Path, tmp_path: Path
) -> None:
    config = described(table, options={"l2": 1.0})
    tuned = tune(config, tmp_path, 6)
    assert tuned.trials[0].options == {"model.l2": 1.0}
    given = pipeline.train(config).record.valid
    assert tuned.trials[0].valid == {name: given[name] for name in ("ndcg@20", "recall@20")}
    assert tuned.best.value == max(trial.value for trial in tuned.trials) >= given["ndcg@20"]
    assert flat_options(tuned.config.to_mapping())["model.l2"] == tuned.best.options["model.l2"]


def test_best_toml_trains_to_the_figures_it_names(table: Path, tmp_path: Path) -> None:
    tuned = tune(described(table, seed=3), tmp_path, 4)
    text = (tmp_path / BEST).read_text()
    assert build_config(read_config(tmp_path / BEST)) == tuned.config
    assert f"# Data: tastes, {tuned.fingerprint}." in text
    assert "# Trials: 4 trials, 0 pruned, 0 failed; seed 3; the test part was not used." in text
    assert f"# Validation NDCG@20: {tuned.best.value:.4f} in trial {tuned.ranked[0]}" in text
    arguments = ["train", "--config", tmp_path / BEST, "--out", tmp_path / "run", "--json"]
    record = json.loads(succeed(*arguments))
    assert record["valid"]["ndcg@20"] == tuned.best.value
    assert record["fingerprint"] == tuned.fingerprint


@pytest.mark.slow
def test_a_killed_tuning_continues_with_the_same_trials(table: Path, tmp_path: Path) -> None:
    arguments = ["tune", str(table), "--model", "itemknn", "--out", str(tmp_path / "killed")]
    command = [sys.executable, "-m", "mgformer", *arguments, "--trials", "100000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        while not (tmp_path / "killed" / "trials.json").exists() and process.poll() is None:
            time.sleep(0.01)
        process.kill()
    done = len(options_in(tmp_path / "killed"))
    total = done + 3
    result = json.loads(succeed(*arguments, "--trials", total, "--json"))
    assert len(result["trials"]) == len(options_in(tmp_path / "killed")) == total
    tune(described(table, "itemknn"), tmp_path / "whole", total)
    assert options_in(tmp_path / "killed") == options_in(tmp_path / "whole")
    before = (tmp_path / "killed" / "trials.json").read_bytes()
    succeed(*arguments, "--trials", total)  # all are made
    assert (tmp_path / "killed" / "trials.json").read_bytes() == before


def test_an_interrupted_tuning_says_how_to_continue(
    table: Path, tmp_path: Path, interrupt_at: Callable[[str], AbstractContextManager[None]]
) -> None:
    arguments = ["tune", table, "--model", "ease", "--trials", 3, "--out", tmp_path, "--json"]
    with interrupt_at("trial 1:"):
        done = mgformer(*arguments)
    assert done.returncode == 130
    assert "interrupted; run the same command again" in done.stderr
    assert len(options_in(tmp_path)) == 1
    assert len(json.loads(succeed(*arguments))["trials"]) == 3


def test_tuning_never_uses_the_test_part(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is measured on test, and other test pairs change no trial."""
    opened = prepare(described(table))
    split = opened.split
    fewer = split.test.subset(np.arange(len(split.test)) % 3 == 0)
    real, measured = pipeline.evaluate_part, []

    def watched(scorer: Any, parts: Split, part: str, options: Any) -> Any:
        measured.append((part, len(parts.test)))
        return real(scorer, parts, part, options)

    for module in (pipeline, selection):
        monkeypatch.setattr(module, "evaluate_part", watched)
    config = described(
        table, "bprmf", split={"kind": "given"}, train={"epochs": 3}, options={"dim": 8}
    )
    found = []
    for number, test in enumerate((split.test, fewer)):
        parts = {"train": split.train, "valid": split.valid, "test": test}
        dataset = Dataset("parts", opened.dataset.interactions, parts)
        tuned = tune(config, tmp_path / str(number), 3, dataset=dataset)
        found.append([trial.model_dump(exclude={"seconds"}) for trial in tuned.trials])
    assert found[0] == found[1]
    assert set(measured) == {("valid", 0)}


def test_a_bad_trial_is_pruned(table: Path, tmp_path: Path) -> None:
    training = {"epochs": 5, "patience": 5, "batch_size": 256, "lr": 0.01}
    config = described(table, "directau", options={"dim": 8}, train=training)
    fixed = {"model.dim", "model.num_layers", "train.batch_size", "train.weight_decay"}
    tuned = tune(config, tmp_path, 8, fixed=fixed)
    states = [trial.state for trial in tuned.trials]
    assert "pruned" in states
    assert "pruned" not in states[:4]
    for trial in tuned.trials:
        whole = trial.state == "complete"
        assert (len(trial.curve) == 5) == whole
        assert bool(trial.valid) == whole
        assert set(trial.options) == {"model.uniformity_weight", "train.lr"}
    assert f"{states.count('pruned')} pruned" in tuned.counts()


def test_a_failed_trial_counts_as_a_trial(table: Path, tmp_path: Path) -> None:
    # Three heads can split the 64 + 32 channels that are given, but not all others.
    options = {"rank": 32, "dim": 64, "num_heads": 3}
    config = described(table, "mgformer", options=options, train={"epochs": 1})
    fixed = {"train.batch_size", "train.lr", "train.weight_decay"}
    tuned = tune(config, tmp_path, 8, fixed=fixed)
    failed = [trial for trial in tuned.trials if trial.state == "failed"]
    assert failed
    assert all("num_heads: got 3, expected a divisor" in (trial.error or "") for trial in failed)
    assert tuned.best.state == "complete"
    assert len(tuned.trials) == 8


def test_when_all_fail_one_line_says_why(table: Path, tmp_path: Path) -> None:
    training = {"lr": 1e30, "epochs": 2}
    arguments = ["tune", table, "--model", "bprmf", "--trials", 2, "--out", tmp_path / "x"]
    settings = [part for name, v in training.items() for part in ("--set", f"train.{name}={v}")]
    done = mgformer(*arguments, *settings)
    assert done.returncode == 2
    last = done.stderr.splitlines()[-1]
    assert last.startswith("error: ")
    assert "all 2 trials failed; the first: training diverged" in last
    assert not (tmp_path / "x" / BEST).exists()


def test_options_that_are_set_are_not_tuned(table: Path, tmp_path: Path) -> None:
    arguments = ["tune", table, "--model", "itemknn", "--trials", 3, "--out", tmp_path, "--json"]
    done = mgformer(*arguments, "--set", "model.weighting=bm25", "--set", "model.shrink=5")
    result = json.loads(done.stdout)
    assert all(set(trial["options"]) == {"model.num_neighbors"} for trial in result["trials"])
    section = read_config(Path(result["config"]))["model"]
    assert (section["weighting"], section["shrink"]) == ("bm25", 5.0)
    assert result["best"]["valid"]["ndcg@20"] == max(
        trial["valid"]["ndcg@20"] for trial in result["trials"]
    )
    assert "test" not in result
    free = described(table, "itemknn", options={"weighting": "bm25", "shrink": 5})
    with pytest.raises(ConfigError, match=r"have \['model.shrink', 'model.weighting'\] fixed"):
        tune(free, tmp_path, 4)


def test_the_table_shows_the_best_trials_and_their_changes(table: Path, tmp_path: Path) -> None:
    shown = succeed("tune", table, "--model", "ease", "--trials", 3, "--out", tmp_path / "t")
    assert "ease on tastes" in shown
    assert "model.l2=" in shown
    assert "as given" in shown
    assert f"mgformer train --config {tmp_path / 't' / BEST}" in shown


def test_no_trial_starts_after_the_timeout(table: Path, tmp_path: Path) -> None:
    for _ in range(2):  # one is made, so that there is a result
        assert len(tune(described(table), tmp_path, 50, timeout=1e-9).trials) == 1


def test_other_options_or_data_are_refused(table: Path, tmp_path: Path) -> None:
    tune(described(table), tmp_path / "t", 1)
    with pytest.raises(ConfigError, match=r"has model\.l2 = 250\.0, expected 3\.0; delete it"):
        tune(described(table, options={"l2": 3}), tmp_path / "t", 2)
    other = tmp_path / "tastes.csv"
    other.write_text(table.read_text() + "u0,i59\n")
    config = described(table)
    with pytest.raises(ConfigError, match="trained on other data"):
        tune(config, tmp_path / "t", 2, dataset=prepare(described(other)).dataset)
    trials = tmp_path / "t" / "trials.json"
    trials.write_text(trials.read_text().replace('"model.l2": 250.0', '"model.l2": 1e9'))
    with pytest.raises(ConfigError, match="outside the search space"):
        tune(config, tmp_path / "t", 2)
    trials.write_text("{}")
    with pytest.raises(BundleError, match="damaged, not a list of trials"):
        tune(config, tmp_path / "t", 2)


def test_bad_arguments(table: Path, tmp_path: Path) -> None:
    for arguments, expected in {
        ("--model", "popularity"): "popularity has no options to tune",
        ("--model", "ease", "--set", "model.l2=3"): "--set fixes all of them",
        ("--model", "eease"): "did you mean ease?",
        ("--model", "ease", "--trials", "0"): "--trials must be at least 1, got 0",
        ("--model", "ease", "--timeout", "0"): "--timeout must be above 0, got 0",
        ("--model", "ease", "--set", "split.valid=0"): "tastes: has no validation part to tune on",
        ("--config", str(tmp_path / "none.toml")): "no such config file",
    }.items():
        assert_one_line(mgformer("tune", table, "--out", tmp_path / "x", *arguments), expected)
    assert not (tmp_path / "x").exists()
    with pytest.raises(DataError, match="no validation part"):
        tune(described(table, split={"valid": 0}), tmp_path / "x", 1)
