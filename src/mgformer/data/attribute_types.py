"""Find out what kind of fact a column holds, and convert it; a wrong value names its row.

Text files have no types. There, a column is a flag, a number, a date, a list of numbers or several
categories if all its values look like it. Other text is free text if it is long, else a category.
"""

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime

import polars as pl

from mgformer.data.attributes import Attribute, Kind
from mgformer.data.formats.values import POLARS_ERRORS, shown
from mgformer.errors import DataError

Place = Callable[[int], str]
"""Turns the position of a row into the place that an error names, such as "items.csv:7"."""
FLAGS = {"true": True, "yes": True, "false": False, "no": False}
BITS = {"1": True, "0": False}
BETWEEN = "|"
"""What separates several categories in text."""
FEW_VALUES = 50
"""A column of text with at most so many different values is a category."""
MANY_WORDS = 4.0
"""A column of text with more words in a value, on average, is free text."""
LARGEST_EMBEDDING = 4096
_NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
_PADDED = r"^[+-]?0\d"
_DATE = r"^\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?)?$"


def attribute_of(
    column: pl.Series,
    place: Place,
    kind: Kind | None = None,
    *,
    untyped: bool = False,
    private: bool = False,
) -> Attribute:
    """Return a column as an attribute of a kind; the kind is detected if it is not given.

    Args:
        column: The values as the file has them.
        place: Names the place of a row in errors.
        kind: What the column holds.
        untyped: Whether the file has text only, so that text may be numbers or flags.
        private: Whether the attribute is for rules only.
    """
    if column.dtype == pl.String:
        column = column.str.strip_chars()
        column = column.set(column == "", None)
    elif column.dtype in (pl.Categorical, pl.Enum):
        column = column.cast(pl.String)
        kind = kind or "category"
    elif column.dtype.is_float():
        column = column.fill_nan(None)
    found = kind or _detected(column, place, untyped=untyped)
    return Attribute(found, _CONVERTERS[found](column, place), private)


def _detected(column: pl.Series, place: Place, *, untyped: bool) -> Kind:
    dtype = column.dtype
    if dtype == pl.Boolean:
        return "flag"
    if dtype.is_numeric():
        return "number"
    if dtype in (pl.Date, pl.Datetime):
        return "date"
    if isinstance(dtype, pl.List | pl.Array):
        inner = dtype.inner
        if inner in (pl.String, pl.Categorical, pl.Enum, pl.Null):
            return "categories"
        if isinstance(inner, pl.DataType) and inner.is_numeric():
            return "embedding"
    if dtype == pl.Null:
        return "category"
    if dtype == pl.String:
        return _kind_of_text(column.drop_nulls(), untyped=untyped)
    raise _unusable(column, place, f"values of type {dtype}", "text, numbers, dates or lists")


