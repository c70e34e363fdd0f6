"""Check the values of ids, times, ratings and weights.

Every format ends here, so that a CSV, a Parquet file and a data frame follow the same rules.
"""

from collections.abc import Callable

import polars as pl

from mgformer.data.formats.reading import Reading
from mgformer.data.formats.times import DATES, read_times, unit_of
from mgformer.data.formats.values import shown
from mgformer.data.options import DataConfig
from mgformer.errors import DataError

DECIMAL = r"^[+-]?\d+\.\d*$"
"""A number with a decimal point, which is no id."""
DECIMAL_COMMA = r"^([+-]?\d+),(\d{1,2}|\d{4,})$"
WITHOUT_DECIMALS = "write all ids without decimals, or as text"
FLOAT_BITS: dict[pl.DataType | type[pl.DataType], int] = {
    pl.Float16: 11,
    pl.Float32: 24,
    pl.Float64: 53,
}
"""Up to two to this power, floats of a type can tell all whole numbers apart."""


def check_columns(
    frame: pl.DataFrame, options: DataConfig, reading: Reading, *, typed: bool = True
) -> pl.DataFrame:
    """Return the columns user, item, time, place and weight, checked and filtered by rating.

    Ids become Int64 or String, times Int64 or Float64, weights Float32. If a source is not `typed`,
    ids are integers where all ids of a column are. Ratings are kept if nothing is filtered by them.
    """
    if not frame.height and not reading.num_skipped:
        raise DataError(f"{reading.source}: got no interactions, expected at least one row of data")
    columns = {"user": _ids(frame["user"], reading), "item": _ids(frame["item"], reading)}
    if "time" in frame.columns:
        columns["time"] = _times(frame["time"], options, reading)
    if options.order == "file":
        columns["place"] = pl.int_range(frame.height, eager=True)
    if "weight" in frame.columns:
        columns["weight"] = _weights(frame["weight"], reading)
    checked, likes = pl.DataFrame(columns), None
    if "rating" in frame.columns:
        ratings, least = _numbers(frame["rating"], reading), options.min_rating
        if least is None:
            checked = checked.with_columns(rating=ratings)
        else:
            likes = ratings >= least
            if not likes.any():
                raise DataError(
                    f"{reading.source}: got no rating above {ratings.max()!r}, expected some of at "
                    f"least {least}; lower --set data.min_rating={least}"
                )
    checked = reading.keep(checked, likes)
    if not typed and checked.height:
        checked = _with_integer_ids(checked, reading)
    if not checked.height:
        raise DataError(
            f"{reading.source}: got no row that can be used, expected at least one; the first "
            f"problem: {reading.first_skipped[0]}"
        )
    return checked


def _with_integer_ids(frame: pl.DataFrame, reading: Reading) -> pl.DataFrame:
    """Convert each column of text ids to integers if all of its values are integers."""
    for role in ("user", "item"):
        # Usually the first rows show that ids are text; then the others need no check.
        head = frame[role].head(1000)
        texts = head.filter(_integers(head).is_null())
        if not texts.str.contains(DECIMAL).all():
            continue
        numbers = _integers(frame[role])
        if not numbers.null_count():
            frame = frame.with_columns(numbers)
            continue
        others = frame[role].filter(numbers.is_null())
        if others.str.contains(DECIMAL).all():
            # As text, 1 and 1.0 would be two ids.
            got = _describing(frame[role], f"got {{}} as {role} id")
            reading.refuse(numbers.is_null(), got, "text or whole numbers", WITHOUT_DECIMALS)
            frame = reading.keep(frame.with_columns(numbers))
            continue
        reading.notes.append(
            f"{role} ids are read as text: only {numbers.count()} of {len(numbers)} rows have "
            "whole numbers"
        )
    return frame


def _integers(column: pl.Series) -> pl.Series:
    """Return text as integers, null if it is not the usual form of an integer.

    As integers, 007, +7 and -0 would equal other ids.
    """
    text = pl.col(column.name)
    padded = text.str.starts_with("0") & (text != "0")
    odd = padded | text.str.starts_with("+") | text.str.starts_with("-0")
    return (
        column.to_frame().select(pl.when(~odd).then(text.cast(pl.Int64, strict=False))).to_series()
    )


def _describing(column: pl.Series, text: str) -> Callable[[int], str]:
    """Return a function that puts the value of a row into a text."""
    return lambda row: text.format(shown(column[row]))


