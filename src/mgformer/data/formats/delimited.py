"""Read delimited text: CSV, TSV, any separator, and RecBole's .inter; packed or not.

Polars reads the file first, because it is fast. If polars fails or may have misread a row, Python's
csv module reads the file again. It is slower but knows line numbers, so an error names the first
bad line.
"""

import logging
import re
import sys
from array import array
from pathlib import Path
from typing import NamedTuple

import polars as pl

from mgformer.data.formats import columns as column_rules
from mgformer.data.formats import text
from mgformer.data.formats.checks import check_columns
from mgformer.data.formats.packed import read_bytes
from mgformer.data.formats.reading import Reading
from mgformer.data.formats.times import is_date
from mgformer.data.formats.values import POLARS_ERRORS
from mgformer.data.options import DataConfig
from mgformer.errors import DataError

log = logging.getLogger("mgformer")

_HEAD_ROWS = 1000
_NO_SEPARATORS = ("\n", "\r", '"')


class Head(NamedTuple):
    """The first rows of a delimited file, and how they are separated."""

    sep: str
    quoted: bool
    rows: list[text.Row]
    """The first rows, without the header."""
    header: list[str] | None
    """The first row, if it names the columns."""
    names: list[str]
    """Names of the columns, or "column 0", "column 1", …"""


class Layout(NamedTuple):
    """The content of a delimited file, and where it has its columns."""

    path: Path
    content: bytes
    """Unpacked, with a separator of one character."""
    sep: str
    quoted: bool
    header: list[str] | None
    width: int
    columns: dict[column_rules.Role, int]

    def problem_of(self, row: list[str]) -> str | None:
        """Return what is wrong with a row. Empty fields beyond the named columns are no matter."""
        named = self.width
        while self.header is not None and named and not self.header[named - 1].strip():
            named -= 1
        if len(row) < named or any(row[self.width :]):
            return f"got {len(row)} fields, expected {self.width}"
        if any(text.is_broken(row[at]) for at in self.columns.values() if at < len(row)):
            return text.NOT_UTF8
        return None


def read_delimited(
    path: Path, options: DataConfig, typed_header: bool = False
) -> tuple[pl.DataFrame, Reading]:
    """Read delimited text; with `typed_header`, RecBole's `name:type` header without quoting."""
    # The file is read once: it may change while it is read.
    content = read_bytes(path, gigabytes=options.max_unpacked)
    head = find_head(content, path, options, typed_header)
    noticed = Reading(str(path))
    layout = _find_layout(content, head, path, options, noticed)
    try:
        frame = _read_with_polars(layout)
        if frame is not None:
            reading = noticed.again(skip=False)
            return check_columns(frame, options, reading, typed=False), reading
    except (*POLARS_ERRORS, DataError) as error:
        log.debug("%s: %s", path, error)
    reading = noticed.again(skip=options.on_error == "skip")
    frame = _read_with_csv(layout, reading)
    return check_columns(frame, options, reading, typed=False), reading


def find_head(content: bytes, path: Path, options: DataConfig, typed_header: bool = False) -> Head:
    """Find the separator, the header and the first rows."""
    tolerant = options.on_error == "skip"
    head = text.readable(text.decode(text.head_of(content), path, tolerant))
    if not head.strip():
        raise DataError(f"{path}: got an empty file, expected lines of user and item")
    guess = text.guess_separator(head, path)
    asked = "\t" if options.sep == "\\t" else options.sep
    sep = asked or ("\t" if typed_header else guess) or ","
    if sep in _NO_SEPARATORS:
        raise DataError(
            f"{path}: got data.sep={sep!r}, which ends a line or quotes a field, expected another "
            "separator"
        )
    quoted = not typed_header and len(sep) == 1
    rows = text.first_rows(head, sep, path, _HEAD_ROWS + 1, quoted)
    if not rows:
        raise DataError(
            f"{path}:1: got a first line that cannot be split, expected a short line that ends "
            "in a line feed; look for a quote that is not closed, or old Mac line ends"
        )
    first = rows[0][1]
    if len(first) < 2:
        hint = f"use --set data.sep={guess!r}" if guess else "name it with --set data.sep"
        raise DataError(
            f"{path}:1: got a single column {first[0][:60]!r} with the separator {sep!r}, "
            f"expected at least user and item; {hint}"
        )
    if not (typed_header or _has_header(rows, options, path)):
        names = [f"column {position}" for position in range(len(first))]
        return Head(sep, quoted, rows, None, names)
    if len(rows) == 1 and len(head.strip().splitlines()) == 1:
        raise DataError(f"{path}:2: got only a header, expected lines of data after it")
    names = [name.partition(":")[0] if typed_header else name for name in first]
    return Head(sep, quoted, rows[1:], first, [name.strip() for name in names])


def with_positions(options: DataConfig) -> DataConfig:
    """Return the options for a table without names: users come first, and then items."""
    item = 1 if options.item is None else options.item
    return options.model_copy(update={"user": options.user or 0, "item": item})


