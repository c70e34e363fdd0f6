"""What items are called: a second file with ids and names, for showing items to people."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from mgformer.data.formats import content
from mgformer.data.formats.columns import role_of
from mgformer.data.formats.readers import DataConfig, format_of, json_records
from mgformer.data.ids import Ids
from mgformer.errors import DataError

log = logging.getLogger("mgformer")

_NAME_COLUMNS = ("name", "title", "item_name", "movie_title", "product_name", "product_title")


def read_item_names(path: Path, items: Ids) -> pl.Series:
    """Return the name of each item, null where the file has none."""
    table = _names_table(path)
    places = items.encode(table["item"])
    names = np.full(len(items), None, dtype=object)
    known = (places >= 0) & table["name"].is_not_null().to_numpy()
    names[places[known]] = table["name"].filter(known).to_list()
    log.info("%s: names for %d of %d items", path, int(pl.Series(known).sum()), len(items))
    return pl.Series("name", names.tolist(), dtype=pl.String)


def _names_table(path: Path) -> pl.DataFrame:
    kind = format_of(path, DataConfig())
    if kind == "parquet":
        frame = pl.read_parquet(path)
        header: list[str] | None = frame.columns
        rows = [list(row) for row in frame.cast(pl.String).iter_rows()]
    elif kind == "jsonl":
        records = [record for _, record in json_records(path)]
        header = list(records[0]) if records else []
        rows = [[record.get(key) for key in header] for record in records]
    else:
        header, rows = _text_rows(path)
    item, name = _names_columns(header, path)
    ids = [None if row[item] is None else str(row[item]) for row in rows if len(row) > name]
    names = [row[name] and str(row[name]) for row in rows if len(row) > name]
    return pl.DataFrame({"item": ids, "name": names}, schema={"item": pl.String, "name": pl.String})


def _text_rows(path: Path) -> tuple[list[str] | None, list[list[Any]]]:
    data = content.read_bytes(path)
    try:
        decoded = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        decoded = data.decode("latin-1")
    sep = content.sniffed_separator(decoded[:65536]) or ","
    rows: list[list[Any]] = list(content.split_rows(decoded, sep, path))
    if not rows or len(rows[0]) < 2:
        raise DataError(
            f"{path}:1: got no two columns, expected item ids and names; separate them by a comma"
        )
    names = [str(name).partition(":")[0].strip() for name in rows[0]]
    if any(role_of(name) == "item" or name.lower() in _NAME_COLUMNS for name in names):
        return names, rows[1:]
    return None, rows


def _names_columns(header: Sequence[str] | None, path: Path) -> tuple[int, int]:
    if header is None:
        return 0, 1
    if len(header) < 2:
        raise DataError(f"{path}: got the columns {list(header)}, expected item ids and names")
    item = next((at for at, name in enumerate(header) if role_of(name) == "item"), 0)
    named = [at for at, name in enumerate(header) if name.lower() in _NAME_COLUMNS]
    return item, named[0] if named else int(item == 0)
