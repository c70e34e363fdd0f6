"""Read a file about items or users: an id in each row, a name, and any other columns.

CSV, Parquet and JSON lines are read as files of interactions are. A text file without a header has
ids and names only.
"""

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from mgformer.data.attribute_types import Place, attribute_of, years_in
from mgformer.data.attributes import NAME, Attribute, Attributes, Side
from mgformer.data.formats import format_of
from mgformer.data.formats.columns import role_of
from mgformer.data.formats.jsonl import json_records
from mgformer.data.formats.packed import read_bytes
from mgformer.data.formats.parquet import opened_parquet
from mgformer.data.formats.text import guess_separator, split_rows
from mgformer.data.formats.values import POLARS_ERRORS, first_line, shown
from mgformer.data.ids import Ids
from mgformer.data.options import DataConfig
from mgformer.errors import DataError, did_you_mean

log = logging.getLogger("mgformer")

_NAMES: dict[Side, tuple[str, ...]] = {
    "item": ("name", "title", "item_name", "movie_title", "product_name", "product_title"),
    "user": ("name", "user_name", "full_name"),
}
YEAR = "year"
LONGEST_NAME = 100
"""Characters of the longest name of a column."""
MOST_COLUMNS = 1_000


class Rows(NamedTuple):
    """A table as a file has it."""

    columns: dict[str, pl.Series]
    untyped: bool
    """Whether the file has text only."""
    place: Place


class Table(NamedTuple):
    """The ids of a file, and what it knows about them."""

    path: Path
    header: tuple[str, ...]
    """All columns of the file, also those that are ignored."""
    ids: pl.Series
    attributes: Attributes

    def places(self, known: Ids) -> NDArray[np.int64]:
        """Return the row of each known id, -1 for none; of several rows, the last."""
        numbers = known.encode(self.ids)
        places = np.full(len(known), -1, dtype=np.int64)
        rows = np.flatnonzero(numbers >= 0)
        places[numbers[rows]] = rows  # of several rows, numpy keeps the last
        return places

    def matched(self, known: Ids) -> Attributes:
        """Return the attributes of known ids, in their order."""
        places = self.places(known)
        num_others = int((known.encode(self.ids) < 0).sum())
        listed = ", ".join(f"{name} ({own.kind})" for name, own in self.attributes.items())
        counts = (int((places >= 0).sum()), len(known), num_others)
        message = "%s: %s for %d of %d ids; %d rows are about ids without interactions"
        log.info(message, self.path, listed or "nothing", *counts)
        return self.attributes.gather(places)


def read_about(path: Path, side: Side, options: DataConfig, sep: str | None = None) -> Table:
    """Read the ids and the typed columns of a file about items or users.

    Without `sep`, the separator is guessed and fields may be quoted.
    """
    return typed(_read_rows(path, sep, options.max_unpacked), path, side, options)


def typed(rows: Rows, path: Path, side: Side, options: DataConfig) -> Table:
    """Return a table with the kind of each column; `path` names it in errors."""
    header = tuple(rows.columns)
    _check_header(path, header, side)
    of_id = next((name for name in header if role_of(name) == side), None)
    of_id = of_id or next((name for name in header if name.lower() == "id"), header[0])
    of_name = next((n for n in header if n.lower() in _NAMES[side] and n != of_id), None)
    ids = rows.columns.pop(of_id)
    if not (ids.dtype.is_integer() or ids.dtype in (pl.String, pl.Categorical, pl.Enum, pl.Null)):
        raise DataError(
            f"{rows.place(0)}: got ids of type {ids.dtype} in the column {of_id}, expected text or"
            " whole numbers; convert the column"
        )
    ids = ids.cast(pl.String).str.strip_chars()
    kept = ((ids.is_not_null()) & (ids != "")).arg_true().to_numpy()
    columns: dict[str, Attribute] = {}
    for name, column in rows.columns.items():
        kind = options.kinds.get(name)
        if kind == "ignore":
            continue
        is_name, private = name == of_name, name in options.private
        kind = kind or ("text" if is_name else None)
        own = attribute_of(column, rows.place, kind, untyped=rows.untyped, private=private)
        columns[NAME if is_name else name] = own.gather(kept)
    if side == "item" and NAME in columns and YEAR not in columns:
        years = years_in(columns[NAME].values)
        if years is not None and options.kinds.get(YEAR) != "ignore":
            columns[YEAR] = Attribute("number", years, columns[NAME].private)
            header = (*header, YEAR)
    return Table(path, header, ids.gather(kept), Attributes(columns))


def check_named(options: DataConfig, tables: Sequence[Table]) -> None:
    """Refuse options about columns that no file has: a private column must not be misspelt."""
    known = [name for table in tables for name in table.header]
    for option, named in (("kinds", options.kinds), ("private", options.private)):
        for name in named:
            if name not in known:
                where = " or ".join(str(table.path) for table in tables) or "data.items"
                raise DataError(
                    f"data.{option}: got the column {name!r}, expected a column of {where}"
                    f"{did_you_mean(name, known)}"
                )


