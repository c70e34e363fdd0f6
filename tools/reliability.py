"""What was tried to break a promise, and what was lost: rows of results/reliability/*.json.

A file is a JSON list of rows. Tools that fuzz, kill, fail calls or mutate code write one file each.
"""

import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from pydantic import BaseModel, ConfigDict, NonNegativeInt, TypeAdapter

from mgformer.experiments.tables import Table
from tools.store import RESULTS, ROOT

FOLDER = RESULTS / "reliability"
NOT_TRIED = "Not tried yet.\n"


class Row(BaseModel):
    """One promise, and how often it was put to the test."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    promise: str
    """What must not happen, or must always happen, in one sentence."""
    test: str
    """The test or tool that tries to break it, as a path in the repository."""
    kind: str
    """What `tried` counts: kills, faults, inputs, requests, mutants, races, seconds."""
    tried: NonNegativeInt
    lost: NonNegativeInt
    """How often the promise was broken; 0 is what we want."""
    note: str = ""
    commit: str = ""
    """Commit of the code that was tried."""
    date: str = ""
    """Day of the trial, YYYY-MM-DD."""


ROWS = TypeAdapter(list[Row])


def save_rows(name: str, rows: Sequence[Row], folder: Path = FOLDER) -> None:
    """Write rows to results/reliability/NAME.json, with today's date and the commit of the code."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12"]
    commit = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    today = datetime.now(UTC).date().isoformat()
    stamped = [
        row.model_copy(update={"commit": row.commit or commit, "date": row.date or today})
        for row in rows
    ]
    folder.mkdir(parents=True, exist_ok=True)
    text = ROWS.dump_json(stamped, indent=1).decode()
    (folder / f"{name}.json").write_text(f"{text}\n", encoding="utf-8")


def rows_of(name: str, folder: Path = FOLDER) -> list[Row]:
    """Return the rows of results/reliability/NAME.json, none if there is no such file."""
    path = folder / f"{name}.json"
    return ROWS.validate_json(path.read_bytes()) if path.is_file() else []


def read_rows(folder: Path = FOLDER) -> list[Row]:
    """Return the rows of all files, in the order of their names."""
    files = sorted(folder.glob("*.json"))
    return [row for path in files for row in ROWS.validate_json(path.read_bytes())]


def promises(folder: Path = FOLDER) -> str:
    """Return every promise with the test that holds it, and what was lost."""
    rows = read_rows(folder)
    if not rows:
        return NOT_TRIED
    lines = [
        [
            row.promise + (f" ({row.note})" if row.note else ""),
            f"`{row.test}`",
            f"{row.tried:,} {row.kind}",
            f"{row.lost:,}",
            f"{row.date}, {row.commit}",
        ]
        for row in rows
    ]
    return Table(["promise", "test", "tried", "lost", "when, commit"], lines).markdown()


def totals(folder: Path = FOLDER) -> str:
    """Return how much was tried of each kind, and what was lost."""
    counts: dict[str, tuple[int, int]] = {}
    for row in read_rows(folder):
        tried, lost = counts.get(row.kind, (0, 0))
        counts[row.kind] = tried + row.tried, lost + row.lost
    if not counts:
        return NOT_TRIED
    lines = [[kind, f"{tried:,}", f"{lost:,}"] for kind, (tried, lost) in counts.items()]
    return Table(["what", "tried", "lost"], lines).markdown()
