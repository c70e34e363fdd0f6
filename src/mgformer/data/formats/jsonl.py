"""Read JSON lines: one JSON object per line, packed or not."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from mgformer.data.formats.checks import check_columns
from mgformer.data.formats.columns import Role, find_columns
from mgformer.data.formats.packed import read_bytes
from mgformer.data.formats.reading import Reading
from mgformer.data.formats.text import NOT_UTF8, decode, is_broken
from mgformer.data.formats.values import check_values
from mgformer.data.options import DataConfig
from mgformer.errors import DataError


def read_jsonl(path: Path, options: DataConfig) -> tuple[pl.DataFrame, Reading]:
    """Read JSON lines with Python's parser; polars would turn numbers among text into text."""
    names: dict[Role, str] = {}
    values: dict[Role, list[Any]] = {}
    lines: list[int] = []
    reading = Reading(str(path), lines, skip=options.on_error == "skip")
    for line, record in json_records(path, options.max_unpacked, reading):
        lines.append(line)
        if not names:
            keys = list(record)
            found = find_columns(keys, options, reading.place(0), reading)
            names = {role: keys[at] for role, at in found.items()}
            values = {role: [] for role in names}
        for role, name in names.items():
            values[role].append(record.get(name))
    if not lines:
        raise DataError(
            f"{path}: got {'no usable line' if reading.num_skipped else 'an empty file'}, expected "
            "one JSON object per line"
        )
    frame = pl.DataFrame([check_values(column, role, reading) for role, column in values.items()])
    return check_columns(frame, options, reading), reading


def json_records(
    path: Path, gigabytes: float | None = None, reading: Reading | None = None
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield each object of a file of JSON lines with its line number."""
    reading = reading or Reading(str(path))
    text = decode(read_bytes(path, gigabytes=gigabytes), path, tolerant=reading.skip)
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        remedy = "correct or remove the line"
        try:
            record = json.loads(line)
        # A number of more than 4,300 digits is a ValueError, and deep nesting a RecursionError.
        except (ValueError, RecursionError) as error:
            reason = error.msg if isinstance(error, json.JSONDecodeError) else error
            problem = f"got {line.strip()[:60]!r}, expected a JSON object ({reason})"
        else:
            problem = ""
            if not isinstance(record, dict):
                problem = (
                    f"got a JSON {type(record).__name__}, expected an object with a user and an "
                    "item on every line"
                )
                remedy = "write one object per line"
        problem = NOT_UTF8 if is_broken(line) else problem
        if problem:
            reading.refuse_line(number, problem, remedy)
        else:
            yield number, record
