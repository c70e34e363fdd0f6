"""From a file or a data frame to the columns `user`, `item` and, where there are, `time`, `weight`.

Formats: delimited text, Parquet, JSON lines, LightGCN's lists, RecBole's .inter, and polars or
pandas frames in memory. Text formats know no types: there, ids are integers only if all of a
column are. Typed formats keep what they say.
"""

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from mgformer.data.formats import content, text
from mgformer.data.formats.columns import DataConfig, Format, canonical, find_columns
from mgformer.errors import DataError, did_you_mean

if TYPE_CHECKING:
    import pandas as pd

log = logging.getLogger("mgformer")

__all__ = [
    "SUFFIXES",
    "TYPED",
    "DataConfig",
    "format_of",
    "frame_from",
    "json_records",
    "read_frame",
]

SUFFIXES: dict[str, Format | None] = {
    ".csv": "csv",
    ".tsv": "csv",
    ".dat": "csv",
    ".data": "csv",
    ".txt": None,
    ".parquet": "parquet",
    ".pq": "parquet",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".inter": "inter",
}
"""Format by extension; None where only the content tells."""
TYPED: frozenset[Format] = frozenset({"parquet", "jsonl"})
"""Formats that say themselves whether an id is text or a number."""


def read_frame(path: Path, options: DataConfig | None = None) -> pl.DataFrame:
    """Read one file into checked columns: ids, and times and weights where there are."""
    options = options or DataConfig()
    match format_of(path, options):
        case "csv":
            return text.read_delimited(path, options)
        case "inter":
            return text.read_delimited(path, options, typed_header=True)
        case "lightgcn":
            return text.read_lists(path, options)
        case "jsonl":
            return _read_json_lines(path, options)
        case "parquet":
            return _read_parquet(path, options)


def format_of(path: Path, options: DataConfig) -> Format:
    """Return the format of a file that must exist: as asked, by extension, or by content."""
    _check_is_file(path)
    if options.format != "auto":
        return options.format
    name = path.name.lower().removesuffix(".gz")
    known = SUFFIXES.get(Path(name).suffix)
    if known is not None:
        return known
    beginning = content.first_bytes(path)
    if beginning.startswith(b"PAR1"):
        return "parquet"
    if beginning.lstrip().startswith(b"{"):
        return "jsonl"
    # Whoever names columns or a separator does not mean lists.
    speaks_of_columns = options.sep is not None or options.user is not None
    return "lightgcn" if not speaks_of_columns and text.looks_like_lists(path) else "csv"


def frame_from(
    source: "pl.DataFrame | pd.DataFrame", options: DataConfig | None = None
) -> pl.DataFrame:
    """Return the checked columns of a polars or pandas frame."""
    options = options or DataConfig()
    if isinstance(source, pl.DataFrame):
        names = source.columns
    elif hasattr(source, "columns") and hasattr(source, "iloc"):
        names = [str(name) for name in source.columns]
    else:
        raise DataError(
            f"got {type(source).__name__}, expected a path, a polars or pandas frame, "
            "or a tuple of arrays"
        )
    columns = find_columns(names, options, "data frame")
    if isinstance(source, pl.DataFrame):
        frame = source.select(**{role: pl.nth(at) for role, at in columns.items()})
    else:
        parts = {role: _from_pandas(source.iloc[:, at], role) for role, at in columns.items()}
        frame = pl.DataFrame(parts)
    return canonical(frame, options, lambda row: f"data frame, row {row}", "data frame")


def _from_pandas(column: "pd.Series[Any]", role: str) -> pl.Series:
    if column.dtype != object:
        return pl.from_pandas(column.reset_index(drop=True).to_frame(role))[role]
    values = column.to_list()
    is_missing = column.isna().to_list()
    present = [None if gone else value for value, gone in zip(values, is_missing, strict=True)]
    _refuse_mixed_types(present, role, [f"data frame, row {row}" for row in range(len(present))])
    return pl.Series(role, present, strict=False)


def _refuse_mixed_types(values: list[Any], role: str, places: list[str]) -> None:
    first = next((value for value in values if value is not None), None)
    for value, place in zip(values, places, strict=True):
        alike = isinstance(value, str) == isinstance(first, str)
        plain = isinstance(value, str | int | float) and not isinstance(value, bool)
        if value is not None and not (alike and (plain or role == "time")):
            raise DataError(
                f"{place}: got {value!r} of type {type(value).__name__} in the {role} column, "
                f"expected {type(first).__name__ if plain else 'text or a number'} as in the rows "
                "before; make the column all text or all numbers"
            )


def _read_parquet(path: Path, options: DataConfig) -> pl.DataFrame:
    try:
        names = list(pl.read_parquet_schema(path))
        columns = find_columns(names, options, str(path))
        frame = pl.read_parquet(path, columns=[names[at] for at in columns.values()])
    except (pl.exceptions.PolarsError, OSError) as error:
        reason = str(error).splitlines()[0]
        raise DataError(f"{path}: got {reason!r}, expected a Parquet file") from None
    frame = frame.select(**{role: pl.col(names[at]) for role, at in columns.items()})
    return canonical(frame, options, lambda row: f"{path}: row {row}", str(path))


def _read_json_lines(path: Path, options: DataConfig) -> pl.DataFrame:
    """Read JSON lines in Python: polars would turn a number among strings into a string."""
    names: list[str] = []
    values: dict[str, list[Any]] = {}
    columns: dict[str, str] = {}
    lines: list[int] = []
    for line, record in json_records(path):
        if not columns:
            names = list(record)
            found = find_columns(names, options, f"{path}:{line}")
            columns = {role: names[at] for role, at in found.items()}
            values = {role: [] for role in columns}
        for role, name in columns.items():
            values[role].append(record.get(name))
        lines.append(line)
    if not lines:
        raise DataError(f"{path}: got an empty file, expected one JSON object per line")
    places = [f"{path}:{line}" for line in lines]
    for role, column in values.items():
        _refuse_mixed_types(column, role, places)
    frame = pl.DataFrame([pl.Series(role, column, strict=False) for role, column in values.items()])
    return canonical(frame, options, places.__getitem__, str(path))


def json_records(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the objects of a file of JSON lines with their line numbers."""
    lines = content.decoded(content.read_bytes(path), path)
    for number, line in enumerate(lines.split("\n"), start=1):
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


def _check_is_file(path: Path) -> None:
    if path.is_file():
        return
    if path.is_dir():
        raise DataError(f"{path}: got a folder, expected a file; name a file in it")
    for parent in path.parents:
        if parent.is_file():
            raise DataError(f"{path}: got {parent}, which is a file, expected a folder")
    beside = [other.name for other in path.parent.iterdir()] if path.parent.is_dir() else []
    raise DataError(f"{path}: got no such file{did_you_mean(path.name, beside)}; check the path")
