"""Python values as columns, and values as errors show them."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import polars as pl

from mgformer.data.formats.reading import Reading
from mgformer.errors import DataError

POLARS_ERRORS = (pl.exceptions.PolarsError, pl.exceptions.PanicException)
"""What polars raises over data. A panic is no Exception, so it is named."""


def check_values(values: Sequence[Any], role: str, reading: Reading) -> pl.Series:
    """Return Python values as a column, all text or all numbers; None is a missing value."""
    kind = _main_kind(values, reading.skip)
    checked = list(values)
    for row, value in enumerate(values):
        problem = None if value is None else _problem_of(value, kind, role)
        if problem is not None:
            reading.refuse_row(row, len(values), *problem)
            checked[row] = None
    return series_of(role, checked, reading)


def _main_kind(values: Sequence[Any], of_most: bool) -> str:
    """Return the kind that the values of a column should have: that of the first, or of most."""
    kinds = (_kind(value) for value in values if value is not None)
    if not of_most:
        return next(kinds, "text")
    counts = Counter(kinds)
    return max(counts, key=counts.__getitem__, default="text")


def _problem_of(value: Any, kind: str, role: str) -> tuple[str, str] | None:
    """Return what is wrong with a value, and what to do; None if nothing is."""
    own = _kind(value)
    nested = isinstance(value, list | dict)  # of which polars may make another number of rows
    plain = own in ("text", "number") or (role == "time" and not nested)
    if not plain or own != kind:
        known = {"text": "text", "number": "a number"}.get(kind, kind)
        return (
            f"got {shown(value)} of type {type(value).__name__} in the {role} column, expected "
            f"{f'{known} as in other rows' if plain else 'text or a number'}",
            "make the column all text or all numbers",
        )
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return (
            f"got {shown(value)} in the {role} column, expected whole numbers of 64 bits, or text",
            "write larger numbers as text",
        )
    if isinstance(value, str) and not (value.isascii() or _is_unicode(value)):
        return (
            f"got {shown(value)} in the {role} column, half of a pair of surrogates, expected "
            "text that can be written as UTF-8",
            "correct the row",
        )
    return None


def series_of(role: str, values: Any, reading: Reading) -> pl.Series:
    """Return values as a column; polars finds one type for all of them."""
    try:
        return pl.Series(role, values, strict=False)
    except (*POLARS_ERRORS, TypeError, ValueError, OverflowError) as error:
        raise DataError(
            f"{reading.place(0)}: got a {role} column that cannot be read ({first_line(error)}), "
            "expected all text or all numbers; convert the column"
        ) from None


def shown(value: object, most: int = 60) -> str:
    """Return a value as an error shows it: short, and on one line."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # more than 4,300 digits, or deep nesting
        return f"a {type(value).__name__} that is too long to show"
    return text if len(text) <= most else f"{text[:most]}…"


def first_line(error: BaseException) -> str:
    """Return what an error says, in short."""
    return (str(error).splitlines() or [type(error).__name__])[0][:100]


def _kind(value: object) -> str:
    if isinstance(value, str):
        return "text"
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return "number" if is_number else type(value).__name__


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
