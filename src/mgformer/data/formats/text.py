"""Delimited text and LightGCN's lists, gzipped or not.

A delimited file is read by polars, at its speed. Whatever polars refuses or leaves doubtful is
read again, slowly, by Python's csv module, which knows line numbers: so every file gets either
the same table from both or a message that names the first line in the way.
"""

import csv
import io
import logging
import re
import sys
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from mgformer.data.formats.columns import (
    DataConfig,
    Role,
    canonical,
    count_columns,
    find_columns,
    role_of,
)
from mgformer.data.formats.content import (
    decoded,
    first_rows,
    head_text,
    is_number,
    read_bytes,
    sniffed_separator,
    undecodable,
)
from mgformer.errors import DataError

log = logging.getLogger("mgformer")

_CHUNK_BYTES = 1 << 24
# Stands for a separator of several characters, of which polars and csv know nothing.
_UNIT = "\x1f"
_CANONICAL_INTEGER = r"^(?:0|-?[1-9][0-9]{0,18})$"
Rows = list[list[str]]


@dataclass(frozen=True)
class Layout:
    """Where a delimited file keeps what."""

    path: Path
    content: Path | bytes
    """The file, or its bytes once they had to be unpacked or rewritten."""
    sep: str
    quoted: bool
    header: list[str] | None
    width: int
    columns: dict[Role, int]
    head: Rows
    """The first rows of data."""


def read_delimited(path: Path, options: DataConfig, typed_header: bool = False) -> pl.DataFrame:
    """Read CSV, TSV and their kind; `typed_header` is RecBole's `name:type` without quoting."""
    layout = _layout(path, options, typed_header)
    _refuse_decimal_ids(layout)
    guess: dict[Role, pl.DataType] = {
        role: _guessed_type(role, [row[at] for row in layout.head if at < len(row)])
        for role, at in layout.columns.items()
    }
    as_text = {role: _guessed_type(role, ["text"]) for role in layout.columns}
    for types in (guess, as_text) if guess != as_text else (guess,):
        try:
            frame = _read_fast(layout, types)
            if frame is not None:
                # One id of the head that is no integer settles that the column is text.
                unsettled = [role for role in ("user", "item") if guess[role] != types[role]]
                frame = canonical(frame, options, lambda row: str(path), str(path))
                return _with_integers(frame, unsettled, path)
        except (pl.exceptions.PolarsError, DataError) as error:
            log.debug("%s: %s", path, error)
    frame, lines = _read_slowly(layout)
    frame = canonical(frame, options, lambda row: f"{path}:{lines[row]}", str(path))
    return _with_integers(frame, ["user", "item"], path)


def read_lists(path: Path, options: DataConfig) -> pl.DataFrame:
    """Read LightGCN's text: a user and then the user's items on each line."""
    if options.min_rating is not None:
        raise DataError(
            f"{path}: got lists of items, which have no ratings, expected some because of "
            "data.min_rating; leave it out, or use --set data.format=csv"
        )
    lines = decoded(read_bytes(path), path).split("\n")
    fields = pl.DataFrame({"fields": pl.Series(lines, dtype=pl.String).str.extract_all(r"\S+")})
    pairs = fields.select(
        user=pl.col("fields").list.first(), item=pl.col("fields").list.slice(1)
    ).filter(pl.col("item").list.len() > 0)
    if not pairs.height:
        raise DataError(
            f"{path}:1: got no line of a user and items, expected 'user item item …'; "
            "for another kind of file use --set data.format=csv"
        )
    pairs = canonical(pairs.explode("item"), options, lambda row: str(path), str(path))
    return _with_integers(pairs, ["user", "item"], path)


def looks_like_lists(path: Path) -> bool:
    """Return whether lines are whitespace-separated and of different lengths."""
    lines = [line for line in head_text(path).split("\n") if line.strip()]
    lengths = {len(line.split()) for line in lines}
    return len(lengths) > 1 and sniffed_separator("\n".join(lines)) in (" ", "\t", None)


