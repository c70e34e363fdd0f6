"""Text before its columns are known: bytes, encoding, separators."""

import contextlib
import csv
import gzip
import io
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from mgformer.errors import DataError

SEPARATORS = (",", "\t", ";", "|", "::", " ")
HEAD_BYTES = 1 << 16


def read_bytes(path: Path) -> bytes:
    """Return the whole content of a file, unpacked."""
    try:
        with _opened(path) as file:
            return file.read()
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: got {error}, expected a readable file") from None


def first_bytes(path: Path, count: int = HEAD_BYTES) -> bytes:
    """Return the beginning of a file, unpacked."""
    try:
        with _opened(path) as file:
            return file.read(count)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: got {error}, expected a readable file") from None


def head_text(path: Path) -> str:
    """Return the first whole lines of a file."""
    data = first_bytes(path)
    if len(data) == HEAD_BYTES:
        data = data[: data.rfind(b"\n") + 1 or None]
    return decoded(data, path)


def decoded(data: bytes, path: Path) -> str:
    """Return UTF-8 bytes as text, or say which line is not."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise undecodable(f"{path}:{line}") from None


def undecodable(place: str) -> DataError:
    """Return the error for a line that is not UTF-8."""
    return DataError(
        f"{place}: got bytes that are not UTF-8, expected UTF-8 text; convert the file, for "
        "example with iconv -f latin1 -t utf-8"
    )


def sniffed_separator(text: str) -> str | None:
    """Return the separator that splits most of the first lines like the first, if any does.

    A space counts only where nothing else does, since dates and names contain it.
    """
    best: tuple[float, bool, int] = (0.0, False, 0)
    found = None
    for sep in SEPARATORS:
        rows = first_rows(text, sep)[:50]
        width = len(rows[0]) if rows else 0
        if width < 2:
            continue
        alike = sum(len(row) == width for row in rows) / len(rows)
        if (alike, sep != " ", width) > best:
            best, found = (alike, sep != " ", width), sep
    return found


def first_rows(text: str, sep: str) -> list[list[str]]:
    """Return the fields of every line that is not blank, up to the first that cannot be split."""
    rows: list[list[str]] = []
    with contextlib.suppress(csv.Error):
        for row in _rows_of(text, sep):
            rows.append(row)  # noqa: PERF402 - extend would lose the rows before the error
    return rows


def split_rows(text: str, sep: str, path: Path) -> list[list[str]]:
    """Return the fields of every line that is not blank."""
    try:
        return list(_rows_of(text, sep))
    except csv.Error as error:
        raise DataError(
            f"{path}: got a row that cannot be split ({error}), expected fields separated by "
            f"{sep!r}; look for a quote that is not closed"
        ) from None


def _rows_of(text: str, sep: str) -> Iterator[list[str]]:
    if len(sep) > 1:
        return (line.rstrip("\r").split(sep) for line in text.split("\n") if line.strip())
    if sep == " ":
        text = re.sub(r"(?m)^ +| +(?=\r?$)| +(?= )", "", text)
    return (row for row in csv.reader(io.StringIO(text, newline="\n"), delimiter=sep) if row)


def is_number(text: str) -> bool:
    """Return whether a field is a finite decimal number."""
    return re.fullmatch(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*", text) is not None


def _opened(path: Path) -> BinaryIO:
    return gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb")  # type: ignore[return-value]
