"""Read JSON lines: one JSON object per line, packed or not."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from mgformer.data.formats.columns import Role, check_columns, find_columns
from mgformer.data.formats.packed import read_bytes
from mgformer.data.formats.text import decode
from mgformer.data.formats.values import check_values
from mgformer.data.options import DataConfig
from mgformer.errors import DataError


def read_jsonl(path: Path, options: DataConfig) -> pl.DataFrame:
    """Read JSON lines with Python's parser; polars would turn numbers among text into text."""
    names: dict[Role, str] = {}
    values: dict[Role, list[Any]] = {}
    lines: list[int] = []

    def place(row: int) -> str:
        return f"{path}:{lines[row]}"

    for line, record in json_records(path, options.max_unpacked):
        lines.append(line)
        if not names:
            keys = list(record)
            names = {role: keys[at] for role, at in find_columns(keys, options, place(0)).items()}
            values = {role: [] for role in names}
        for role, name in names.items():
            values[role].append(record.get(name))
    if not lines:
        raise DataError(f"{path}: got an empty file, expected one JSON object per line")
    frame = pl.DataFrame([check_values(column, role, place) for role, column in values.items()])
    return check_columns(frame, options, str(path), place)


def json_records(
    path: Path, gigabytes: float | None = None
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield each object of a file of JSON lines with its line number."""
    text = decode(read_bytes(path, gigabytes=gigabytes), path)
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        # A number of more than 4,300 digits is a ValueError, and deep nesting a RecursionError.
        except (ValueError, RecursionError) as error:
            reason = error.msg if isinstance(error, json.JSONDecodeError) else error
            raise DataError(
                f"{path}:{number}: got {line.strip()[:60]!r}, expected a JSON object "
                f"({reason}); correct or remove the line"
            ) from None
        if not isinstance(record, dict):
            raise DataError(
                f"{path}:{number}: got a JSON {type(record).__name__}, expected an object with a "
                "user and an item on every line; write one object per line"
            )
        yield number, record
