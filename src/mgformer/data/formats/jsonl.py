"""Read JSON lines: one JSON object per line, gzipped or not."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from mgformer.data.formats.columns import Role, check_columns, find_columns, refuse_mixed_types
from mgformer.data.formats.text import decode, read_bytes
from mgformer.data.options import DataConfig
from mgformer.errors import DataError


def read_jsonl(path: Path, options: DataConfig) -> pl.DataFrame:
    """Read JSON lines with Python's parser; polars would turn numbers among text into text."""
    names: dict[Role, str] = {}
    values: dict[Role, list[Any]] = {}
    lines: list[int] = []

    def place(row: int) -> str:
        return f"{path}:{lines[row]}"

    for line, record in json_records(path):
        lines.append(line)
        if not names:
            keys = list(record)
            names = {role: keys[at] for role, at in find_columns(keys, options, place(0)).items()}
            values = {role: [] for role in names}
        for role, name in names.items():
            values[role].append(record.get(name))
    if not lines:
        raise DataError(f"{path}: got an empty file, expected one JSON object per line")
    for role, column in values.items():
        refuse_mixed_types(column, role, place)
    frame = pl.DataFrame([pl.Series(role, column, strict=False) for role, column in values.items()])
    return check_columns(frame, options, str(path), place)


def json_records(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield each object of a file of JSON lines with its line number."""
    for number, line in enumerate(decode(read_bytes(path), path).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            raise DataError(
                f"{path}:{number}: got {line.strip()[:60]!r}, expected a JSON object "
                f"({error.msg}); correct or remove the line"
            ) from None
        if not isinstance(record, dict):
            raise DataError(
                f"{path}:{number}: got a JSON {type(record).__name__}, expected an object with a "
                "user and an item on every line; write one object per line"
            )
        yield number, record
