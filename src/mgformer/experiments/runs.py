"""Runs on disk, trained once: one that is there is not repeated, one that was interrupted goes on.

Models without training leave their record and their users' figures only: EASE's weights alone can
take six gigabytes.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import polars as pl

from mgformer.data.dataset import Dataset
from mgformer.errors import BundleError, ConfigError
from mgformer.models import MODELS
from mgformer.models.base import TrainableModel
from mgformer.runs.bundle import save_bundle, write_whole
from mgformer.runs.config import RunConfig, build_config
from mgformer.runs.train import train
from mgformer.training.checkpoint import has_checkpoint, remove_checkpoint
from mgformer.training.log import Entry, read_journal

RECORD = "record.json"
PER_USER = "per_user.parquet"


class Run(NamedTuple):
    """What a finished run says of itself."""

    folder: Path
    record: dict[str, Any]
    """As in the bundle: model, config, dataset, protocol, seed, figures, seconds, commit."""

    @property
    def per_user(self) -> pl.DataFrame:
        """Test metrics of each user, with the column `user`."""
        path = self.folder / PER_USER
        if not path.exists():
            raise BundleError(f"{self.folder}: has no figures per user; delete it and run again")
        return pl.read_parquet(path)

    @property
    def seconds_per_epoch(self) -> float | None:
        """Training time of the epoch in the middle; None for a model without epochs."""
        times = [entry["seconds"] for entry in self.journal if entry["stage"] == "select"]
        return median(times) if times else None

    @property
    def seconds_to_best(self) -> float:
        """How long training took, what it prepares and validates with it, up to the best epoch."""
        after = (
            entry["seconds"] + entry.get("validation_seconds", 0.0)
            for entry in self.journal
            if entry["stage"] != "select" or entry["epoch"] > self.record["epochs"]
        )
        return float(self.record["seconds"]["train"]) - sum(after)

    @property
    def journal(self) -> list[Entry]:
        """What was logged of each epoch; nothing for a model without epochs."""
        return read_journal(self.folder)


def find(folder: Path) -> Run | None:
    """Return the finished run in `folder`, None if there is none."""
    path = folder / RECORD
    return Run(folder, json.loads(path.read_text())) if path.exists() else None


def ensure(config: RunConfig, folder: Path, dataset: Dataset | None = None) -> Run:
    """Return the run in `folder`, training it if it is not there.

    Args:
        config: The run; one that is there must have been made with it.
        folder: Where it is, or is to be.
        dataset: Stands in for `config.dataset`; a run that is there must have been made of it.
    """
    found = find(folder)
    if found is not None:
        check_config(folder, found.record["config"], config)
        if dataset is not None and not config.warm_start:  # which adds the data of a run before
            check_data(folder, found.record["fingerprint"], dataset.fingerprint)
        return found
    bundle = train(config, dataset, folder=folder, resume=has_checkpoint(folder))
    if issubclass(MODELS[config.model_name], TrainableModel):
        save_bundle(bundle, folder)
    folder.mkdir(parents=True, exist_ok=True)
    if bundle.per_user is not None:
        bundle.per_user.write_parquet(folder / PER_USER)
    # The record comes last: with it the run is there.
    write_whole(folder / RECORD, json.dumps(bundle.record, indent=2))
    remove_checkpoint(folder)
    return Run(folder, bundle.record)


def check_config(folder: Path, there: Mapping[str, Any], wanted: RunConfig) -> None:
    """Refuse to pass off what was made with the options `there` as made with others."""
    old, new = flat(build_config(there, str(folder)).to_mapping()), flat(wanted.to_mapping())
    for name in sorted({*old, *new}):
        if old.get(name) != new.get(name):
            raise ConfigError(
                f"{folder}: what is there has {name} = {old.get(name)!r}, wanted is"
                f" {new.get(name)!r}; delete it, or choose another folder"
            )


def check_data(folder: Path, there: str, wanted: str) -> None:
    """Refuse to pass off what was made of the data with the fingerprint `there` as of others."""
    if there != wanted:
        raise ConfigError(
            f"{folder}: what is there was made of other data ({there}) than these ({wanted});"
            " delete it, or choose another folder"
        )


def flat(mapping: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return a nested mapping as one level with dotted names."""
    result: dict[str, Any] = {}
    for name, value in mapping.items():
        if isinstance(value, Mapping):
            result |= flat(value, f"{prefix}{name}.")
        else:
            result[f"{prefix}{name}"] = value
    return result
