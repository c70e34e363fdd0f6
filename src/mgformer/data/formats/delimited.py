"""Read delimited text: CSV, TSV, any separator, and RecBole's .inter; gzipped or not.

Polars reads the file first, because it is fast. If polars fails or may have misread a row, Python's
csv module reads the file again. It is slower but knows line numbers, so an error names the first
bad line.
"""

import io
import logging
import re
import sys
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import polars as pl

from mgformer.data.formats.columns import (
    Role,
    check_columns,
    find_columns,
    role_of,
    with_integer_ids,
)
from mgformer.data.formats.text import (
    first_rows,
    guess_separator,
    is_number,
    not_utf8,
    one_character,
    read_bytes,
    read_head,
    split_rows,
)
from mgformer.data.options import DataConfig
from mgformer.errors import DataError

log = logging.getLogger("mgformer")

_CHUNK_BYTES = 1 << 24
_HEAD_ROWS = 1000


@dataclass(frozen=True)
class Layout:
    """Where a delimited file has its columns."""

    path: Path
    content: Path | bytes
    """The file, or its bytes if they were unpacked or changed."""
    sep: str
    quoted: bool
    header: list[str] | None
    """The first row, if it names the columns."""
    width: int
    columns: dict[Role, int]

    def open(self) -> BinaryIO:
        """Open the content for reading."""
        return (
            self.content.open("rb") if isinstance(self.content, Path) else io.BytesIO(self.content)
        )


def read_delimited(path: Path, options: DataConfig, typed_header: bool = False) -> pl.DataFrame:
    """Read delimited text; with `typed_header`, RecBole's `name:type` header without quoting."""
    layout = _find_layout(path, options, typed_header)
    try:
        frame = _read_with_polars(layout)
        if frame is not None:
            return with_integer_ids(check_columns(frame, options, str(path), lambda _: ""), path)
    except (pl.exceptions.PolarsError, DataError) as error:
        log.debug("%s: %s", path, error)
    frame, lines = _read_with_csv(layout)
    checked = check_columns(frame, options, str(path), lambda row: f"{path}:{lines[row]}")
    return with_integer_ids(checked, path)


def _find_layout(path: Path, options: DataConfig, typed_header: bool) -> Layout:
    head = read_head(path)
    if not head.strip():
        raise DataError(f"{path}: got an empty file, expected lines of user and item")
    guess = guess_separator(head, path)
    asked = "\t" if options.sep == "\\t" else options.sep
    sep = asked or ("\t" if typed_header else guess) or ","
    quoted = not typed_header and len(sep) == 1
    rows = first_rows(head, sep, path, _HEAD_ROWS + 1, quoted)
    if not rows:
        raise DataError(
            f"{path}:1: got a first line that cannot be split, expected a short line that ends "
            "in a line feed; look for a quote that is not closed, or old Mac line ends"
        )
    first = rows[0][1]
    if len(first) < 2:
        hint = f"use --set data.sep={_shown(guess)}" if guess else "name it with --set data.sep"
        raise DataError(
            f"{path}:1: got a single column {first[0][:60]!r} with the separator {_shown(sep)}, "
            f"expected at least user and item; {hint}"
        )
    has_header = typed_header or _has_header(rows, options, path)
    if has_header:
        names = [name.partition(":")[0] if typed_header else name for name in first]
        columns = find_columns([name.strip() for name in names], options, f"{path}:1")
        rows = rows[1:]
        if not rows and len(head.strip().splitlines()) == 1:
            raise DataError(f"{path}:2: got only a header, expected lines of data after it")
    else:
        defaults = {"user": options.user or 0, "item": 1 if options.item is None else options.item}
        names = [f"column {position}" for position in range(len(first))]
        columns = find_columns(names, options.model_copy(update=defaults), f"{path}:1")
        log.info("%s: no header; columns by position: %s", path, columns)
    _refuse_decimal_ids(rows, columns, path)
    content: Path | bytes = path
    if len(sep) > 1 or sep == " " or path.suffix.lower() == ".gz":
        content, sep = one_character(read_bytes(path), sep)
    return Layout(path, content, sep, quoted, first if has_header else None, len(first), columns)


