"""Find the items for which a condition holds.

The result of each comparison is kept as a bitmap, one bit per item, so a filter that is used again
costs a few operations on an eighth of a byte per item. A missing value fulfills no comparison but
`is missing`.

Shapes: n items or users.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from mgformer.data.attribute_types import moment_of
from mgformer.data.attributes import Attribute, Attributes, Kind
from mgformer.data.where import MISSING, All, AnyOf, Compare, Not, Value, Where, columns_of
from mgformer.errors import ConfigError, did_you_mean

Bits = NDArray[np.uint8]
Mask = NDArray[np.bool_]
KEPT = 256
"""Bitmaps that are kept."""
MOST_LISTED = 12
_ORDER = ("=", "in", "<", "<=", ">", ">=")
_OPERATORS: dict[Kind, tuple[str, ...]] = {
    "category": ("=", "in"),
    "categories": ("has",),
    "number": _ORDER,
    "date": _ORDER,
    "flag": ("=",),
    "text": ("=", "in", "has"),
    "embedding": (),
}
_DESCRIBED: dict[Kind, str] = {
    "category": "a category",
    "categories": "several categories",
    "number": "a number",
    "date": "a date",
    "flag": "true or false",
    "text": "free text",
    "embedding": "an embedding",
}
_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "=": np.equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}


class _Codes(NamedTuple):
    """The categories of a column as numbers."""

    rows: NDArray[np.int64] | None
    """The item of each code; None if every item has one code."""
    codes: NDArray[np.int64]
    """-1 where it is missing."""
    code_of: dict[str, int]


class Filters:
    """The filters of one table."""

    def __init__(self, about: Attributes, size: int) -> None:
        self.about, self.size = about, size
        # Both caches may be used by several threads.
        self._bits = lru_cache(KEPT)(self._compared)
        self._codes = lru_cache(None)(self._coded)

    def mask(self, where: Where, *, private: bool = False) -> Mask:
        """Return [n] whether a condition holds.

        Args:
            where: The condition.
            private: Whether it may use private attributes, as rules may.
        """
        allowed = self.about if private else self.about.public
        for column in columns_of(where):
            if column not in allowed:
                # A private attribute is as unknown as one that is not there.
                listed = ", ".join(list(allowed)[:MOST_LISTED])
                more = f" and {len(allowed) - MOST_LISTED} more" * (len(allowed) > MOST_LISTED)
                expected = f"one of {listed}{more}" if allowed else "none: there are no attributes"
                raise ConfigError(
                    f"where: got the attribute {column!r}, expected {expected}"
                    f"{did_you_mean(column, allowed)}"
                )
        return np.unpackbits(self._evaluated(where), count=self.size).view(np.bool_)

    def _evaluated(self, where: Where) -> Bits:
        if isinstance(where, Compare):
            # Python takes true for 1, and a cache must not.
            return self._bits(where, tuple(map(type, where.values)))
        if isinstance(where, Not):
            return ~self._evaluated(where.inner)
        combine = np.bitwise_and if isinstance(where, All) else np.bitwise_or
        assert isinstance(where, All | AnyOf)
        found = self._evaluated(where.parts[0])
        for part in where.parts[1:]:
            found = combine(found, self._evaluated(part))
        return found

    def _compared(self, test: Compare, types: tuple[type, ...]) -> Bits:
        """Return the bitmap of one comparison."""
        del types  # they only tell keys of the cache apart
        own = self.about[test.column]
        if test.operator == MISSING:
            return np.packbits(own.values.is_null().to_numpy())
        if test.operator not in _OPERATORS[own.kind]:
            use = ", ".join((*_OPERATORS[own.kind], MISSING))
            raise ConfigError(
                f"where: got {test.column} {test.operator} …, but {test.column} is"
                f" {_DESCRIBED[own.kind]}, expected one of: {use}"
            )
        if own.kind in ("category", "categories"):
            return np.packbits(self._in_codes(test))
        if own.kind == "text":
            return np.packbits(_in_text(own, test))
        return np.packbits(_in_numbers(own, test))

    def _in_codes(self, test: Compare) -> Mask:
        rows, codes, code_of = self._codes(test.column)
        wanted = np.zeros(len(code_of) + 1, dtype=bool)  # the last one stands for -1
        for value in test.values:
            if (code := code_of.get(_as_text(test, value))) is not None:
                wanted[code] = True
        hit = wanted[codes]
        if rows is None:
            return hit
        found = np.zeros(self.size, dtype=bool)
        found[rows[hit]] = True
        return found

    def _coded(self, column: str) -> _Codes:
        values, rows = self.about[column].values, None
        if self.about[column].kind == "categories":
            lengths = values.list.len().fill_null(0).to_numpy()
            rows = np.repeat(np.arange(self.size), lengths)
            values = values.filter(pl.Series(lengths > 0)).explode()
        distinct = values.drop_nulls().unique(maintain_order=True)
        code_of = {value: code for code, value in enumerate(distinct)}
        codes = values.replace_strict(
            distinct, pl.Series(range(len(distinct)), dtype=pl.Int64), default=-1,
            return_dtype=pl.Int64,
        )  # fmt: skip
        return _Codes(rows, codes.fill_null(-1).to_numpy(), code_of)


def _in_text(own: Attribute, test: Compare) -> Mask:
    values = [_as_text(test, value) for value in test.values]
    if test.operator == "has":  # a word, or words that follow each other
        found = pl.Series([False] * len(own.values), dtype=pl.Boolean)
        for value in values:
            words = r"\s+".join(map(_escaped, value.split()))
            found |= own.values.str.contains(rf"(?i)(^|\W){words}(\W|$)").fill_null(False)
        return found.to_numpy()
    return own.values.is_in(values).fill_null(False).to_numpy()


def _escaped(word: str) -> str:
    return "".join(letter if letter.isalnum() else f"\\x{{{ord(letter):x}}}" for letter in word)


def _in_numbers(own: Attribute, test: Compare) -> Mask:
    """Compare numbers, dates (in microseconds) and flags (as 0 and 1)."""
    known = own.values.is_not_null().to_numpy()
    column = own.values
    if own.kind == "date":
        column = column.cast(pl.Datetime("us")).to_physical()
    elif own.kind == "flag":
        column = column.cast(pl.Int64)
    numbers = column.fill_null(0).to_numpy()
    operands = [_operand(own.kind, test, value) for value in test.values]
    if test.operator == "in":
        found = np.zeros(len(numbers), dtype=bool)
        for operand in operands:
            found |= numbers == operand
        return found & known
    result: Mask = _COMPARISONS[test.operator](numbers, operands[0]) & known
    return result


def _operand(kind: Kind, test: Compare, value: Value) -> int | float:
    if kind == "flag" and isinstance(value, bool):
        return int(value)
    if kind == "number" and isinstance(value, int | float) and not isinstance(value, bool):
        return value
    if kind == "date" and isinstance(value, str) and (moment := moment_of(value)) is not None:
        return int(pl.Series([moment], dtype=pl.Datetime("us")).to_physical()[0])
    expected = {"flag": "true or false", "number": "a number"}.get(kind, "a date: 2024-01-31")
    raise ConfigError(
        f"where: got {value!r} for {test.column}, which is {_DESCRIBED[kind]}, expected {expected}"
    )


def _as_text(test: Compare, value: Value) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise ConfigError(f"where: got {value!r} for {test.column}, expected text")
