"""Find the columns of users, items, times, ratings and weights, and check their values.

Every format ends here, so that a CSV, a Parquet file and a data frame follow the same rules.
"""

import logging
import re
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

import polars as pl

from mgformer.data.formats.values import Place, shown
from mgformer.data.options import DataConfig
from mgformer.errors import DataError, did_you_mean

log = logging.getLogger("mgformer")

Role = Literal["user", "item", "time", "rating", "weight"]

# If a table has several known names of one role, the name listed first wins.
_NAMES: dict[Role, str] = {
    "user": """
        user userid uid reviewerid visitorid customerid customer memberid member accountid account
        personid person profileid username
    """,
    "item": """
        item itemid iid movieid asin productid product articleid article bookid isbn trackid songid
        artistid businessid gameid animeid recipeid newsid videoid venueid locationid movie book
        track song artist game anime sku stockcode parentasin
    """,
    "time": "timestamp time datetime date unixreviewtime ts createdat eventtime",
    "rating": "rating overall stars score",
    "weight": "weight count playcount plays",
}
_KNOWN_NAMES = {role: names.split() for role, names in _NAMES.items()}
DECIMAL = r"^[+-]?\d+\.\d*$"
"""A number with a decimal point, which is no id."""
WITHOUT_DECIMALS = "write all ids without decimals, or as text"
FLOAT_BITS: dict[pl.DataType | type[pl.DataType], int] = {
    pl.Float16: 11,
    pl.Float32: 24,
    pl.Float64: 53,
}
"""Up to two to this power, floats of a type can tell all whole numbers apart."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def role_of(name: str) -> Role | None:
    """Return the role that a column of this name usually has."""
    plain = _plain(name)
    return next((role for role, known in _KNOWN_NAMES.items() if plain in known), None)


def find_columns(names: Sequence[str], options: DataConfig, where: str) -> dict[Role, int]:
    """Return the position of each role's column; users and items are required."""
    plain = [_plain(name) for name in names]
    found: dict[Role, int] = {}
    for role, known in _KNOWN_NAMES.items():
        asked = getattr(options, role)
        if asked is None:
            asked = next((names[plain.index(name)] for name in known if name in plain), "")
        if asked != "":
            found[role] = _position_of(asked, names, role, where)
        elif role in ("user", "item"):
            raise DataError(
                f"{where}: got the columns {_listed(names)}, expected one of {role} ids; "
                f"name it with --set data.{role}=NAME"
            )
    if found["user"] == found["item"]:
        raise DataError(
            f"{where}: got one column for users and items, expected two; "
            "name them with --set data.user=NAME --set data.item=NAME"
        )
    if options.min_rating is not None and "rating" not in found:
        raise DataError(
            f"{where}: got no column of ratings, expected one because of data.min_rating; "
            "name it with --set data.rating=NAME"
        )
    if options.min_rating is None and options.rating is None:
        found.pop("rating", None)
    return found


def _position_of(asked: str | int, names: Sequence[str], role: Role, where: str) -> int:
    if asked in names:
        return names.index(str(asked))
    if str(asked).isdecimal() and int(asked) < len(names):
        return int(asked)
    raise DataError(
        f"{where}: got the columns {_listed(names)}, expected {asked!r}"
        f"{did_you_mean(str(asked), names)}; name the right one with --set data.{role}=NAME"
    )


def check_columns(
    frame: pl.DataFrame, options: DataConfig, where: str, place: Place
) -> pl.DataFrame:
    """Return the columns user, item, time, place and weight, checked and filtered by rating.

    Ids become Int64 or String, times Int64 or Float64, weights Float32.
    """
    if not frame.height:
        raise DataError(f"{where}: got no interactions, expected at least one row of data")
    columns = {"user": _ids(frame["user"], place), "item": _ids(frame["item"], place)}
    if "time" in frame.columns:
        columns["time"] = _times(frame["time"], place)
    if options.order == "file":
        columns["place"] = pl.int_range(frame.height, eager=True)
    if "weight" in frame.columns:
        columns["weight"] = _weights(frame["weight"], place)
    checked = pl.DataFrame(columns)
    if "rating" in frame.columns:
        ratings, least = _numbers(frame["rating"], place), options.min_rating
        checked = checked if least is None else checked.filter(ratings >= least)
        if not checked.height:
            raise DataError(
                f"{where}: got no rating above {ratings.max()!r}, expected some of at least "
                f"{least}; lower --set data.min_rating={least}"
            )
    return checked


def with_integer_ids(frame: pl.DataFrame, path: Path, place: Place) -> pl.DataFrame:
    """Convert each column of text ids to integers if all of its values are integers."""
    for role in ("user", "item"):
        # Usually the first rows show that ids are text; then the others need no check.
        if _integers(frame[role].head(1000)).null_count():
            continue
        numbers = _integers(frame[role])
        if not numbers.null_count():
            frame = frame.with_columns(numbers)
            continue
        others = frame[role].filter(numbers.is_null())
        if others.str.contains(DECIMAL).all():
            # As text, 1 and 1.0 would be two ids.
            got = f"got {shown(others[0])} as {role} id"
            raise _problem(
                place, numbers.is_null(), got, "text or whole numbers", remedy=WITHOUT_DECIMALS
            )
        message = "%s: %s ids are read as text: only %d of %d rows have whole numbers"
        log.info(message, path, role, numbers.count(), len(numbers))
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