def _has_header(rows: list[tuple[int, list[str]]], options: DataConfig, path: Path) -> bool:
    if options.header is not None:
        return options.header
    first, second = rows[0][1], rows[1][1] if len(rows) > 1 else []
    asked = (options.user, options.item, options.time, options.rating, options.weight)
    names = {name for name in asked if isinstance(name, str) and name and not name.isdecimal()}
    if any(role_of(field) or field.strip() in names for field in first):
        return True
    # Columns are hardly ever named by numbers, so one number means that the line is data.
    if any(map(is_number, first)):
        return False
    if any(map(is_number, second)):
        return True
    raise DataError(
        f"{path}:1: got {', '.join(first)[:80]!r}, which may be column names or data; name the "
        "columns with --set data.user=… --set data.item=…, or use --set data.header=false"
    )


def _refuse_decimal_ids(
    rows: list[tuple[int, list[str]]], columns: dict[Role, int], path: Path
) -> None:
    """Refuse a column of decimal numbers: it is more likely a rating than an id."""
    for role in ("user", "item"):
        ids = [(line, row[columns[role]]) for line, row in rows if columns[role] < len(row)]
        decimal = next(((line, value) for line, value in ids if "." in value), None)
        if decimal and all(is_number(value) for _, value in ids):
            raise DataError(
                f"{path}:{decimal[0]}: got {decimal[1]!r} as {role} id, expected text or whole "
                f"numbers; write ids without decimals, or name another column with "
                f"--set data.{role}=NAME"
            )


def _read_with_polars(layout: Layout) -> pl.DataFrame | None:
    """Return the columns as text, or None if polars may have misread a row."""
    names = {role: f"column_{at + 1}" for role, at in layout.columns.items()}
    frame = _polars_columns(layout, list(dict.fromkeys(names.values())))
    frame = frame.select(**{role: pl.col(name) for role, name in names.items()})
    has_blanks = frame["user"].null_count() > 0
    if has_blanks:
        frame = frame.filter(~pl.all_horizontal(pl.all().is_null()))
    # Polars fills up short rows with nulls. The checks find those nulls if the last column is used.
    if (has_blanks or layout.width - 1 not in layout.columns.values()) and not _all_rows_complete(
        layout, frame.height
    ):
        return None
    if layout.header is not None:
        repeated = [pl.col(role) == layout.header[at] for role, at in layout.columns.items()]
        if frame.select(pl.all_horizontal(repeated).any()).item():
            return None
    return frame


def _polars_columns(layout: Layout, columns: list[str]) -> pl.DataFrame:
    return pl.read_csv(
        layout.content,
        has_header=False,
        skip_rows=int(layout.header is not None),
        schema={f"column_{at + 1}": pl.String() for at in range(layout.width)},
        columns=columns,
        separator=layout.sep,
        quote_char='"' if layout.quoted else None,
    )


def _all_rows_complete(layout: Layout, num_rows: int) -> bool:
    """Return whether no row is short, judging by the number of separators in the file.

    If quotes may hide separators, every row must have a value in its last column instead.
    """
    separators = 0
    with layout.open() as file:
        while chunk := file.read(_CHUNK_BYTES):
            if layout.quoted and b'"' in chunk:
                last = f"column_{layout.width}"
                return _polars_columns(layout, [last])[last].null_count() == 0
            separators += chunk.count(layout.sep.encode())
    return separators == (layout.width - 1) * (num_rows + int(layout.header is not None))


def _read_with_csv(layout: Layout) -> "tuple[pl.DataFrame, array[int]]":
    """Return the columns as text, and the line that each row begins on."""
    values: dict[Role, list[str]] = {role: [] for role in layout.columns}
    lines = array("q")
    header = None
    with io.TextIOWrapper(layout.open(), "utf-8-sig", "surrogateescape", newline="\n") as text:
        rows = split_rows(_utf8_lines(text, layout.path), layout.sep, layout.path, layout.quoted)
        for line, row in rows:
            if len(row) != layout.width:
                raise DataError(
                    f"{layout.path}:{line}: got {len(row)} fields, expected {layout.width}; "
                    "correct or remove the line"
                )
            if layout.header is not None and header is None:
                header = row
                continue
            if row == header:
                raise DataError(
                    f"{layout.path}:{line}: got the header again, expected data; remove the line"
                )
            lines.append(line)
            for role, at in layout.columns.items():
                # Interning keeps an id that occurs a million times only once.
                values[role].append(sys.intern(row[at]))
    return pl.DataFrame(values, schema=dict.fromkeys(values, pl.String)), lines


def _utf8_lines(text: Iterable[str], path: Path) -> Iterator[str]:
    for number, line in enumerate(text, start=1):
        if not line.isascii() and not line.isprintable() and re.search("[\udc80-\udcff]", line):
            raise not_utf8(path, number)
        yield line


def _shown(sep: str | None) -> str:
    return "'\\t'" if sep == "\t" else f"'{sep}'"
