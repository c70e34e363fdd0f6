"""What `mgformer datasets show` finds out about a dataset, as one JSON object."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from mgformer.data.attributes import Attributes
from mgformer.data.chronology import dispersion
from mgformer.data.dataset import Dataset, open_dataset, with_catalog
from mgformer.data.entries import CATALOG
from mgformer.data.formats.reading import FEW, Reading, unsaid
from mgformer.data.formats.times import moment
from mgformer.data.likes import ratings_of
from mgformer.data.options import DataConfig
from mgformer.data.preview import Preview, preview
from mgformer.errors import DataError

LIKES = "likes"
"""What a column of ratings is taken as if every row counts, whatever its rating."""
MOST_RANDOM = 1.5
"""Up to this dispersion, given parts count as a random split."""


def facts_of(name: str, options: DataConfig) -> tuple[dict[str, Any], str | None]:
    """Return the facts about a dataset; also the reason if it cannot be read to the end.

    Of a file that cannot be read, there are still the first rows.
    """
    path = Path(name)
    try:
        with unsaid():
            dataset = open_dataset(name, options)
    except DataError as error:
        if name in CATALOG or not path.is_file():
            raise
        return _of_columns(preview(path, options)), str(error)
    facts: dict[str, Any] = {}
    known = with_catalog(name, options) if name in CATALOG else options
    if dataset.readings:
        first = dataset.readings[0]
        if Path(first.source).is_file():
            facts |= _of_columns(preview(Path(first.source), known))
            facts |= _of_ratings(Path(first.source), known, first)
        facts |= _of_reading(dataset.readings)
    return facts | _of_pairs(dataset), None


def _of_columns(found: Preview) -> dict[str, Any]:
    roles = {column: role for role, column in found.columns.items()}
    if found.unused_ratings is not None:
        roles[found.unused_ratings] = LIKES
    return {
        "file": str(found.file),
        "format": found.format,
        **({} if found.separator is None else {"separator": found.separator}),
        "columns": [
            {"name": name, "taken_as": "?" if found.problem else roles.get(name, "ignored")}
            for name in found.names
        ],
        "sample": [list(row) for row in found.rows],
        **({"problem": found.problem} if found.problem else {}),
        **({"candidates": found.candidates, "try": found.settings} if found.candidates else {}),
    }


def _of_reading(readings: Any) -> dict[str, Any]:
    notes = dict.fromkeys(note for reading in readings for note in reading.notes)
    skipped = sum(reading.num_skipped for reading in readings)
    first = [line for reading in readings for line in reading.first_skipped]
    return {
        "notes": [*notes],
        "left_out": {"rows": skipped, "first": first[:FEW]},
    }


def _of_ratings(path: Path, options: DataConfig, reading: Reading) -> dict[str, Any]:
    column = reading.columns.get("rating", reading.unused_ratings)
    found = None if column is None else ratings_of(path, options, column)
    if found is None:
        return {}
    used = options.min_rating is not None
    about: dict[str, Any] = {**asdict(found), "treated_as_likes": not used}
    if used or found.least is None:
        del about["least"], about["pairs_left"]
    else:
        about["try"] = f"data.min_rating={found.least:g}"
    return {"ratings": about}


def _of_pairs(dataset: Dataset) -> dict[str, Any]:
    pairs = dataset.interactions
    return {
        "dataset": dataset.name,
        "users": pairs.num_users,
        "items": pairs.num_items,
        "interactions": len(pairs),
        "duplicates": pairs.duplicates,
        "density": len(pairs) / (pairs.num_users * pairs.num_items),
        "order": _order(dataset),
        **_times(dataset),
        "names": dataset.about_items.names is not None,
        "attributes": _kinds(dataset.about_items),
        "attributes of users": _kinds(dataset.about_users),
        "parts": {part: len(p) for part, p in (dataset.parts or {}).items()},
        **_split_facts(dataset),
        "fingerprint": dataset.fingerprint,
    }


def _times(dataset: Dataset) -> dict[str, Any]:
    """Return the first and the last time, as dates if the unit is known."""
    times = dataset.interactions.times
    if times is None or not len(times):
        return {}
    unit = dataset.readings[0].time_unit if dataset.readings else None
    first, last = times.min().item(), times.max().item()
    return {
        "times": {
            "from": moment(first, unit) or first,
            "to": moment(last, unit) or last,
            "written_as": unit or "numbers of an unknown unit",
        }
    }


def _order(dataset: Dataset) -> str:
    pairs = dataset.interactions
    if pairs.times is not None:
        return "by times"
    return "by rows of the file" if pairs.places is not None else "not known"


def _split_facts(dataset: Dataset) -> dict[str, object]:
    """Return how unevenly items fall into the given test part, and what follows from it."""
    parts = dataset.parts or {}
    found = dispersion(parts["train"], parts["test"]) if {"train", "test"} <= set(parts) else None
    if found is None:
        return {}
    if found < MOST_RANDOM:
        advice = "as a random split has it: validate on random items, split.valid_kind=random"
    elif dataset.interactions.order is None:
        advice = "a random split has 1, so test is later than train: give the times or the order"
    else:
        advice = "a random split has 1, so test is later than train: validate on the last items"
    return {"dispersion": round(found, 1), "advice": advice}


def _kinds(about: Attributes) -> dict[str, str]:
    """Return what each column about items or users holds."""
    return {name: own.kind + " (private)" * own.private for name, own in about.items()}