def _kind_of_text(values: pl.Series, *, untyped: bool) -> Kind:
    if not len(values):
        return "category"
    if untyped and values.str.to_lowercase().is_in(list(FLAGS)).all():
        return "flag"
    # A padded number, such as a postal code, is a name of something.
    if untyped and values.str.contains(_NUMBER).all() and not values.str.contains(_PADDED).any():
        return "number"
    if values.str.contains(_DATE).all():
        return "date"
    if (values.str.starts_with("[") & values.str.ends_with("]")).all():
        return "embedding"
    if values.str.contains(BETWEEN, literal=True).any():
        return "categories"
    distinct = values.n_unique()
    num_words = values.str.count_matches(r"\S+").mean()
    assert isinstance(num_words, float)
    is_category = distinct <= max(FEW_VALUES, len(values) // 2) and num_words <= MANY_WORDS
    return "category" if is_category else "text"


def _as_text(column: pl.Series, place: Place) -> pl.Series:
    if isinstance(column.dtype, pl.List | pl.Array | pl.Struct | pl.Binary):
        raise _unusable(column, place, f"values of type {column.dtype}", "one text for each")
    text = column.cast(pl.String)
    return text.set(text == "", None)


def _as_categories(column: pl.Series, place: Place) -> pl.Series:
    if isinstance(column.dtype, pl.List | pl.Array):
        try:
            parts = column.cast(pl.List(pl.String))
        except POLARS_ERRORS:
            raise _unusable(column, place, f"lists of {column.dtype}", "lists of text") from None
    else:
        parts = _as_text(column, place).str.split(BETWEEN)
    element = pl.element().str.strip_chars()
    kept = element.filter(element.is_not_null() & (element != ""))
    return parts.to_frame().select(pl.first().list.eval(kept)).to_series()


def _as_number(column: pl.Series, place: Place) -> pl.Series:
    if column.dtype == pl.Boolean:
        return column.cast(pl.Int64)
    numbers = column.cast(pl.Float64, strict=False)
    _check(column, numbers.is_finite(), place, "a number")
    whole = column.cast(pl.Int64, strict=False)
    exact = whole.is_not_null() & (whole.cast(pl.Float64) == numbers)
    return whole if (exact | column.is_null()).all() else numbers


def _as_date(column: pl.Series, place: Place) -> pl.Series:
    if column.dtype == pl.Date:
        return column
    if isinstance(column.dtype, pl.Datetime):
        if column.dtype.time_zone is not None:
            column = column.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
        return column.cast(pl.Datetime("us"))
    expected = "a date such as 2024-01-31 or 2024-01-31T12:00:00"
    if column.dtype not in (pl.String, pl.Null):
        raise _unusable(column, place, f"values of type {column.dtype}", expected)
    texts = column.cast(pl.String)
    moments = {text: moment_of(text) for text in texts.unique().drop_nulls()}
    parsed = pl.Series(column.name, [None if t is None else moments[t] for t in texts],
                       dtype=pl.Datetime("us"))  # fmt: skip
    _check(column, parsed.is_not_null(), place, expected)
    days = parsed.cast(pl.Date)
    return days if (days.cast(pl.Datetime("us")) == parsed).all() else parsed


def moment_of(text: str) -> datetime | None:
    """Return the moment that a text in ISO form names, in UTC without a zone; None if none."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo is None else moment.astimezone(UTC).replace(tzinfo=None)


def _as_flag(column: pl.Series, place: Place) -> pl.Series:
    words = column.cast(pl.String, strict=False).str.to_lowercase()
    flags = words.replace_strict(FLAGS | BITS, default=None, return_dtype=pl.Boolean)
    _check(column, flags.is_not_null(), place, "true or false")
    return flags


def _as_embedding(column: pl.Series, place: Place) -> pl.Series:
    expected = "a list of numbers such as [0.1, 0.2], equally long in every row"
    given = column
    if column.dtype in (pl.String, pl.Null):
        rows = [None if text is None else _numbers_in(text) for text in column]
        column = pl.Series(column.name, rows, dtype=pl.List(pl.Float64), strict=False)
    elif isinstance(column.dtype, pl.Array):
        column = column.arr.to_list()
    if not isinstance(column.dtype, pl.List):
        raise _unusable(column, place, f"values of type {column.dtype}", expected)
    lists = column.cast(pl.List(pl.Float32), strict=False)
    lengths = lists.list.len()
    usual = int(lengths.drop_nulls().first() or 1)  # type: ignore[arg-type]
    if usual > LARGEST_EMBEDDING:
        raise _unusable(column, place, f"lists of {usual}", f"at most {LARGEST_EMBEDDING} numbers")
    right = (lengths == usual) & lists.list.eval(pl.element().is_finite()).list.all()
    _check(given, right, place, expected)
    return lists.cast(pl.Array(pl.Float32, usual))


def _numbers_in(text: str) -> list[float]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return []
    plain = isinstance(found, list) and all(type(value) in (int, float) for value in found)
    return [float(value) for value in found] if plain else []


_CONVERTERS: dict[Kind, Callable[[pl.Series, Place], pl.Series]] = {
    "category": _as_text,
    "categories": _as_categories,
    "number": _as_number,
    "date": _as_date,
    "flag": _as_flag,
    "text": _as_text,
    "embedding": _as_embedding,
}


def _check(column: pl.Series, right: pl.Series, place: Place, expected: str) -> None:
    """Refuse the first value that is there but is not right."""
    wrong = column.is_not_null() & ~right.fill_null(False)
    if wrong.any():
        row = wrong.arg_true()[0]
        value = column[row]
        got = shown(value.to_list() if isinstance(value, pl.Series) else value)
        raise DataError(
            f"{place(row)}: got {got} in the column {column.name}, expected"
            f' {expected}; correct the row, or set data.kinds={{{column.name} = "ignore"}}'
        )


def _unusable(column: pl.Series, place: Place, got: str, expected: str) -> DataError:
    return DataError(
        f"{place(0)}: got {got} in the column {column.name}, expected {expected}; convert the"
        f' column, or set data.kinds={{{column.name} = "ignore"}}'
    )


_ENDS_IN_A_YEAR = re.compile(r"\((\d{4})\)\s*$")


def years_in(names: pl.Series) -> pl.Series | None:
    """Return the years at the end of names such as "Heat (1995)"; None if most have none."""
    years = names.str.extract(_ENDS_IN_A_YEAR.pattern).cast(pl.Int64)
    known = names.count()
    return years.rename("year") if known and years.count() > known / 2 else None
