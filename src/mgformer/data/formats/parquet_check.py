"""Look through the headers of a Parquet file before polars reads it.

polars takes the counts of a header as they are. A negative one makes it ask for more memory than
there is, which ends the process. So the footer and the header of every page are read here first.
Both are structures of Thrift's compact protocol: fields with a number, a type and a value.
"""

from collections.abc import Callable
from typing import Any

MAGIC, TAIL = b"PAR1", 8
DEEPEST = 16
"""Levels of the deepest nesting that is read."""
Structure = dict[int, Any]
"""Number of a field → value. The numbers below are those of the format's parquet.thrift."""
FILE_ROWS, FILE_GROUPS = 3, 4
GROUP_COLUMNS, GROUP_ROWS = 1, 3
CHUNK_COLUMN = 3
COLUMN_VALUES, COLUMN_PAGES, COLUMN_DICTIONARY = 5, 9, 11
PAGE_SIZE, PAGE_PACKED_SIZE, PAGE_DATA, PAGE_DICTIONARY, PAGE_DATA_V2 = 2, 3, 5, 7, 8
NUM_VALUES = 1
V2_LEVELS = (5, 6)
"""Bytes of the levels at the beginning of a data page of version 2."""


class TooLargeError(ValueError):
    """The headers announce more rows or more bytes than are allowed."""


def check_parquet(
    content: "bytes | memoryview", most_rows: int | None = None, most_bytes: int | None = None
) -> None:
    """Check the counts, sizes and places in a Parquet file.

    Raises:
        TooLargeError: There are more than `most_rows` rows, or unpacked pages have more than
            `most_bytes` bytes.
        ValueError: The counts contradict each other or the file.
    """
    view = memoryview(content)
    footer = len(view) - TAIL - int.from_bytes(view[-TAIL:-4], "little")
    if bytes(view[:4]) != MAGIC or bytes(view[-4:]) != MAGIC or footer < len(MAGIC):
        raise ValueError("not a Parquet file, or not a whole one")
    metadata, _ = _structure(view[footer:-TAIL])
    groups = _list(metadata, FILE_GROUPS)
    rows = [_count(group, GROUP_ROWS) for group in groups]
    if sum(rows) != _count(metadata, FILE_ROWS):
        raise ValueError("the parts have another number of rows than the file")
    if most_rows is not None and sum(rows) > most_rows:
        raise TooLargeError(f"{sum(rows)} rows, expected at most {most_rows}")
    unpacked = 0
    for group in groups:
        for chunk in _list(group, GROUP_COLUMNS):
            unpacked += _check_column(view[:footer], _field(chunk, CHUNK_COLUMN))
            if most_bytes is not None and unpacked > most_bytes:
                raise TooLargeError(f"more than {most_bytes} bytes in all pages")


def _check_column(pages: memoryview, column: Structure) -> int:
    """Check the pages of a part of a column; return how many bytes they unpack to."""
    starts = [at for number in (COLUMN_PAGES, COLUMN_DICTIONARY) if (at := column.get(number))]
    # Some writers state the size of a column wrongly, so pages are read until there are all values.
    left = _count(column, COLUMN_VALUES)
    if left and not (starts and all(type(at) is int for at in starts)):
        raise ValueError("a column without pages")
    at, unpacked = min(starts, default=0), 0
    while left:
        if not 0 < at < len(pages):
            raise ValueError("a column that does not fit into the file")
        header, length = _structure(pages[at:])
        size = _count(header, PAGE_PACKED_SIZE)
        at += length + size
        unpacked += _count(header, PAGE_SIZE)
        if at > len(pages) or _count(header, PAGE_SIZE) > 1 << 31:
            raise ValueError("a page that does not fit into the file")
        if PAGE_DICTIONARY in header:
            values = _count(_field(header, PAGE_DICTIONARY), NUM_VALUES)
            if values > 8 * _count(header, PAGE_SIZE):
                raise ValueError("a dictionary with more values than bytes")
        elif PAGE_DATA in header or PAGE_DATA_V2 in header:
            own = _field(header, PAGE_DATA if PAGE_DATA in header else PAGE_DATA_V2)
            left -= _count(own, NUM_VALUES)
            levels = [_count(own, number) for number in V2_LEVELS] if PAGE_DATA_V2 in header else []
            if left < 0 or sum(levels) > size:
                raise ValueError("a page with more values than its column")
    return unpacked


def _count(structure: Structure, number: int) -> int:
    value = structure.get(number)
    if type(value) is not int or value < 0:
        raise ValueError(f"a count in a header is {value!r}")
    return value


def _field(structure: Structure, number: int) -> Structure:
    value = structure.get(number)
    if not isinstance(value, dict):
        raise ValueError("a header that lacks a part")
    return value


def _list(structure: Structure, number: int) -> list[Structure]:
    value = structure.get(number)
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise ValueError("a header that lacks a list")
    return value


def _structure(view: memoryview) -> tuple[Structure, int]:
    """Return the structure at the beginning of the bytes, and its length."""
    try:
        reader = _Reader(view)
        return reader.structure(0), reader.at
    except IndexError:
        raise ValueError("a header that ends too early") from None


class _Reader:
    """Reads values of the compact protocol from bytes, one after another."""

    def __init__(self, view: memoryview) -> None:
        self.view, self.at = view, 0
        self._kinds: dict[int, Callable[[int], Any]] = {
            1: lambda _: True, 2: lambda _: False, 3: lambda _: self.skip(1),
            4: lambda _: self.signed(), 5: lambda _: self.signed(), 6: lambda _: self.signed(),
            7: lambda _: self.skip(8), 8: lambda _: self.skip(self.number()),
            9: self.sequence, 10: self.sequence, 11: self.mapping, 12: self.structure,
        }  # fmt: skip

    def value(self, kind: int, depth: int) -> Any:
        if kind not in self._kinds or depth > DEEPEST:
            raise ValueError("a header of an unknown kind")
        return self._kinds[kind](depth + 1)

    def structure(self, depth: int) -> Structure:
        fields: Structure = {}
        number = 0
        while head := self.byte():
            number = number + (head >> 4) if head >> 4 else self.signed()
            fields[number] = self.value(head & 15, depth)
        return fields

    def sequence(self, depth: int) -> list[Any]:
        head = self.byte()
        length = head >> 4 if head >> 4 < 15 else self.number()
        return [self.element(head & 15, depth) for _ in range(self.within(length))]

    def mapping(self, depth: int) -> None:
        length = self.within(self.number())
        kinds = self.byte() if length else 0
        for _ in range(length):
            self.element(kinds >> 4, depth)
            self.element(kinds & 15, depth)

    def element(self, kind: int, depth: int) -> Any:
        """Return a value of a sequence or mapping, where also true and false take a byte."""
        return self.skip(1) if kind in (1, 2) else self.value(kind, depth)

    def within(self, length: int) -> int:
        """Return a length of elements, each of which takes a byte at least."""
        if length > len(self.view) - self.at:
            raise IndexError
        return length

    def skip(self, length: int) -> None:
        self.at += self.within(length)

    def byte(self) -> int:
        self.at += 1
        return self.view[self.at - 1]

    def number(self) -> int:
        value = shift = 0
        while (byte := self.byte()) > 127:
            value |= (byte & 127) << shift
            shift += 7
            if shift > 63:
                raise ValueError("a number in a header that is too long")
        return value | byte << shift

    def signed(self) -> int:
        value = self.number()
        return value >> 1 ^ -(value & 1)