def _layout(path: Path, options: DataConfig, typed_header: bool) -> Layout:
    text = head_text(path)
    if not text.strip():
        raise DataError(f"{path}: got an empty file, expected lines of user and item")
    asked = "\t" if options.sep == "\\t" else options.sep
    fitting = sniffed_separator(text)
    sep = asked or ("\t" if typed_header else fitting) or ","
    rows = first_rows(text, sep)[:1001]
    if not rows:
        raise DataError(
            f"{path}:1: got a first line that cannot be split, expected a short line that ends "
            "in a line feed; look for a quote that is not closed, or old Mac line ends"
        )
    if len(rows[0]) < 2:
        hint = f"use --set data.sep={_shown(fitting)}" if fitting else "name it with --set data.sep"
        raise DataError(
            f"{path}:1: got a single column {rows[0][0][:60]!r} with the separator {_shown(sep)}, "
            f"expected at least user and item; {hint}"
        )
    header = None
    if typed_header or _has_header(rows, options, path):
        header, rows = [name.strip() for name in rows[0]], rows[1:]
        if typed_header:
            header = [name.partition(":")[0] for name in header]
    width = len(header or rows[0])
    where = f"{path}:1"
    if header is not None:
        columns = find_columns(header, options, where)
    else:
        columns = count_columns(width, options, where)
        log.info("%s: no header; columns by position: %s", path, columns)
    if not rows and len(text.strip().splitlines()) == 1:
        raise DataError(f"{path}:2: got only a header, expected lines of data after it")
    content: Path | bytes = path
    if len(sep) > 1:
        content, sep, quoted = read_bytes(path).replace(sep.encode(), _UNIT.encode()), _UNIT, False
    else:
        quoted = not typed_header
        if path.suffix.lower() == ".gz" or sep == " ":
            content = read_bytes(path)
        if sep == " " and isinstance(content, bytes) and b'"' not in content:
            content = re.sub(rb"(?m)^ +| +(?=\r?$)| +(?= )", b"", content)
    return Layout(path, content, sep, quoted, header, width, columns, rows)


def _has_header(rows: Rows, options: DataConfig, path: Path) -> bool:
    if options.header is not None:
        return options.header
    first, second = rows[0], rows[1] if len(rows) > 1 else []
    asked = (options.user, options.item, options.time, options.rating, options.weight)
    names = {name for name in asked if isinstance(name, str) and name and not name.isdecimal()}
    if any(role_of(field) or field.strip() in names for field in first):
        return True
    # A name is hardly ever a number, so one number suffices to make the line data.
    if any(is_number(field) for field in first):
        return False
    if any(map(is_number, second)):
        return True
    raise DataError(
        f"{path}:1: got {', '.join(first)[:80]!r}, which may be names of columns or data; name the "
        "columns with --set data.user=… --set data.item=…, or say --set data.header=false"
    )


def _refuse_decimal_ids(layout: Layout) -> None:
    """Refuse a column of numbers with decimals, which is more likely a rating than an id."""
    for role in ("user", "item"):
        at = layout.columns[role]
        values = [row[at] for row in layout.head if at < len(row)]
        decimal = next((value for value in values if "." in value), None)
        if decimal is not None and all(map(is_number, values)):
            line = next(line for line, row in _numbered_rows(layout) if decimal in row[at : at + 1])
            raise DataError(
                f"{layout.path}:{line}: got {decimal!r} as {role} id, expected text or whole "
                f"numbers; write ids without decimals, or name another column with "
                f"--set data.{role}=NAME"
            )


def _guessed_type(role: Role, values: list[str]) -> pl.DataType:
    integers = all(re.fullmatch(_CANONICAL_INTEGER, value) for value in values)
    if role in ("rating", "weight"):
        return pl.Float64()
    if integers:
        return pl.Int64()
    if role == "time":
        return pl.Float64() if all(map(is_number, values)) else pl.String()
    return pl.String()


def _read_fast(layout: Layout, types: dict[Role, pl.DataType]) -> pl.DataFrame | None:
    """Read with polars; None where it may have understood the file differently than we do."""
    schema: dict[str, pl.DataType] = {f"column_{i + 1}": pl.String() for i in range(layout.width)}
    names = {role: f"column_{at + 1}" for role, at in layout.columns.items()}
    schema |= {name: types[role] for role, name in names.items()}
    frame = _read_csv(layout, schema, list(dict.fromkeys(names.values())))
    frame = frame.select(**{role: pl.col(name) for role, name in names.items()})
    has_blanks = frame["user"].null_count() > 0
    if has_blanks:
        frame = frame.filter(~pl.all_horizontal(pl.all().is_null()))
    integers = pl.Int64 in (types["user"], types["item"])
    # Where the last column is read, a short line shows as a null in it.
    if integers or has_blanks or layout.width - 1 not in layout.columns.values():
        separators, quotes, odd_integers = _survey(layout, integers)
        if odd_integers:
            return None
        # polars fills up short lines; their missing separators give them away. Where separators
        # may be quoted and spoil the count, every line must have something in its last field.
        last = f"column_{layout.width}"
        if quotes and layout.quoted:
            if _read_csv(layout, schema, [last])[last].null_count():
                return None
        elif separators != (layout.width - 1) * (frame.height + int(layout.header is not None)):
            return None
    if layout.header is not None and all(_contains_header(frame[r], layout) for r in types):
        return None
    return frame


