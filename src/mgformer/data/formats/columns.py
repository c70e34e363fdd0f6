"""Which column means what, and what its values must be.

Every format ends here: columns are found by name or position, and their values are checked and
brought to one form, so that a CSV, a Parquet file and a data frame obey the same rules.
"""

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

import polars as pl
from pydantic import BaseModel, ConfigDict, Field

from mgformer.errors import DataError, did_you_mean

Format = Literal["csv", "parquet", "jsonl", "lightgcn", "inter"]
Role = Literal["user", "item", "time", "rating", "weight"]
Place = Callable[[int], str]
"""From the position of a row to what a message calls it, such as "ratings.csv:7"."""


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


# The most telling names come first: of two that are recognised, the earlier one is taken.
_KNOWN_NAMES: dict[Role, tuple[str, ...]] = {
    "user": _words("""
        user userid uid reviewerid visitorid customerid customer memberid member accountid account
        personid person profileid username
    """),
    "item": _words("""
        item itemid iid movieid asin productid product articleid article bookid isbn trackid songid
        artistid businessid gameid animeid recipeid newsid videoid venueid locationid movie book
        track song artist game anime sku stockcode parentasin
    """),
    "time": _words("timestamp time datetime date unixreviewtime ts createdat eventtime"),
    "rating": _words("rating overall stars score"),
    "weight": _words("weight count playcount plays"),
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class DataConfig(BaseModel):
    """How to read a file, folder or table of interactions."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    format: Literal["auto"] | Format = "auto"
    """Kind of file; auto goes by the extension, then by the content. csv is any delimited text."""
    sep: str | None = None
    """What separates the fields of a line, also of several characters; found out if not given."""
    header: bool | None = None
    """Whether the first line names the columns; found out if not given."""
    user: str | int | None = None
    """Column of user ids: a name, or a position counted from 0."""
    item: str | int | None = None
    """Column of item ids: a name, or a position counted from 0."""
    time: str | int | None = None
    """Column of times: numbers that grow, or ISO dates; an empty name leaves it out."""
    rating: str | int | None = None
    """Column of ratings, used for min_rating only; an empty name leaves it out."""
    weight: str | int | None = None
    """Column of weights; an empty name leaves it out."""
    min_rating: float | None = None
    """Rows rated lower are dropped; without it every row counts, whatever its rating."""
    k_core: int = Field(default=0, ge=0)
    """Drop users and items with fewer pairs than this, until none is left; 0 keeps all."""
    item_names: Path | None = None
    """File of two columns, item id and name, for showing items to people."""


def role_of(name: str) -> Role | None:
    """Return what a column of this name usually holds."""
    plain = _plain(name)
    return next((role for role, known in _KNOWN_NAMES.items() if plain in known), None)


def find_columns(names: Sequence[str], options: DataConfig, where: str) -> dict[Role, int]:
    """Return the position of each role among named columns; users and items must be there."""
    found: dict[Role, int] = {}
    for role, known in _KNOWN_NAMES.items():
        wanted = getattr(options, role)
        if wanted == "":
            continue
        if wanted is not None:
            found[role] = position_of(wanted, names, role, where)
            continue
        plain = [_plain(name) for name in names]
        present = [name for name in known if name in plain]
        if present:
            found[role] = plain.index(present[0])
        elif role in ("user", "item"):
            raise DataError(
                f"{where}: got the columns {_listed(names)}, expected one of {role} ids; "
                f"name it with --set data.{role}=NAME"
            )
    return _needed(found, options, where)


def count_columns(width: int, options: DataConfig, where: str) -> dict[Role, int]:
    """Return the position of each role among columns without names: user, item, and as asked."""
    names = [f"column {position}" for position in range(width)]
    found: dict[Role, int] = {"user": 0, "item": 1}
    for role in _KNOWN_NAMES:
        wanted = getattr(options, role)
        if wanted not in (None, ""):
            found[role] = position_of(wanted, names, role, where)
    return _needed(found, options, where)


def position_of(wanted: str | int, names: Sequence[str], role: str, where: str) -> int:
    """Return the position of the column asked for by name or position."""
    if wanted in names:
        return names.index(str(wanted))
    if str(wanted).isdecimal() and int(wanted) < len(names):
        return int(wanted)
    raise DataError(
        f"{where}: got the columns {_listed(names)}, expected {wanted!r}"
        f"{did_you_mean(str(wanted), names)}; name the right one with --set data.{role}=NAME"
    )


def _needed(found: dict[Role, int], options: DataConfig, where: str) -> dict[Role, int]:
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


def canonical(frame: pl.DataFrame, options: DataConfig, place: Place, where: str) -> pl.DataFrame:
    """Return columns named by role with their values checked and the rating applied.

    Ids come out as Int64 or String, times as Int64 or Float64, weights as Float32.
    """
    if not frame.height:
        raise DataError(f"{where}: got no interactions, expected at least one row of data")
    columns = {"user": _ids(frame["user"], place), "item": _ids(frame["item"], place)}
    if "time" in frame.columns:
        columns["time"] = _times(frame["time"], place)
    if "weight" in frame.columns:
        columns["weight"] = _numbers(frame["weight"], place).cast(pl.Float32)
    checked = pl.DataFrame(columns)
    if "rating" in frame.columns:
        ratings = _numbers(frame["rating"], place)
        if options.min_rating is not None:
            checked = checked.filter(ratings >= options.min_rating)
            if not checked.height:
                raise DataError(
                    f"{where}: got no rating above {ratings.max()!r}, expected some of at least "
                    f"{options.min_rating}; lower --set data.min_rating={options.min_rating}"
                )
    return checked


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
        return whole
    raise DataError(
        f"{place(0)}: got {role} ids of type {dtype}, expected text or whole numbers; "
        f"convert the column, or name another with --set data.{role}=NAME"
    )


def _times(column: pl.Series, place: Place) -> pl.Series:
    if column.dtype in (pl.Date, pl.Datetime):
        _refuse_nulls(column, place)
        return column.cast(pl.Datetime("us")).to_physical()
    if column.dtype == pl.String and len(column) and _as_float(column.head(1)).is_null().all():
        return _iso_times(column, place)
    numbers = _numbers(column, place)
    whole = column.cast(pl.Int64, strict=False) if not column.dtype.is_float() else None
    return whole if whole is not None and not whole.null_count() else numbers


def _iso_times(column: pl.Series, place: Place) -> pl.Series:
    _refuse_nulls(column, place)
    distinct = column.unique()
    micros = pl.Series([_microseconds(text) for text in distinct], dtype=pl.Int64)
    times = column.replace_strict(distinct, micros, return_dtype=pl.Int64)
    if times.null_count():
        value = column.filter(times.is_null())[0]
        expected = "a number or a date such as 2024-01-31 or 2024-01-31T12:00:00"
        raise _problem(place, times.is_null(), f"got {value!r} as a time", expected, column.name)
    return times


def _microseconds(text: str) -> int | None:
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    moment = moment.replace(tzinfo=moment.tzinfo or UTC)
    return (moment - _EPOCH) // timedelta(microseconds=1)


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
        raise _problem(place, wrong, f"got {value!r} as a {column.name}", "a number", column.name)
    return numbers


def _as_float(column: pl.Series) -> pl.Series:
    plain = column.str.strip_chars() if column.dtype == pl.String else column
    return plain.cast(pl.Float64, strict=False)


def _refuse_nulls(column: pl.Series, place: Place) -> None:
    empty = column.is_null() | ((column == "") if column.dtype == pl.String else False)
    if empty.any():
        raise _problem(place, empty, f"got no {column.name}", "one in every row", column.name)


def _problem(
    place: Place, wrong: pl.Series, got: str, expected: str, optional: str | None = None
) -> DataError:
    """Describe the first wrong row; an `optional` column may also be left out."""
    row = wrong.fill_null(True).arg_true()[0]
    leave_out = f", or leave the column out with --set data.{optional}=''" if optional else ""
    return DataError(f"{place(row)}: {got}, expected {expected}; correct the row{leave_out}")


def _plain(name: str) -> str:
    return re.sub(r"[\W_]", "", name.lower())


def _listed(names: Sequence[str], most: int = 12) -> str:
    return ", ".join(names[:most]) + (", …" if len(names) > most else "")
