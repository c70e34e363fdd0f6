"""Python values as columns, and values as errors show them."""

from collections.abc import Callable, Sequence
from typing import Any

import polars as pl

from mgformer.errors import DataError

Place = Callable[[int], str]
"""Turns the position of a row into the place that an error names, such as "ratings.csv:7"."""
POLARS_ERRORS = (pl.exceptions.PolarsError, pl.exceptions.PanicException)
"""What polars raises over data. A panic is no Exception, so it is named."""


def check_values(values: Sequence[Any], role: str, place: Place) -> pl.Series:
    """Return Python values as a column, all text or all numbers; None is a missing value."""
    first = next((value for value in values if value is not None), None)
    for row, value in enumerate(values):
        if value is None:
            continue
        kind = _kind(value)
        nested = isinstance(value, list | dict)  # of which polars may make another number of rows
        plain = kind in ("text", "number") or (role == "time" and not nested)
        if not plain or kind != _kind(first):
            raise DataError(
                f"{place(row)}: got {shown(value)} of type {type(value).__name__} in the {role} "
                f"column, expected {type(first).__name__ if plain else 'text or a number'} as in "
                "the rows before; make the column all text or all numbers"
            )
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise DataError(
                f"{place(row)}: got {shown(value)} in the {role} column, expected whole numbers of "
                "64 bits, or text; write larger numbers as text"
            )
        if isinstance(value, str) and not (value.isascii() or _is_unicode(value)):
            raise DataError(
                f"{place(row)}: got {shown(value)} in the {role} column, half of a pair of "
                "surrogates, expected text that can be written as UTF-8; correct the row"
            )
    return series_of(role, values, place)


def series_of(role: str, values: Any, place: Place) -> pl.Series:
    """Return values as a column; polars finds one type for all of them."""
    try:
        return pl.Series(role, values, strict=False)
    except (*POLARS_ERRORS, TypeError, ValueError, OverflowError) as error:
        raise DataError(
            f"{place(0)}: got a {role} column that cannot be read ({first_line(error)}), expected "
            "all text or all numbers; convert the column"
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
