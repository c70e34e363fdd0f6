"""Runs on disk: read what a finished run says about itself, and train a run that is missing.

Models without training steps keep only their record and their figures per user: the weights of EASE
alone can take six gigabytes.
"""

import json
import logging
import os
from pathlib import Path
from statistics import median
from typing import NamedTuple

import polars as pl

from mgformer.data.dataset import Dataset
from mgformer.data.formats.parquet_check import check_parquet
from mgformer.data.formats.values import POLARS_ERRORS, first_line
from mgformer.data.splits import Split
from mgformer.errors import BundleError, ConfigError, MgformerError
from mgformer.files import replacing, write_text
from mgformer.locks import locked
from mgformer.runs.bundle import Bundle
from mgformer.runs.bundle_files import MANIFEST, load_bundle, load_record, save_bundle
from mgformer.runs.config import RunConfig, build_config, different_options
from mgformer.runs.record import Record, read_record
from mgformer.runs.train import train
from mgformer.training.checkpoint import has_checkpoint, remove_checkpoint
from mgformer.training.log import Entry, keep_log, read_log

RECORD = "record.json"
PER_USER = "per_user.parquet"
log = logging.getLogger("mgformer")


class Run(NamedTuple):
    """A finished run."""

    folder: Path
    record: Record

    def bundle(self) -> Bundle | None:
        """Load the trained recommender; None if only figures were kept."""
        return load_bundle(self.folder) if (self.folder / MANIFEST).is_file() else None

    @property
    def per_user(self) -> pl.DataFrame:
        """Test metrics of each user, with the column `user`."""
        path = self.folder / PER_USER
        if path.exists():
            try:
                content = path.read_bytes()
                check_parquet(content)
                return pl.read_parquet(content)
            except (*POLARS_ERRORS, ValueError) as error:
                problem = f"{path}: damaged ({first_line(error)})"
        else:
            problem = f"{self.folder}: has no figures per user"
        bundle = self.bundle()
        if bundle is None or bundle.per_user is None:
            raise BundleError(f"{problem}; delete {self.folder} and run again")
        return bundle.per_user

    @property
    def log(self) -> list[Entry]:
        """What was logged of each epoch; empty for a model without epochs."""
        if not self.record.epochs:  # a log may be left from another model in this folder
            return []
        try:
            return read_log(self.folder)
        except ValueError:
            raise BundleError(f"{self.folder}: its log is damaged; delete log.jsonl") from None

    @property
    def seconds_per_epoch(self) -> float | None:
        """Median training time of an epoch; None for a model without epochs."""
        times = [entry["seconds"] for entry in self.log if entry["stage"] == "select"]
        return median(times) if times else None

    @property
    def seconds_to_best(self) -> float:
        """Seconds of training up to the best epoch, with preparation and validation."""
        after = (
            entry["seconds"] + entry.get("validation_seconds", 0.0)
            for entry in self.log
            if entry["stage"] != "select" or entry["epoch"] > self.record.epochs
        )
        return self.record.seconds["train"] - sum(after)


class Found(NamedTuple):
    """The runs below a folder."""

    runs: list[Run]
    unreadable: list[str]
    """Why other runs below the folder could not be read."""


def is_run(folder: Path) -> bool:
    """Whether the folder itself holds a run."""
    return any((folder / name).is_file() for name in (MANIFEST, RECORD))


def read_run(folder: Path) -> Run:
    """Read the record of the run in a folder."""
    if (folder / MANIFEST).is_file():
        return Run(folder, load_record(folder))
    path = folder / RECORD
    try:
        return Run(folder, read_record(json.loads(path.read_text(encoding="utf-8")), str(path)))
    except ValueError as error:
        if isinstance(error, MgformerError):
            raise
        raise BundleError(f"{path}: damaged, not valid JSON; train it again") from None


def find_run(folder: Path) -> Run | None:
    """Return the finished run in a folder; None if there is none."""
    return read_run(folder) if (folder / RECORD).exists() else None


def runs_below(folder: Path) -> Found:
    """Read all runs below a folder, in the order of their paths."""
    found = Found([], [])
    for name, below, _ in os.walk(folder):
        below.sort()
        if not is_run(Path(name)):
            continue
        try:
            found.runs.append(read_run(Path(name)))
        except MgformerError as error:
            found.unreadable.append(str(error))
    if not found.runs:
        why = f" ({found.unreadable[0]})" if found.unreadable else ""
        raise BundleError(
            f"{folder}: no run here or below{why}; train one with: mgformer train --out {folder}"
        )
    return found


def ensure_run(
    config: RunConfig,
    folder: Path,
    dataset: Dataset | None = None,
    *,
    split: Split | None = None,
    keep: bool = False,
) -> Run:
    """Return the run in `folder`; train it if it is missing, resume it if it was interrupted.

    Args:
        config: The run. An existing run must have the same config.
        folder: Where the run is stored.
        dataset: Used instead of reading `config.dataset`. An existing run must be trained on it.
        split: Used instead of splitting `dataset`.
        keep: Keep the trained recommender also of a model without training steps.
    """
    run = _usable_run(folder)
    if run is not None:
        check_config(folder, run.record.config, config)
        if dataset is not None and not config.warm_start:  # which adds the data of the run before
            check_data(folder, run.record.fingerprint, dataset.fingerprint)
        if not keep or (folder / MANIFEST).is_file():
            return run
    with locked(folder):
        bundle = train(config, dataset, split=split, folder=folder, resume=has_checkpoint(folder))
        if config.trainable or keep:
            save_bundle(bundle, folder)
            keep_log(folder)
        if bundle.per_user is not None:
            with replacing(folder / PER_USER) as draft:
                bundle.per_user.write_parquet(draft)
        # The record is written last: a folder with a record holds a whole run.
        write_text(folder / RECORD, json.dumps(bundle.record.to_mapping(), indent=2))
        remove_checkpoint(folder)
    return Run(folder, bundle.record)


def _usable_run(folder: Path) -> Run | None:
    """Return the finished run in a folder; None if there is none, or only damaged figures."""
    try:
        run = find_run(folder)
        if run is not None and run.record.test:
            _ = run.per_user
    except BundleError:
        if (folder / MANIFEST).is_file():  # a trained recommender is never thrown away
            raise
        log.warning("%s: the figures of the run there are damaged; running it again", folder)
        return None
    return run


def check_config(folder: Path, stored: dict[str, object], wanted: RunConfig) -> None:
    """Refuse a stored run that has other options than the wanted one."""
    known = build_config(stored, str(folder), trusted=False).to_mapping()
    for name, (old, new) in different_options(known, wanted.to_mapping()).items():
        raise ConfigError(
            f"{folder}: the run there has {name} = {old!r}, expected {new!r}; delete it, or choose"
            " another folder"
        )


def check_data(folder: Path, stored: str, wanted: str) -> None:
    """Refuse a stored run on data with another fingerprint than the wanted one."""
    if stored != wanted:
        raise ConfigError(
            f"{folder}: the run there was trained on other data ({stored}), expected {wanted};"
            " delete it, or choose another folder"
        )
