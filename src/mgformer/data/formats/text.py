"""What text formats share: decode a file, guess its separator, split it into rows."""

import contextlib
import csv
import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from mgformer.data.formats.reading import Reading
from mgformer.errors import DataError

Row = tuple[int, list[str]]
"""The line that a row begins on, and its fields."""
SEPARATORS = (",", "\t", ";", "|", "::", " ")
HEAD_BYTES = 1 << 16
# Replaces a separator of several characters: polars and csv accept only one.
_UNIT = "\x1f"
NOT_UTF8 = "got bytes that are not UTF-8, expected UTF-8 text"
_ESCAPED = re.compile("[\udc80-\udcff]")


def head_of(data: bytes) -> bytes:
    """Return the first complete lines."""
    if len(data) <= HEAD_BYTES:
        return data
    return data[: data.rfind(b"\n", 0, HEAD_BYTES) + 1 or HEAD_BYTES]


def decode(data: bytes, path: Path, tolerant: bool = False) -> str:
    """Decode UTF-8; an error names the first line that is not UTF-8.

    With `tolerant`, `is_broken` tells which lines are not UTF-8.
    """
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if tolerant:
            return data.decode("utf-8-sig", "surrogateescape")
        line = data.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"{path}:{line}: {NOT_UTF8}; convert the file, for example with "
            "iconv -f latin1 -t utf-8"
        ) from None


def is_broken(line: str) -> bool:
    """Return whether a line was not UTF-8."""
    return not line.isascii() and _ESCAPED.search(line) is not None


def readable(text: str) -> str:
    """Return text with a replacement character for each byte that was not UTF-8."""
    return _ESCAPED.sub("\ufffd", text)


def one_character(data: bytes, sep: str) -> tuple[bytes, str]:
    """Replace the separator by a single character that is not repeated; also return that one."""
    if len(sep) > 1:
        return data.replace(sep.encode(), _UNIT.encode()), _UNIT
    if sep == " " and b'"' not in data:
        return re.sub(rb"(?m)^ +| +(?=\r?$)| +(?= )", b"", data), sep
    return data, sep


def split_rows(
    data: bytes,
    sep: str,
    path: Path,
    quoted: bool = True,
    problem_of: Callable[[list[str]], str | None] = lambda _: None,
    reading: Reading | None = None,
) -> Iterator[Row]:
    """Yield the rows that are not blank.

    `problem_of` says what is wrong with a row. If such rows are left out, only the first line of a
    row is: a quote that is not closed makes one row of many lines.
    """
    reading = reading or Reading(str(path))
    data, sep = one_character(data, sep)
    quoted = quoted and sep != _UNIT
    lines = decode(data, path, tolerant=reading.skip).split("\n")
    begin = 0
    while begin < len(lines):
        first = begin
        feed = (lines[at] + "\n" * (at + 1 < len(lines)) for at in range(first, len(lines)))
        reader = csv.reader(
            feed, delimiter=sep, quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE
        )
        try:
            for row in reader:
                end = first + reader.line_num
                if len(row) > 1 or "".join(row).strip():
                    problem = problem_of(row)
                    if problem is None:
                        yield begin + 1, row
                    else:
                        reading.refuse_line(begin + 1, problem, "correct or remove the line")
                        if end > begin + 1:
                            break
                begin = end
            else:
                return
        except csv.Error as error:
            problem = (
                f"got a row that cannot be split ({error}), expected fields separated by {sep!r}"
            )
            reading.refuse_line(begin + 1, problem, "look for a quote that is not closed")
        begin += 1


def first_rows(text: str, sep: str, path: Path, most: int, quoted: bool = True) -> list[Row]:
    """Return the first rows, up to the first one that cannot be split."""
    rows: list[Row] = []
    with contextlib.suppress(DataError):
        for row in itertools.islice(split_rows(text.encode(), sep, path, quoted), most):
            rows.append(row)  # noqa: PERF402 - extend would lose the rows before the error
    return rows


def guess_separator(text: str, path: Path) -> str | None:
    """Return the separator that gives most of the first lines the width of the first, if any.

    A space is the last choice, because dates and names contain spaces.
    """
    best: tuple[float, bool, int] = (0.0, False, 0)
    found = None
    for sep in SEPARATORS:
        rows = first_rows(text, sep, path, most=50)
        width = len(rows[0][1]) if rows else 0
        if width > 1:
            alike = sum(len(row) == width for _, row in rows) / len(rows)
            if (alike, sep != " ", width) > best:
                best, found = (alike, sep != " ", width), sep
    return found


def is_number(text: str) -> bool:
    """Return whether a field is a finite decimal number."""
    return re.fullmatch(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*", text) is not None
