"""The runs that a report is about: one, or all that are somewhere below a folder."""

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

from mgformer.errors import BundleError, MgformerError
from mgformer.experiments.runs import RECORD
from mgformer.runs.bundle import MANIFEST, Bundle, load_bundle, read_record
from mgformer.training.log import Entry, read_journal

NEEDED = ("model", "dataset", "fingerprint", "protocol", "seed", "test", "config")


class Told(NamedTuple):
    """What a finished run tells of itself."""

    folder: Path
    record: dict[str, Any]
    log: list[Entry]
    """What was logged of each epoch; empty for a model that is not trained step by step."""

    def bundle(self) -> Bundle | None:
        """Load the trained recommender; None where only figures were kept."""
        return load_bundle(self.folder) if (self.folder / MANIFEST).is_file() else None


class Found(NamedTuple):
    """The runs below a folder."""

    runs: list[Told]
    unreadable: list[str]
    """What is wrong with those that are left out."""


def is_run(folder: Path) -> bool:
    """Whether there is a run in the folder itself."""
    return any((folder / name).is_file() for name in (MANIFEST, RECORD))


def read_run(folder: Path) -> Told:
    """Read what the run in a folder tells of itself."""
    bundled = (folder / MANIFEST).is_file()
    record = read_record(folder) if bundled else _read_json(folder / RECORD)
    missing = [name for name in NEEDED if name not in record]
    if missing:
        raise BundleError(
            f"{folder}: says nothing of its {', '.join(missing)}; it was not made by"
            " mgformer train: train it again"
        )
    # A log may be left from a model trained into this folder before.
    trained = bool(record.get("epochs"))
    try:
        log = read_journal(folder) if trained else []
    except ValueError:
        raise BundleError(f"{folder}: its log is damaged; delete log.jsonl") from None
    return Told(folder, record, log)


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


def _read_json(path: Path) -> dict[str, Any]:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        record = None
    if not isinstance(record, dict):
        raise BundleError(f"{path}: damaged, not the JSON that was written; train it again")
    return record
