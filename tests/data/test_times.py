"""Dates are read as Python's datetime reads them; numbers keep their values."""

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import polars as pl
import pytest

from mgformer.data.formats import read_table
from mgformer.data.formats.reading import Reading
from mgformer.data.formats.times import is_date, moment
from mgformer.data.options import DataConfig
from mgformer.errors import DataError


def read(
    tmp_path: Path, times: list[str], name: str = "a.csv", **options: object
) -> tuple[list[float], Reading]:
    path = tmp_path / name
    rows = [f'u{n},i{n},"{time}"\n' for n, time in enumerate(times)]
    path.write_text("user,item,when\n" + "".join(rows))
    frame, reading = read_table(path, DataConfig(**options))
    return frame["time"].to_list(), reading


def micros(*parts: int, offset: int = 0) -> int:
    moment = datetime(*parts, tzinfo=timezone(timedelta(hours=offset)))
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1997-12-04", micros(1997, 12, 4)),
        ("1997-12-04 15:55", micros(1997, 12, 4, 15, 55)),
        ("1997-12-04T15:55:07", micros(1997, 12, 4, 15, 55, 7)),
        ("1997-12-04T15:55:07Z", micros(1997, 12, 4, 15, 55, 7)),
        ("1997-12-04T15:55:07.25+02:00", micros(1997, 12, 4, 15, 55, 7, 250_000, offset=2)),
        ("1997-12-04 15:55:07,123456789", micros(1997, 12, 4, 15, 55, 7, 123_456)),
        ("1997-12-04 15:55:07 UTC", micros(1997, 12, 4, 15, 55, 7)),
        ("1997-12-04 15:55:07 -0330", micros(1997, 12, 4, 19, 25, 7)),
        ("1997/12/04", micros(1997, 12, 4)),
        ("1997-12-4 5:07", micros(1997, 12, 4, 5, 7)),
        ("12/04/1997 15:55", micros(1997, 12, 4, 15, 55)),
        ("12/04/97 3:55:09 pm", micros(1997, 12, 4, 15, 55, 9)),
        ("12/4/2024, 12:05 AM", micros(2024, 12, 4, 0, 5)),
        ("12/04/1997 15:55 +02:00", micros(1997, 12, 4, 13, 55)),
        ("4.12.1997", micros(1997, 12, 4)),
        ("04.12.1997 15:55", micros(1997, 12, 4, 15, 55)),
        ("04-Dec-1997", micros(1997, 12, 4)),
        ("Dec 4, 1997", micros(1997, 12, 4)),
        ("Thu, 04 December 1997 15:55:07 GMT", micros(1997, 12, 4, 15, 55, 7)),
        ("1960-01-01", micros(1960, 1, 1)),
    ],
)
def test_dates_in_the_usual_ways_of_writing(tmp_path: Path, text: str, expected: int) -> None:
    times, reading = read(tmp_path, [text, text])
    assert times == [expected] * 2
    assert reading.time_unit == "dates"
    assert is_date([text])


@pytest.mark.parametrize(
    "text",
    ["1997-13-04", "12/04/197", "31/31/1997", "4.12", "soon", "12/04/1997 25:00", "4 Foo 1997",
     "12/04/1997 13:00 pm", "12-04/1997"],
)  # fmt: skip
def test_what_is_no_date_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(DataError, match=r"a\.csv:4: got '.*' as a time") as caught:
        read(tmp_path, ["1997-12-04", "1997-12-04", text])
    assert "data.time_format" in str(caught.value)


@pytest.mark.parametrize(
    ("times", "first", "order", "is_sure"),
    [
        (["04/12/1997", "05/12/1997"], micros(1997, 4, 12), "month/day/year", False),
        (["04/12/1997", "05/13/1997"], micros(1997, 4, 12), "month/day/year", True),
        (["04/12/1997", "13/12/1997"], micros(1997, 12, 4), "day/month/year", True),
        (["04-12-1997", "13-12-1997"], micros(1997, 12, 4), "day-month-year", True),
        (["04.12.1997", "05.12.1997"], micros(1997, 12, 4), "day.month.year", False),
        (["04.12.1997", "05.13.1997"], micros(1997, 4, 12), "month.day.year", True),
    ],
)
def test_the_whole_column_decides_the_order_of_day_and_month(
    tmp_path: Path, times: list[str], first: int, order: str, is_sure: bool
) -> None:
    found, reading = read(tmp_path, times)
    assert found[0] == first
    (note,) = reading.notes
    assert f"dates such as {times[0]} are read as {order}" in note or f"as {order}" in note
    assert ("no date tells the order" in note) != is_sure


