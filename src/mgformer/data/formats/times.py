"""Times of interactions: numbers in any unit, or dates in the usual ways of writing them.

Numbers stay what they are, because only their order and their distances matter. Dates become
microseconds since 1970. A date without a time zone counts as UTC.
"""

import re
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from mgformer.data.formats.reading import Reading
from mgformer.data.formats.values import shown

DATES = "dates"
"""Unit of times that were written as dates."""
UNITS = {"seconds": 1, "milliseconds": 10**3, "microseconds": 10**6, "nanoseconds": 10**9}
"""Unit of numbers → how many of it a second has."""
EARLIEST, LATEST = 315_532_800, 4_102_444_800
"""1980 and 2100 in seconds since 1970. Between them, the size of a number tells its unit."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EXPECTED = "a number or a date such as 2024-01-31, 2024-01-31T12:00:00Z or 01/31/2024 12:00"
_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_CLOCK = (
    r"(?:(?:T|,?\s+)(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2})"
    r"(?:[.,](?P<fraction>\d{1,9}))?)?(?:\s*(?P<half>[ap])\.?m\.?)?)?"
    r"\s*(?P<zone>z|utc|gmt|[+-]\d{2}:?\d{2})?$"
)
_FIGURES = re.compile(
    r"(?P<first>\d{1,4})(?P<sep>[/.-])(?P<second_part>\d{1,2})(?P=sep)(?P<third>\d{1,4})" + _CLOCK,
    re.IGNORECASE,
)
_NAMED = re.compile(
    r"(?:[a-z]{3,9},?\s+)?(?:(?P<day>\d{1,2})[ -](?P<month>[a-z]{3,9})\.?|"
    r"(?P<month_first>[a-z]{3,9})\.?\s+(?P<day_second>\d{1,2})),?[ -](?P<year>\d{4})" + _CLOCK,
    re.IGNORECASE,
)


class _Unordered(NamedTuple):
    """A date whose day and month stand in an order that the whole column decides."""

    sep: str
    parts: tuple[int, int]
    year: int
    rest: re.Match[str]


def read_times(column: pl.Series, time_format: str | None, reading: Reading) -> pl.Series | None:
    """Return text or integers as times; None if they are numbers but not whole ones."""
    if time_format is not None and (column.dtype == pl.String or column.dtype.is_integer()):
        return _dates_of_format(column.cast(pl.String), time_format, reading)
    if column.dtype != pl.String and not column.dtype.is_integer():
        return None
    whole = column.cast(pl.Int64, strict=False)
    if not whole.null_count():
        return _one_unit(whole, reading)
    if column.dtype != pl.String:
        return None
    given = int((column != "").sum())
    numbers = column.str.strip_chars().cast(pl.Float64, strict=False).count()
    return None if 2 * numbers >= given else _dates(column, reading)


def unit_of(times: NDArray[np.number[Any]]) -> str | None:
    """Return the unit of most numbers if they are times from 1980 to 2100, else None."""
    if not len(times):
        return None
    middle = float(np.partition(times, len(times) // 2)[len(times) // 2])
    return next((u for u, n in UNITS.items() if EARLIEST * n <= middle < LATEST * n), None)


def moment(time: float, unit: str | None) -> str | None:
    """Return a time as text, to the second; None if its unit is not known."""
    if unit is None:
        return None
    seconds = time / UNITS["microseconds" if unit == DATES else unit]
    try:
        return (EPOCH + timedelta(seconds=float(seconds))).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError):
        return None


def _one_unit(times: pl.Series, reading: Reading) -> pl.Series:
    """Return whole numbers in one unit if some are seconds and others milliseconds, say."""
    values = times.to_numpy()
    reading.time_unit = unit_of(values)
    if reading.time_unit is None:
        _note_compact_dates(values, reading)
        return times
    factors = np.zeros(len(values), dtype=np.int64)
    for number in UNITS.values():
        factors[(values >= EARLIEST * number) & (values < LATEST * number)] = number
    outside = np.flatnonzero(factors == 0)
    if len(outside):
        reading.notes.append(
            f"{len(outside):,} of {len(values):,} times are not between 1980 and 2100, such as "
            f"{values[outside[0]]}; look whether they are right"
        )
        return times
    finest = int(factors.max())
    if finest == factors.min():
        return times
    counts = {unit: int((factors == number).sum()) for unit, number in UNITS.items()}
    mixed = ", ".join(f"{count:,} in {unit}" for unit, count in counts.items() if count)
    reading.time_unit = next(unit for unit, number in UNITS.items() if number == finest)
    reading.notes.append(f"times in several units ({mixed}); all are read as {reading.time_unit}")
    return pl.Series(times.name, values * (finest // factors))


def _note_compact_dates(values: NDArray[np.int64], reading: Reading) -> None:
    if len(values) and values.min() >= 1980_01_01 and values.max() <= 2100_12_31:
        reading.notes.append(
            f"times such as {values[0]} are read as numbers; if they are dates, give "
            "--set data.time_format=%Y%m%d"
        )


def _dates_of_format(column: pl.Series, time_format: str, reading: Reading) -> pl.Series:
    found: dict[str, int | None] = dict.fromkeys(column.drop_nulls().unique())
    for text in found:
        with suppress(ValueError, OverflowError):
            found[text] = _micros(datetime.strptime(text.strip(), time_format))
    reading.time_unit = DATES
    expected = f"a date as data.time_format={shown(time_format)} describes it"
    return _replaced(column, found, expected, reading)


def _dates(column: pl.Series, reading: Reading) -> pl.Series:
    found: dict[str, int | None] = dict.fromkeys(column.drop_nulls().unique())
    unordered: dict[str, _Unordered] = {}
    for text in found:
        plain = text.strip()
        try:
            found[text] = _micros(datetime.fromisoformat(plain))
        except (ValueError, OverflowError):
            match _figures(plain):
                case _Unordered() as date:
                    unordered[text] = date
                case micros:
                    found[text] = _named(plain) if micros is None else micros
    for sep in dict.fromkeys(date.sep for date in unordered.values()):
        same = {text: date for text, date in unordered.items() if date.sep == sep}
        day_first = _day_first(same, reading)
        for text, date in same.items():
            day, month = date.parts if day_first else date.parts[::-1]
            found[text] = _with_clock(date.year, month, day, date.rest)
    reading.time_unit = DATES
    return _replaced(column, found, EXPECTED, reading)


def _replaced(
    column: pl.Series, found: dict[str, int | None], expected: str, reading: Reading
) -> pl.Series:
    times = column.replace_strict(found, default=None, return_dtype=pl.Int64)
    reading.refuse(
        times.is_null(),
        lambda row: f"got {shown(column[row])} as a time",
        expected,
        "correct the row, give data.time_format",
        "time",
    )
    return times


def _figures(text: str) -> "_Unordered | int | None":
    """Read a date of figures; if the year stands last, the order is open."""
    match = _FIGURES.match(text)
    if match is None:
        return None
    first, middle, last = match["first"], int(match["second_part"]), match["third"]
    if len(first) == 4 and len(last) <= 2:
        return _with_clock(int(first), middle, int(last), match)
    if len(first) > 2 or len(last) not in (2, 4):
        return None
    # As POSIX has it, 69 to 99 are years of the last century.
    year = int(last) + (0 if len(last) == 4 else 1900 if int(last) >= 69 else 2000)
    return _Unordered(match["sep"], (int(first), middle), year, match)


def _named(text: str) -> int | None:
    """Read a date with the English name of a month."""
    match = _NAMED.match(text)
    if match is None:
        return None
    name = (match["month"] or match["month_first"])[:3].lower()
    month = _MONTHS.index(name) + 1 if name in _MONTHS else 0
    return _with_clock(int(match["year"]), month, int(match["day"] or match["day_second"]), match)


def _day_first(dates: dict[str, _Unordered], reading: Reading) -> bool:
    """Decide the order of day and month for dates with one separator, and note it."""
    example, date = next(iter(dates.items()))
    only_day = sum(one.parts[0] > 12 for one in dates.values())
    only_month = sum(one.parts[1] > 12 for one in dates.values())
    # With points, the day usually stands first; with slashes and dashes, the United States' order.
    day_first = only_day > only_month or (only_day == only_month and date.sep == ".")
    order = "day{0}month{0}year" if day_first else "month{0}day{0}year"
    how = f"dates such as {example.strip()[:40]} are read as {order.format(date.sep)}"
    if only_day == only_month == 0:
        other = _format_of(date, not day_first)
        how += f", but no date tells the order; for the other one, --set data.time_format='{other}'"
    reading.notes.append(how)
    return day_first


def _format_of(date: _Unordered, day_first: bool) -> str:
    """Return the strptime format of a date."""
    year = "%Y" if len(date.rest["third"]) == 4 else "%y"
    parts = ("%d", "%m", year) if day_first else ("%m", "%d", year)
    clock = ""
    if date.rest["hour"]:
        clock = " %I:%M" if date.rest["half"] else " %H:%M"
        clock += ":%S" * bool(date.rest["second"]) + ".%f" * bool(date.rest["fraction"])
        clock += " %p" * bool(date.rest["half"])
    return date.sep.join(parts) + clock + " %z" * bool(date.rest["zone"])


def _with_clock(year: int, month: int, day: int, rest: re.Match[str]) -> int | None:
    hour, minute, second = (int(rest[part] or 0) for part in ("hour", "minute", "second"))
    if half := rest["half"]:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if half in "pP" else 0)
    micros = int((rest["fraction"] or "0").ljust(6, "0")[:6])
    zone, offset = rest["zone"] or "", timedelta()
    if zone[:1] in ("+", "-"):
        offset = timedelta(hours=int(zone[1:3]), minutes=int(zone[-2:])) * int(f"{zone[0]}1")
    with suppress(ValueError, OverflowError):
        return _micros(datetime(year, month, day, hour, minute, second, micros, UTC) - offset)
    return None


def _micros(date: datetime) -> int:
    """Return the microseconds from 1970 to a date."""
    return (date.replace(tzinfo=date.tzinfo or UTC) - EPOCH) // timedelta(microseconds=1)


def is_date(texts: Sequence[str]) -> bool:
    """Return whether all texts look like dates."""
    return bool(texts) and all(_looks_like_a_date(text.strip()) for text in texts)


def _looks_like_a_date(text: str) -> bool:
    if _figures(text) is not None or _named(text) is not None:
        return True
    with suppress(ValueError):
        datetime.fromisoformat(text)
        return not text.isdecimal()
    return False