def _check_header(path: Path, names: Sequence[str], side: Side) -> None:
    """Refuse names of columns that cannot be used."""
    if not 2 <= len(names) <= MOST_COLUMNS:
        raise DataError(
            f"{path}: got {len(names)} columns, expected ids of {side}s and 1 to"
            f" {MOST_COLUMNS - 1} more"
        )
    for name in names:
        if not name or len(name) > LONGEST_NAME or not name.isprintable():
            raise DataError(
                f"{path}: got {shown(name)} as the name of a column, expected 1 to {LONGEST_NAME}"
                " printable characters; rename the column"
            )


def _read_rows(path: Path, sep: str | None, gigabytes: float | None) -> Rows:
    kind = format_of(path, DataConfig(sep=sep))
    if kind == "parquet":
        with opened_parquet(path, gigabytes) as table:
            frame = table.collect()
        columns = {column.name: column for column in frame.get_columns()}
        return Rows(columns, untyped=False, place=lambda row: f"{path}: row {row}")
    if kind == "jsonl":
        return _read_jsonl(path, gigabytes)
    return _read_text(path, sep, gigabytes)


def _read_jsonl(path: Path, gigabytes: float | None) -> Rows:
    numbered = list(json_records(path, gigabytes))
    lines = [line for line, _ in numbered]

    def place(row: int) -> str:
        return f"{path}:{lines[row]}" if lines else str(path)

    names = dict.fromkeys(name for _, record in numbered for name in record)
    columns = {
        name: column_of(name, [record.get(name) for _, record in numbered], place) for name in names
    }
    return Rows(columns, untyped=False, place=place)


def column_of(name: str, values: list[Any], place: Place) -> pl.Series:
    """Return Python values, such as those of JSON, as a column; they must all be of one type."""
    types = {_type_of(value) for value in values if value is not None}
    if len(types) > 1 or types & {"dict", "mixed list"}:
        first = _type_of(next(value for value in values if value is not None))
        row = next(n for n, v in enumerate(values) if v is not None and _type_of(v) != first) if (
            len(types) > 1) else next(n for n, v in enumerate(values) if v is not None)  # fmt: skip
        raise DataError(
            f"{place(row)}: got {shown(values[row])} in the column {name}, expected values of one"
            " type in all rows: text, numbers, true or false, or lists of one of them"
        )
    if types == {"number"} and not all(isinstance(v, int) for v in values if v is not None):
        values = [None if value is None else float(value) for value in values]
    try:
        return pl.Series(name, values, strict=False)
    except (*POLARS_ERRORS, TypeError, ValueError, OverflowError) as error:
        raise DataError(
            f"{place(0)}: got a column {name} that cannot be read ({first_line(error)}), expected"
            " text, numbers, true or false, or lists"
        ) from None


def _type_of(value: object) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, list):
        inner = {_type_of(one) for one in value}
        return "mixed list" if inner - {"str"} and inner - {"number"} else f"list of {inner or ''}"
    return type(value).__name__


def _read_text(path: Path, sep: str | None, gigabytes: float | None) -> Rows:
    data = read_bytes(path, gigabytes=gigabytes)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    guessed = sep or guess_separator(text[:65536], path) or ","
    numbered = list(split_rows(text.encode(), guessed, path, quoted=sep is None))
    if not numbered or len(numbered[0][1]) < 2:
        raise DataError(
            f"{path}:1: got fewer than two columns, expected ids and names or other columns;"
            " separate them by commas"
        )
    header = [name.partition(":")[0].strip() for name in numbered[0][1]]
    if any(_is_known(name) for name in header):
        return _with_header(path, header, numbered[1:])
    rows = [(line, row) for line, row in numbered if len(row) > 1]
    columns = {
        name: pl.Series(name, [row[at] for _, row in rows], dtype=pl.String)
        for at, name in enumerate(("id", NAME))
    }
    return Rows(columns, untyped=True, place=lambda row: f"{path}:{rows[row][0]}")


def _with_header(
    path: Path, header: Sequence[str], numbered: Sequence[tuple[int, list[str]]]
) -> Rows:
    twice = next((name for at, name in enumerate(header) if name in header[:at]), None)
    if twice is not None:
        raise DataError(f"{path}:1: got the column {shown(twice)} twice, expected different names")
    for line, row in numbered:
        if len(row) != len(header):
            raise DataError(
                f"{path}:{line}: got {len(row)} fields, expected {len(header)} as in the header;"
                " correct or remove the line"
            )
    columns = {
        name: pl.Series(name, [row[at] for _, row in numbered], dtype=pl.String)
        for at, name in enumerate(header)
    }
    return Rows(columns, untyped=True, place=lambda row: f"{path}:{numbered[row][0]}")


def _is_known(name: str) -> bool:
    """Return whether the first field of a column looks like the name of the column."""
    names: Iterable[str] = (*_NAMES["item"], *_NAMES["user"], "id")
    return role_of(name) in ("item", "user") or name.lower() in names