def _ids(column: pl.Series, reading: Reading) -> pl.Series:
    role, dtype = column.name, column.dtype
    if dtype.is_float():
        column = column.fill_nan(None)
    reading.refuse(column.is_null(), lambda _: f"got no {role} id", "an id in every row")
    if isinstance(dtype, pl.Categorical | pl.Enum | pl.String):
        column = column.cast(pl.String)
        empty = (column == "").fill_null(False)
        reading.refuse(empty, lambda _: f"got an empty {role} id", "an id in every row")
        return column
    if dtype.is_integer() or dtype.is_float():
        whole = column.cast(pl.Int64, strict=False)
        wrong = whole.is_null() | (whole != column).fill_null(False)
        got = _describing(column, f"got {{}} as {role} id")
        reading.refuse(wrong, got, "whole numbers of 64 bits, or text")
        if dtype.is_float():
            _refuse_rounded(column, reading)
        return whole
    raise DataError(
        f"{reading.place(0)}: got {role} ids of type {dtype}, expected text or whole numbers; "
        f"convert the column, or name another with --set data.{role}=NAME"
    )


def _refuse_rounded(column: pl.Series, reading: Reading) -> None:
    """Refuse ids that may have been others before they became floats."""
    bits = FLOAT_BITS[column.dtype]
    rounded = (column.abs() >= 2**bits).fill_null(False)
    got = _describing(column, f"got {{}} among {column.name} ids that are {column.dtype}")
    expected = f"ids below 2^{bits}, because floats round larger ones and two ids become one"
    reading.refuse(rounded, got, expected, WITHOUT_DECIMALS)


def _times(column: pl.Series, options: DataConfig, reading: Reading) -> pl.Series:
    if column.dtype in (pl.Date, pl.Datetime):
        _refuse_nulls(column, reading)
        reading.time_unit = DATES
        return column.cast(pl.Datetime("us")).to_physical()
    if column.dtype == pl.String:
        _refuse_nulls(column, reading)
    times = read_times(column, options.time_format, reading)
    if times is None:
        times = _numbers(column, reading)
        reading.time_unit = unit_of(times.drop_nulls().to_numpy())
    return times


def _weights(column: pl.Series, reading: Reading) -> pl.Series:
    numbers = _numbers(column, reading)
    weights = numbers.cast(pl.Float32)
    got = _describing(numbers, "got {} as a weight")
    infinite = weights.is_infinite().fill_null(False)
    reading.refuse(infinite, got, "at most 3.4e38, the largest number of 32 bits")
    empty = (weights <= 0).fill_null(False)
    reading.refuse(
        empty, got, "a weight above 0; drop such rows, or ignore weights with --set data.weight=''"
    )
    return weights


def _numbers(column: pl.Series, reading: Reading) -> pl.Series:
    _refuse_nulls(column, reading)
    if column.dtype != pl.String and not column.dtype.is_numeric():
        raise DataError(
            f"{reading.place(0)}: got a {column.name} of type {column.dtype}, expected a number; "
            f"name another column with --set data.{column.name}=NAME"
        )
    plain = _with_points(column, reading) if column.dtype == pl.String else column
    numbers = plain.cast(pl.Float64, strict=False)
    wrong = numbers.is_null() | ~numbers.is_finite().fill_null(False)
    got = _describing(column, f"got {{}} as a {column.name}")
    reading.refuse(wrong, got, "a number", optional=column.name)
    return numbers


def _with_points(column: pl.Series, reading: Reading) -> pl.Series:
    """Return text with 4.5 in place of 4,5; three digits after a comma may be thousands."""
    plain = column.str.strip_chars()
    if column.name == "time":
        return plain
    commas = plain.str.contains(DECIMAL_COMMA)
    if commas.any():
        example = plain.filter(commas)[0]
        reading.notes.append(
            f"{column.name}s such as {example} are read as {example.replace(',', '.')}"
        )
        plain = plain.str.replace(DECIMAL_COMMA, "$1.$2")
    return plain


def _refuse_nulls(column: pl.Series, reading: Reading) -> None:
    empty = column.is_null() | ((column == "") if column.dtype == pl.String else False)
    name = column.name
    reading.refuse(empty, lambda _: f"got no {name}", "one in every row", optional=name)
