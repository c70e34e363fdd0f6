"""Look at the first rows of a file: what its columns are, and what they may be.

Also for files that cannot be read yet, because nobody knows which columns hold users and items.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from mgformer.data.formats import format_of
from mgformer.data.formats.columns import Role, find_columns, role_of
from mgformer.data.formats.delimited import Head, find_head, with_positions
from mgformer.data.formats.jsonl import json_records
from mgformer.data.formats.packed import read_bytes
from mgformer.data.formats.parquet import opened_parquet
from mgformer.data.formats.reading import Reading
from mgformer.data.formats.text import HEAD_BYTES, is_number
from mgformer.data.formats.times import is_date
from mgformer.data.options import DataConfig, Format
from mgformer.errors import DataError

SAMPLE, MOST_ROWS = 5, 1000
"""Rows that are shown, and rows that are looked at."""
HINTS: dict[Role, tuple[str, ...]] = {
    "user": ("user", "cust", "client", "member", "visitor", "account", "buyer", "person", "email"),
    "item": ("item", "prod", "article", "movie", "book", "track", "song", "sku", "title", "name"),
}
"""Parts of names that make a column more likely to hold users or items."""
LONGEST_ID = 64


@dataclass(frozen=True)
class Preview:
    """The first rows of a file, and which columns would be taken for what."""

    file: Path
    format: Format
    separator: str | None = None
    names: Sequence[str] = ()
    """Names of the columns; empty if the file has none."""
    rows: Sequence[Sequence[str]] = ()
    """The first rows, as they are in the file."""
    columns: dict[str, str] = field(default_factory=dict)
    """Role → name of the column; empty if users and items cannot be told."""
    unused_ratings: str | None = None
    """Name of a column of ratings that nothing uses."""
    problem: str | None = None
    """Why users and items cannot be told."""
    candidates: dict[str, list[str]] = field(default_factory=dict)
    """Role → names of columns that may hold users or items, the most likely first."""

    @property
    def settings(self) -> list[str]:
        """The options that would name the most likely columns."""
        if not all(self.candidates.get(role) for role in ("user", "item")):
            return []
        return [f"data.{role}={self.candidates[role][0]}" for role in ("user", "item")]


def preview(path: Path, options: DataConfig) -> Preview:
    """Look at the first rows of a file."""
    kind = format_of(path, options)
    if kind == "lightgcn":
        return _lists(path, options)
    sep, names, problem = None, list[str](), None
    if kind in ("csv", "inter"):
        head, problem = _head(path, options, kind == "inter")
        sep, names = head.sep, head.names
        rows = [row for _, row in head.rows]
        if head.header is None and problem is None:
            options = with_positions(options)
    elif kind == "jsonl":
        found = json_records(path, options.max_unpacked, Reading(str(path), skip=True))
        records = [record for _, record in islice(found, MOST_ROWS)]
        names = list(records[0]) if records else []
        rows = [[_text(record.get(name)) for name in names] for record in records]
    else:
        with opened_parquet(path, options.max_unpacked) as table:
            names = table.collect_schema().names()
            rows = [[*map(_text, row)] for row in table.head(MOST_ROWS).collect().rows()]
    reading = Reading(str(path))
    if problem is None:
        try:
            find_columns(names, options, str(path), reading)
        except DataError as error:
            problem = str(error)
    candidates = {} if problem is None else _candidates(names, rows)
    return Preview(
        path,
        kind,
        sep,
        names,
        rows[:SAMPLE],
        reading.columns,
        reading.unused_ratings,
        problem,
        candidates,
    )


def _head(path: Path, options: DataConfig, typed_header: bool) -> tuple[Head, str | None]:
    """Return the beginning of a delimited file, and why nobody knows whether it has a header."""
    content = read_bytes(path, HEAD_BYTES + 1)
    try:
        return find_head(content, path, options, typed_header), None
    except DataError as error:
        # Text in the first two rows may be names of columns or data. As names, they can be shown.
        with_header = options.model_copy(update={"header": True})
        return find_head(content, path, with_header, typed_header), str(error)


def _lists(path: Path, options: DataConfig) -> Preview:
    """Look at a LightGCN file, which has no columns."""
    lines = read_bytes(path, HEAD_BYTES).decode("utf-8", "replace").split("\n")
    rows = [line.split() for line in islice(filter(str.strip, lines), SAMPLE)]
    return Preview(path, "lightgcn", rows=rows)


def _candidates(names: Sequence[str], rows: Sequence[Sequence[str]]) -> dict[str, list[str]]:
    """Return the columns that may hold users and items, the most likely first."""
    values = {
        name: [row[at] for row in rows if at < len(row) and row[at] != ""]
        for at, name in enumerate(names)
    }
    likely = [name for name in names if _may_be_ids(name, values[name])]
    ranked = {role: sorted(likely, key=lambda n: -_hint(n, role)) for role in HINTS}
    users = [name for name in ranked["user"] if not _hint(name, "item")]
    items = [name for name in ranked["item"] if name not in users[:1] and not _hint(name, "user")]
    return {"user": users, "item": items}


def _may_be_ids(name: str, values: Sequence[str]) -> bool:
    """Return whether a column may hold ids: neither dates, decimals, ratings nor long texts."""
    if not values or role_of(name) in ("time", "rating", "weight") or is_date(values[:50]):
        return False
    # 4,5 is a number in many countries.
    if all(is_number(value.replace(",", ".", 1)) for value in values):
        return not any("." in value or "," in value for value in values)
    return max(map(len, values)) <= LONGEST_ID


def _hint(name: str, role: Role) -> int:
    """Return 2 if the column has a usual name of the role, 1 if a part of it hints at it."""
    return 2 * (role_of(name) == role) or int(any(hint in name.lower() for hint in HINTS[role]))


def _text(value: object) -> str:
    return "" if value is None else str(value)