def test_the_format_that_a_note_offers_reads_the_other_order(tmp_path: Path) -> None:
    for text, other in (
        ("04/12/1997 15:55", micros(1997, 12, 4, 15, 55)),
        ("04/12/97 3:55 PM", micros(1997, 12, 4, 15, 55)),
        ("04.12.1997 15:55:07", micros(1997, 4, 12, 15, 55, 7)),
    ):
        note = read(tmp_path, [text])[1].notes[0]
        offered = note.rpartition("data.time_format='")[2].removesuffix("'")
        assert read(tmp_path, [text], time_format=offered)[0] == [other]


def test_mixed_formats_in_one_column(tmp_path: Path) -> None:
    times, _ = read(tmp_path, ["1997-12-04", "13.12.1997", "12/31/1997 10:00", "Dec 5, 1997"])
    days = [micros(1997, 12, 4), micros(1997, 12, 13), micros(1997, 12, 31, 10)]
    assert times == [*days, micros(1997, 12, 5)]


def test_the_format_may_be_given(tmp_path: Path) -> None:
    times, reading = read(tmp_path, ["19971204", "19971231"], time_format="%Y%m%d")
    assert times == [micros(1997, 12, 4), micros(1997, 12, 31)]
    assert reading.time_unit == "dates"
    with pytest.raises(
        DataError, match=r"a\.csv:3: got '1997-12-04' as a time, expected a date as"
    ):
        read(tmp_path, ["19971204", "1997-12-04"], time_format="%Y%m%d")
    _, reading = read(tmp_path, ["19971204", "19971231"])
    assert "data.time_format=%Y%m%d" in reading.notes[0]


@pytest.mark.parametrize("time_format", ["%d.%m.", "%q", "", "year", "%"])
def test_formats_without_a_year_are_refused(time_format: str) -> None:
    with pytest.raises(ValueError, match="a strptime format with a year"):
        DataConfig(time_format=time_format)


@pytest.mark.parametrize(
    ("factor", "unit"),
    [(1, "seconds"), (10**3, "milliseconds"), (10**6, "microseconds"), (10**9, "nanoseconds")],
)
def test_the_size_of_numbers_tells_their_unit(tmp_path: Path, factor: int, unit: str) -> None:
    second = 964_982_703
    times, reading = read(tmp_path, [str(second * factor), str((second + 60) * factor)])
    assert times == [second * factor, (second + 60) * factor]  # as they are in the file
    assert reading.time_unit == unit
    assert moment(times[0], unit) == "2000-07-30 18:45:03"
    _, floats = read(tmp_path, [f"{second * factor}.0", str(second * factor)])
    assert floats.time_unit == unit


def test_words_and_numbers_do_not_look_like_dates() -> None:
    assert not any(is_date([text]) for text in ("soon", "4.12", "964982703", "12/04/197", ""))
    assert not is_date([])


def test_numbers_that_are_no_dates(tmp_path: Path) -> None:
    times, reading = read(tmp_path, ["1", "2", "3"])
    assert (times, reading.time_unit, reading.notes) == ([1, 2, 3], None, [])
    assert moment(1, None) is None


def test_seconds_among_milliseconds_are_brought_to_one_unit(tmp_path: Path) -> None:
    times, reading = read(tmp_path, ["964982703", "964982704000", "964982705123"])
    assert times == [964982703000, 964982704000, 964982705123]
    assert reading.time_unit == "milliseconds"
    assert "1 in seconds, 2 in milliseconds" in reading.notes[0]


def test_times_far_from_the_others_are_noted_and_kept(tmp_path: Path) -> None:
    times, reading = read(tmp_path, ["964982703", "0", "964982704"])
    assert times == [964982703, 0, 964982704]
    assert "1 of 3 times are not between 1980 and 2100, such as 0" in reading.notes[0]


def test_most_values_decide_whether_a_column_has_dates(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a\.csv:2: got '7' as a time"):
        read(tmp_path, ["7", "2024-01-01", "2024-01-02"])
    with pytest.raises(DataError, match=r"a\.csv:2: got 'soon' as a time, expected a number"):
        read(tmp_path, ["soon", "7", "8"])


def test_dates_of_other_sources(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"user": 1, "item": 2, "when": "13/12/1997 15:55"}\n')
    assert read_table(path, DataConfig())[0]["time"].to_list() == [micros(1997, 12, 13, 15, 55)]
    frame = pl.DataFrame({"user": [1], "item": [2], "when": ["13.12.1997"]})
    frame.write_parquet(tmp_path / "a.parquet")
    assert read_table(tmp_path / "a.parquet", DataConfig())[0]["time"].to_list() == [
        micros(1997, 12, 13)
    ]