def _ids(column: pl.Series, place: Place) -> pl.Series:
    role, dtype = column.name, column.dtype
    if dtype.is_float():
        column = column.fill_nan(None)
    if column.null_count():
        raise _problem(place, column.is_null(), f"got no {role} id", "an id in every row")
    if isinstance(dtype, pl.Categorical | pl.Enum | pl.String):
        column = column.cast(pl.String)
        if (column == "").any():
            raise _problem(place, column == "", f"got an empty {role} id", "an id in every row")
        return column
    if dtype.is_integer() or dtype.is_float():
        whole = column.cast(pl.Int64, strict=False)
        wrong = whole.is_null() | (whole != column)
        if wrong.any():
            value = column.filter(wrong)[0]
            expected = "whole numbers of 64 bits, or text"
            raise _problem(place, wrong, f"got {value!r} as {role} id", expected)
        if dtype.is_float():
            _refuse_rounded(column, place)
        return whole
    raise DataError(
        f"{place(0)}: got {role} ids of type {dtype}, expected text or whole numbers; "
        f"convert the column, or name another with --set data.{role}=NAME"
    )


def _refuse_rounded(column: pl.Series, place: Place) -> None:
    """Refuse ids that may have been others before they became floats."""
    bits = FLOAT_BITS[column.dtype]
    rounded = column.abs() >= 2**bits
    if rounded.any():
        got = f"got {column.filter(rounded)[0]!r} among {column.name} ids that are {column.dtype}"
        expected = f"ids below 2^{bits}, because floats round larger ones and two ids become one"
        raise _problem(place, rounded, got, expected, remedy=WITHOUT_DECIMALS)


def _times(column: pl.Series, place: Place) -> pl.Series:
    if column.dtype in (pl.Date, pl.Datetime):
        _refuse_nulls(column, place)
        return column.cast(pl.Datetime("us")).to_physical()
    if column.dtype == pl.String or column.dtype.is_integer():
        whole = column.cast(pl.Int64, strict=False)
        if not whole.null_count():
            return whole
        if column.dtype == pl.String and _as_float(column.head(1)).is_null().all():
            return _iso_times(column, place)
    return _numbers(column, place)


def _iso_times(column: pl.Series, place: Place) -> pl.Series:
    _refuse_nulls(column, place)
    micros: dict[str, int | None] = dict.fromkeys(column.unique())
    for text in micros:
        with suppress(ValueError):
            moment = datetime.fromisoformat(text.strip())
            since = moment.replace(tzinfo=moment.tzinfo or UTC) - _EPOCH
            micros[text] = since // timedelta(microseconds=1)
    times = column.replace_strict(micros, return_dtype=pl.Int64)
    if times.null_count():
        value = column.filter(times.is_null())[0]
        expected = "a number or a date such as 2024-01-31 or 2024-01-31T12:00:00"
        raise _problem(
            place, times.is_null(), f"got {shown(value)} as a time", expected, column.name
        )
    return times


def _weights(column: pl.Series, place: Place) -> pl.Series:
    numbers = _numbers(column, place)
    weights = numbers.cast(pl.Float32)
    if weights.is_infinite().any():
        value = numbers.filter(weights.is_infinite())[0]
        expected = "at most 3.4e38, the largest number of 32 bits"
        raise _problem(place, weights.is_infinite(), f"got {value!r} as a weight", expected)
    return weights


def _numbers(column: pl.Series, place: Place) -> pl.Series:
    _refuse_nulls(column, place)
    if column.dtype != pl.String and not column.dtype.is_numeric():
        raise DataError(
            f"{place(0)}: got a {column.name} of type {column.dtype}, expected a number; "
            f"name another column with --set data.{column.name}=NAME"
        )
    numbers = _as_float(column)
    wrong = numbers.is_null() | ~numbers.is_finite().fill_null(False)
    if wrong.any():
        value = column.filter(wrong)[0]
        got = f"got {shown(value)} as a {column.name}"
        raise _problem(place, wrong, got, "a number", column.name)
    return numbers


def _as_float(column: pl.Series) -> pl.Series:
    plain = column.str.strip_chars() if column.dtype == pl.String else column
    return plain.cast(pl.Float64, strict=False)


def _refuse_nulls(column: pl.Series, place: Place) -> None:
    empty = column.is_null() | ((column == "") if column.dtype == pl.String else False)
    if empty.any():
        raise _problem(place, empty, f"got no {column.name}", "one in every row", column.name)


def _problem(
    place: Place,
    wrong: pl.Series,
    got: str,
    expected: str,
    optional: str | None = None,
    remedy: str = "correct the row",
) -> DataError:
    """Describe the first wrong row; an `optional` column can also be ignored."""
    row = wrong.fill_null(True).arg_true()[0]
    ignore = f", or ignore the column with --set data.{optional}=''" if optional else ""
    return DataError(f"{place(row)}: {got}, expected {expected}; {remedy}{ignore}")


def _plain(name: str) -> str:
    return re.sub(r"[\W_]", "", name.lower())


def _listed(names: Sequence[str], most: int = 12) -> str:
    short = [" ".join(name.split())[:40] for name in names[:most]]
    return ", ".join(short) + (", …" if len(names) > most else "")
