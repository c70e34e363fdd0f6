"""Runs are trained once, and a run with other options or data is refused."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mgformer.data.dataset import open_dataset
from mgformer.errors import BundleError, BusyError, ConfigError
from mgformer.locks import locked
from mgformer.runs.config import RunConfig, build_config
from mgformer.runs.folder import Run, ensure_run, find_run
from mgformer.runs.train import train


def described(table: Path, model: str = "bprmf", **options: object) -> RunConfig:
    training = {"epochs": 4, "patience": 2, "batch_size": 128}
    return build_config(
        {"dataset": str(table), "model": {"name": model, **options}, "train": training}
    )


@pytest.fixture(scope="module")
def run(table: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return ensure_run(described(table, dim=8), tmp_path_factory.mktemp("runs") / "bprmf")


def test_a_run_equals_its_training_and_is_not_repeated(run: Run, table: Path) -> None:
    bundle = train(described(table, dim=8))
    assert run.record.test == bundle.record.test
    assert bundle.per_user is not None
    assert run.per_user.equals(bundle.per_user)
    before = {path: path.stat().st_mtime_ns for path in run.folder.iterdir()}
    assert ensure_run(described(table, dim=8), run.folder) == run
    assert {path: path.stat().st_mtime_ns for path in run.folder.iterdir()} == before
    assert find_run(run.folder / "elsewhere") is None


def test_times_come_from_the_log(run: Run) -> None:
    lines = (run.folder / "log.jsonl").read_text().splitlines()
    entries = [json.loads(line) for line in lines]
    seconds = [entry["seconds"] for entry in entries]
    assert min(seconds) <= (run.seconds_per_epoch or 0) <= max(seconds)
    after = entries[run.record.epochs :]
    spent = sum(entry["seconds"] + entry["validation_seconds"] for entry in after)
    assert run.seconds_to_best == pytest.approx(run.record.seconds["train"] - spent)
    assert run.seconds_to_best > sum(seconds[: run.record.epochs])  # preparing counts
    assert run.record.peak_mb is None or run.record.peak_mb > 50


def test_epochs_of_a_refit_are_not_counted(table: Path, tmp_path: Path) -> None:
    raw = {**described(table, dim=8).to_mapping(), "split": {"refit": True}}
    refit = ensure_run(build_config(raw), tmp_path / "run")
    again = [entry["seconds"] for entry in refit.log if entry["stage"] == "refit"]
    assert again
    assert refit.seconds_to_best < refit.record.seconds["train"] - sum(again) + 1e-9


def test_a_model_without_epochs_has_one_time(table: Path, tmp_path: Path) -> None:
    floor = ensure_run(described(table, "ease"), tmp_path / "ease")
    assert floor.seconds_per_epoch is None
    assert floor.seconds_to_best == floor.record.seconds["train"]
    assert not (tmp_path / "ease" / "bundle.json").exists()


def test_a_recommender_without_epochs_is_kept_if_asked_for(table: Path, tmp_path: Path) -> None:
    config, place = described(table, "ease"), tmp_path / "ease"
    first = ensure_run(config, place)
    assert first.bundle() is None
    kept = ensure_run(config, place, keep=True)
    assert kept.bundle() is not None
    assert kept.record.test == first.record.test
    before = (place / "record.json").stat().st_mtime_ns
    ensure_run(config, place, keep=True)
    assert (place / "record.json").stat().st_mtime_ns == before


def test_a_run_with_other_options_or_data_is_refused(run: Run, table: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"has model\.dim = 8, expected 16; delete it"):
        ensure_run(described(table, dim=16), run.folder)
    other = tmp_path / "other.csv"
    other.write_text(table.read_text() + "u0,i59\n")
    with pytest.raises(ConfigError, match="trained on other data"):
        ensure_run(described(table, dim=8), run.folder, open_dataset(str(other)))


def test_an_unset_option_differs_from_a_set_one(table: Path, tmp_path: Path) -> None:
    small = {"dim": 8, "num_negatives": 5}
    ensure_run(described(table, "ultragcn", **small), tmp_path / "run")
    with pytest.raises(ConfigError, match=r"negative_weight = None, expected 3\.0"):
        ensure_run(described(table, "ultragcn", **small, negative_weight=3), tmp_path / "run")


def test_missing_figures_per_user(run: Run, tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="has no figures per user"):
        _ = Run(tmp_path, run.record).per_user


def test_damaged_figures_are_made_again(
    table: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config, place = described(table, "ease"), tmp_path / "ease"
    first = ensure_run(config, place)
    expected = first.per_user
    for name in ("per_user.parquet", "record.json"):
        (place / name).write_bytes(b"")
        caplog.clear()
        again = ensure_run(config, place)
        assert again.record.test == first.record.test
        assert again.per_user.equals(expected)
        (warning,) = (r.getMessage() for r in caplog.records if r.levelname == "WARNING")
        assert warning == f"{place}: the figures of the run there are damaged; running it again"
    (place / "per_user.parquet").write_bytes(b"")
    with pytest.raises(BundleError, match=r"per_user\.parquet: damaged .* run again"):
        _ = first.per_user


def test_a_trained_recommender_replaces_damaged_figures_and_is_not_trained_again(
    run: Run, table: Path, tmp_path: Path
) -> None:
    place = tmp_path / "run"
    shutil.copytree(run.folder, place)
    for name in ("per_user.parquet", "record.json"):
        (place / name).write_bytes(b"")
    before = (place / "bundle.json").stat().st_mtime_ns
    assert ensure_run(described(table, dim=8), place).per_user.equals(run.per_user)
    assert (place / "bundle.json").stat().st_mtime_ns == before
    (place / "bundle.json").write_text("{")
    with pytest.raises(BundleError, match="damaged, not valid JSON"):
        ensure_run(described(table, dim=8), place)


def test_a_run_that_another_process_trains_is_refused(table: Path, tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as other, locked(tmp_path / "run"):
        asked = other.submit(ensure_run, described(table, "ease"), tmp_path / "run")
        with pytest.raises(BusyError, match=r"run: process \d+ is writing there"):
            asked.result()