def _find_layout(
    content: bytes, head: Head, path: Path, options: DataConfig, reading: Reading
) -> Layout:
    if head.header is None:
        options = with_positions(options)
    columns = column_rules.find_columns(head.names, options, f"{path}:1", reading)
    if head.header is None:
        reading.notes.append("no header: columns are taken by their position, counted from 0")
    _refuse_decimal_ids(head.rows, columns, path, every=options.on_error == "skip")
    content, sep = text.one_character(content, head.sep)
    return Layout(path, content, sep, head.quoted, head.header, len(head.names), columns)


def _has_header(rows: list[text.Row], options: DataConfig, path: Path) -> bool:
    if options.header is not None:
        return options.header
    first, second = rows[0][1], rows[1][1] if len(rows) > 1 else []
    asked = (options.user, options.item, options.time, options.rating, options.weight)
    names = {name for name in asked if isinstance(name, str) and name and not name.isdecimal()}
    if any(column_rules.role_of(field) or field.strip() in names for field in first):
        return True
    # Columns are hardly ever named by numbers or dates, so one of them means that a line is data.
    if any(map(_is_data, first)):
        return False
    if any(map(_is_data, second)):
        return True
    raise DataError(
        f"{path}:1: got {', '.join(first)[:80]!r}, which may be column names or data; name the "
        "columns with --set data.user=… --set data.item=…, or use --set data.header=false"
    )


def _is_data(field: str) -> bool:
    return text.is_number(field.replace(",", ".", 1)) or is_date([field])


def _refuse_decimal_ids(
    rows: list[text.Row], columns: dict[column_rules.Role, int], path: Path, every: bool
) -> None:
    """Refuse a column of decimal numbers: it is more likely a rating than an id.

    With `every`, single decimal numbers among whole ones are left to the checks of rows.
    """
    for role in ("user", "item"):
        ids = [(line, row[columns[role]]) for line, row in rows if columns[role] < len(row)]
        decimal = next(((line, value) for line, value in ids if "." in value), None)
        if every and any("." not in value for _, value in ids):
            continue
        if decimal and all(text.is_number(value) for _, value in ids):
            raise DataError(
                f"{path}:{decimal[0]}: got {decimal[1]!r} as {role} id, expected text or whole "
                f"numbers; write ids without decimals, or name another column with "
                f"--set data.{role}=NAME"
            )


def _read_with_polars(layout: Layout) -> pl.DataFrame | None:
    """Return the columns as text, or None if polars may have misread a row."""
    if layout.content.count(b"\r") != layout.content.count(b"\r\n"):
        return None  # polars takes a lone carriage return for a part of an id
    if layout.quoted and _has_odd_quotes(layout):
        return None  # polars drops quotes of fields such as ""0" and "0"0"", and of "0"" at the end
    names = {role: f"column_{at + 1}" for role, at in layout.columns.items()}
    frame = _polars_columns(layout, list(dict.fromkeys(names.values())))
    frame = frame.select(**{role: pl.col(name) for role, name in names.items()})
    has_blanks = frame["user"].null_count() > 0
    if has_blanks and layout.quoted and b'"' in layout.content:
        return None  # a row without ids looks like a blank line
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


def _has_odd_quotes(layout: Layout) -> bool:
    """Return whether text may follow the closing quote of a field, or the last field has none.

    A comma in quotes may look like the start of a field. Then the answer may be true for nothing,
    but a field with such text is never missed.
    """
    sep = re.escape(layout.sep.encode())
    start, inside = rb"(?:^|\n|" + sep + rb')"', rb'(?:[^"]++|"")*+'
    field = start + inside + rb'(?:"(?!["\r\n' + sep + rb"]|\Z)|\Z)"
    return re.search(field, layout.content) is not None


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
    if layout.quoted and b'"' in layout.content:
        last = f"column_{layout.width}"
        return _polars_columns(layout, [last])[last].null_count() == 0
    num_lines = num_rows + int(layout.header is not None)
    return layout.content.count(layout.sep.encode()) == (layout.width - 1) * num_lines


def _read_with_csv(layout: Layout, reading: Reading) -> pl.DataFrame:
    """Return the columns as text, and let the reading have the line that each row begins on."""
    values: dict[str, list[str]] = {role: [] for role in layout.columns}
    lines = array("q")
    header = None
    rows = text.split_rows(
        layout.content, layout.sep, layout.path, layout.quoted, layout.problem_of, reading
    )
    for line, row in rows:
        if layout.header is not None and header is None:
            header = row
            continue
        if row == header:
            problem = "got the header again, expected data"
            reading.refuse_line(line, problem, "remove the line")
            continue
        lines.append(line)
        for role, at in layout.columns.items():
            # Interning keeps an id that occurs a million times only once.
            values[role].append(sys.intern(row[at]) if at < len(row) else "")
    reading.numbers = lines
    return pl.DataFrame(values, schema=dict.fromkeys(values, pl.String))
