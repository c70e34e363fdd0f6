"""Runs on disk, trained once: one that is there is not repeated, one that was interrupted goes on.

Models without training leave their record and their users' figures only: EASE's weights alone can
take six gigabytes.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from mgformer.bundle import save_bundle
from mgformer.config import RunConfig
from mgformer.data.dataset import Dataset
from mgformer.errors import BundleError, ConfigError
from mgformer.models import MODELS
from mgformer.models.base import TrainableModel
from mgformer.pipeline import train
from mgformer.training.checkpoint import remove_checkpoint

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


def find(folder: Path) -> Run | None:
    """Return the finished run in `folder`, None if there is none."""
    path = folder / RECORD
    return Run(folder, json.loads(path.read_text())) if path.exists() else None


def ensure(config: RunConfig, folder: Path, dataset: Dataset | None = None) -> Run:
    """Return the run in `folder`, training it if it is not there.

    Args:
        config: The run; one that is there must have been made with it.
        folder: Where it is, or is to be.
        dataset: Stands in for `config.dataset`.
    """
    found = find(folder)
    if found is not None:
        _check_same(found, config)
        return found
    bundle = train(config, dataset, folder=folder, resume=True)
    if issubclass(MODELS[config.model_name], TrainableModel):
        save_bundle(bundle, folder)
        remove_checkpoint(folder)
    folder.mkdir(parents=True, exist_ok=True)
    if bundle.per_user is not None:
        bundle.per_user.write_parquet(folder / PER_USER)
    # The record comes last: with it the run is there.
    draft = folder / f"{RECORD}.part"
    draft.write_text(json.dumps(bundle.record, indent=2))
    os.replace(draft, folder / RECORD)
    return Run(folder, bundle.record)


def _check_same(found: Run, config: RunConfig) -> None:
    """Refuse to pass off a run as one of other options."""
    wanted = flat(config.to_mapping())
    there = {**wanted, **flat(found.record["config"])}
    for name in sorted(there):
        if there[name] != wanted.get(name):
            raise ConfigError(
                f"{found.folder}: the run there has {name} = {there[name]!r}, wanted is"
                f" {wanted.get(name)!r}; delete it, or choose another folder"
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