def _read_csv(layout: Layout, schema: dict[str, pl.DataType], columns: list[str]) -> pl.DataFrame:
    return pl.read_csv(
        layout.content,
        has_header=False,
        skip_rows=int(layout.header is not None),
        schema=schema,
        columns=columns,
        separator=layout.sep,
        quote_char='"' if layout.quoted else None,
    )


def _contains_header(column: pl.Series, layout: Layout) -> bool:
    """Return whether the column's own name occurs in it, as where files were put together."""
    if layout.header is None:
        return False
    name = layout.header[layout.columns[column.name]]  # type: ignore[index]
    return column.dtype == pl.String and bool((column == name).any())


def _survey(layout: Layout, integers: bool) -> tuple[int, bool, bool]:
    """Return the number of separators, and whether there are quotes and oddly written integers.

    polars reads 007, +7 and 7 as the same number, but as ids they differ.
    """
    sep = layout.sep.encode()
    begins_field = np.zeros(256, dtype=bool)
    begins_field[[sep[0], ord("\n"), ord('"')]] = True
    zero, nine, plus, minus, space, tab = b"09+- \t"
    content = layout.content
    with content.open("rb") if isinstance(content, Path) else io.BytesIO(content) as file:
        count, quotes, odd, tail = 0, False, False, b"\n"
        while chunk := file.read(_CHUNK_BYTES):
            count += chunk.count(sep)
            quotes = quotes or b'"' in chunk
            if integers and not odd:
                text = np.frombuffer(tail + chunk, dtype=np.uint8)
                before = np.flatnonzero(begins_field[text[:-2]])
                first, second = text[before + 1], text[before + 2]
                odd = bool(
                    (
                        (first == plus)
                        | (first == space)
                        | ((first == tab) & (sep != b"\t"))
                        | ((first == zero) & (second >= zero) & (second <= nine))
                        | ((first == minus) & (second == zero))
                    ).any()
                )
                tail = chunk[-2:]
    return count, quotes, odd


def _read_slowly(layout: Layout) -> "tuple[pl.DataFrame, array[int]]":
    """Read with Python's csv module; also return the line each row begins on."""
    values: dict[Role, list[str]] = {role: [] for role in layout.columns}
    lines = array("q")
    expects_header = layout.header is not None
    for line, row in _numbered_rows(layout):
        if len(row) != layout.width:
            raise DataError(
                f"{layout.path}:{line}: got {len(row)} fields, expected {layout.width}; "
                "correct or remove the line"
            )
        if expects_header:
            expects_header = False
            first = row
            continue
        if layout.header is not None and row == first:
            raise DataError(
                f"{layout.path}:{line}: got the header again, expected data; remove the line"
            )
        lines.append(line)
        for role, at in layout.columns.items():
            # Interned, because an id repeated a million times should be kept once.
            values[role].append(sys.intern(row[at]))
    return pl.DataFrame(values, schema=dict.fromkeys(values, pl.String)), lines


def _numbered_rows(layout: Layout) -> Iterator[tuple[int, list[str]]]:
    content = layout.content
    with content.open("rb") if isinstance(content, Path) else io.BytesIO(content) as file:
        text = io.TextIOWrapper(file, "utf-8-sig", errors="surrogateescape", newline="\n")
        lines = _utf8_lines(text, layout.path)
        reader = csv.reader(
            lines,
            delimiter=layout.sep,
            quoting=csv.QUOTE_MINIMAL if layout.quoted else csv.QUOTE_NONE,
        )
        begin = 1
        try:
            for row in reader:
                if row and row != [" "]:
                    yield begin, row
                begin = reader.line_num + 1
        except csv.Error as error:
            raise DataError(
                f"{layout.path}:{begin}: got a row that cannot be split ({error}), expected "
                f"{layout.width} fields; look for a quote that is not closed"
            ) from None


def _utf8_lines(text: io.TextIOWrapper, path: Path) -> Iterator[str]:
    for number, line in enumerate(text, start=1):
        if not line.isascii() and not line.isprintable() and re.search("[\udc80-\udcff]", line):
            raise undecodable(f"{path}:{number}")
        yield line


def _with_integers(frame: pl.DataFrame, roles: Sequence[str], path: Path) -> pl.DataFrame:
    """Return text ids as integers if all of a column are, in the one way of writing an integer."""
    for role in roles:
        numbers = frame[role].cast(pl.Int64, strict=False)
        integers = frame[role].str.contains(_CANONICAL_INTEGER) & numbers.is_not_null()
        if integers.all():
            frame = frame.with_columns(numbers)
        elif integers.any():
            message = "%s: %s ids are read as text: %d of %d rows have whole numbers, not all"
            log.info(message, path, role, integers.sum(), len(integers))
    return frame


def _shown(sep: str | None) -> str:
    return "'\\t'" if sep == "\t" else f"'{sep}'"
