"""Runs on disk, shared by the scripts that write documents from them.

A run that is there already is not repeated, and one that was interrupted goes on. Models without
training leave their record only: EASE's weights alone would take six gigabytes.
"""

import json
from pathlib import Path
from typing import Any

from mgformer.bundle import MANIFEST, save_bundle
from mgformer.cli.console import working
from mgformer.config import RunConfig
from mgformer.models import MODELS
from mgformer.models.base import TrainableModel
from mgformer.pipeline import train
from mgformer.training.checkpoint import remove_checkpoint

ROOT = Path(__file__).parent.parent
RECORD = "record.json"


def record_of(folder: Path) -> dict[str, Any] | None:
    """Return the record of a finished run, None if there is none."""
    if (folder / RECORD).exists():
        return json.loads((folder / RECORD).read_text())
    if (folder / MANIFEST).exists():
        return json.loads((folder / MANIFEST).read_text())["record"]
    return None


def ensure(config: RunConfig, folder: Path) -> dict[str, Any]:
    """Return the record of the run in `folder`, training it if it is not there."""
    found = record_of(folder)
    if found is not None:
        return found
    print(f"training {folder}", flush=True)
    with working():
        bundle = train(config, folder=folder, resume=True)
        if issubclass(MODELS[config.model_name], TrainableModel):
            save_bundle(bundle, folder)
            remove_checkpoint(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / RECORD).write_text(json.dumps(bundle.record, indent=2))
    return bundle.record
