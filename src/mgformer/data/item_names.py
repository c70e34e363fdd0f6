"""Read the names of items from a second file, for showing items to people."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

from mgformer.data.formats import format_of
from mgformer.data.formats.columns import role_of
from mgformer.data.formats.jsonl import json_records
from mgformer.data.formats.packed import read_bytes
from mgformer.data.formats.parquet import opened_parquet
from mgformer.data.formats.text import guess_separator, split_rows
from mgformer.data.ids import Ids
from mgformer.data.options import DataConfig
from mgformer.errors import DataError

log = logging.getLogger("mgformer")

_NAME_COLUMNS = ("name", "title", "item_name", "movie_title", "product_name", "product_title")


def read_item_names(
    path: Path, items: Ids, sep: str | None = None, gigabytes: float | None = None
) -> pl.Series:
    """Return the name of each item, null if the file has none.

    Without `sep`, the separator is guessed and fields may be quoted. A packed file may unpack to
    `gigabytes`.
    """
    header, rows = _read_rows(path, sep, gigabytes)
    if len(header) < 2:
        raise DataError(f"{path}: got the columns {list(header)}, expected item ids and names")
    item = next((at for at, name in enumerate(header) if role_of(name) == "item"), 0)
    named = (at for at, name in enumerate(header) if name.lower() in _NAME_COLUMNS)
    name = next(named, int(item == 0))
    known = [row for row in rows if len(row) > max(item, name) and row[item] is not None]
    names: list[str | None] = [None] * len(items)
    for place, row in zip(items.encode([row[item] for row in known]), known, strict=True):
        if place >= 0 and row[name] is not None:
            names[place] = str(row[name])
    log.info("%s: names for %d of %d items", path, len(names) - names.count(None), len(items))
    return pl.Series("name", names, dtype=pl.String)


def _read_rows(
    path: Path, sep: str | None, gigabytes: float | None
) -> tuple[Sequence[str], Sequence[Sequence[Any]]]:
    """Return the column names, empty without a header, and the rows."""
    kind = format_of(path, DataConfig(sep=sep))
    if kind == "parquet":
        with opened_parquet(path, gigabytes) as table:
            frame = table.collect()
            return frame.columns, frame.cast(pl.String).rows()
    if kind == "jsonl":
        records = [record for _, record in json_records(path, gigabytes)]
        header = list(records[0]) if records else []
        return header, [[record.get(key) for key in header] for record in records]
    data = read_bytes(path, gigabytes=gigabytes)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    guessed = sep or guess_separator(text[:65536], path) or ","
    rows = [row for _, row in split_rows(text.encode(), guessed, path, quoted=sep is None)]
    if not rows or len(rows[0]) < 2:
        raise DataError(
            f"{path}:1: got fewer than two columns, expected item ids and names; "
            "separate them by commas"
        )
    names = [name.partition(":")[0].strip() for name in rows[0]]
    if any(role_of(name) == "item" or name.lower() in _NAME_COLUMNS for name in names):
        return names, rows[1:]
    return ["", ""], rows
