"""With data.on_error=skip, rows that cannot be used are left out, counted and described."""

import json
import logging
from pathlib import Path

import pandas as pd
import polars as pl
import pytest

from mgformer.data.dataset import read_dataset
from mgformer.data.formats import read_file, read_table
from mgformer.data.formats.frames import read_frame
from mgformer.data.options import DataConfig
from mgformer.errors import DataError

SKIP = DataConfig(on_error="skip")
GOOD = "user,item,time\na,x,1\nb,y,2\n"


def write(tmp_path: Path, content: str | bytes, name: str = "a.csv") -> Path:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ("c,z", "got 2 fields, expected 3"),
        ("c,z,3,4", "got 4 fields, expected 3"),
        (",z,3", "got an empty user id"),
        ('c,"",3', "got an empty item id"),
        ("c,z,", "got no time"),
        ("c,z,soon", "got 'soon' as a time, expected a number"),
        ("c,z,nan", "got 'nan' as a time"),
        ("user,item,time", "got the header again"),
        (b"c,caf\xe9,3", "got bytes that are not UTF-8"),
        ("c,\rz,3", "got a row that cannot be split"),
        ('"c,z,3', "got 1 fields, expected 3"),
        ('"c"",z,3', "got 1 fields, expected 3"),
    ],
)
def test_bad_lines_of_delimited_text(tmp_path: Path, bad: str | bytes, why: str) -> None:
    raw = bad if isinstance(bad, bytes) else bad.encode()
    path = write(tmp_path, GOOD.encode() + raw + b"\nd,z,4\ne,w,5\n")
    with pytest.raises(DataError):
        read_file(path, DataConfig())
    frame, reading = read_table(path, SKIP)
    assert frame.rows() == [("a", "x", 1), ("b", "y", 2), ("d", "z", 4), ("e", "w", 5)]
    assert reading.num_skipped == 1
    assert reading.first_skipped[0].startswith(f"{path}:4: {why}")


@pytest.mark.parametrize("column", ["rating", "weight"])
def test_bad_ratings_and_weights(tmp_path: Path, column: str) -> None:
    values = ["1", "", "*", "5", "1e400", "4"]
    rows = "".join(f"u{n},i{n},{value}\n" for n, value in enumerate(values))
    options = {"min_rating": 4} if column == "rating" else {}
    frame, reading = read_table(
        write(tmp_path, f"user,item,{column}\n{rows}"), DataConfig(on_error="skip", **options)
    )
    kept = ["u3", "u5"] if column == "rating" else ["u0", "u3", "u5"]
    assert frame["user"].to_list() == kept
    assert reading.num_skipped == 3


def test_the_report_counts_and_shows_the_first(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = "".join(f"u{n},i{n},{'soon' if n % 2 else n}\n" for n in range(20))
    path = write(tmp_path, "user,item,time\n" + rows + "only one field\n")
    with caplog.at_level(logging.INFO, logger="mgformer"):
        assert len(read_dataset(path, SKIP).interactions) == 10
    (warning,) = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    first, *lines, last = warning.split("\n")
    assert first == f"{path}: left out 11 rows that cannot be used:"
    assert [line.split(": ")[0] for line in lines] == [f"  {path}:{n}" for n in (3, 5, 7, 9, 11)]
    assert last == "  and 6 more"


def test_lines_are_named_rightly_after_rows_were_dropped(tmp_path: Path) -> None:
    """Low ratings leave the table before ids become integers; lines keep their numbers."""
    content = "user,item,rating\n1,1,1\n2,2,5\n3,3,5\n4,7.0,5\n"
    with pytest.raises(DataError, match=r"a\.csv:5: got '7.0' as item id"):
        read_file(write(tmp_path, content), DataConfig(min_rating=3, on_error="stop"))
    _, reading = read_table(write(tmp_path, content), DataConfig(min_rating=3, on_error="skip"))
    assert reading.first_skipped[0].startswith(f"{tmp_path}/a.csv:5: got '7.0' as item id")


def test_bad_json_lines(tmp_path: Path) -> None:
    good = [{"user": "a", "item": 1, "time": 5}, {"user": "b", "item": 2, "time": 6}]
    bad = ["{", "[1]", '{"user": 7, "item": 3, "time": 1}', '{"user": "c", "time": 1}', "\\",
           '{"user": "d", "item": 1.5, "time": 1}', '{"user": "e", "item": 4, "time": "x"}',
           '{"user": "\\ud800", "item": 4, "time": 1}', '{"user": "e", "item": 1e999, "time": 1}',
           '{"user": "e", "item": 18446744073709551617, "time": 1}']  # fmt: skip
    lines = [json.dumps(good[0]), *bad, json.dumps(good[1])]
    path = write(tmp_path, "\n".join(lines).encode() + b"\n\xff{}\n", "a.jsonl")
    frame, reading = read_table(path, SKIP)
    assert frame.rows() == [("a", 1, 5), ("b", 2, 6)]
    assert reading.num_skipped == len(bad) + 1
    assert reading.first_skipped[0].startswith(f"{path}:2: got '{{', expected a JSON object")


def test_most_json_lines_decide_whether_ids_are_text(tmp_path: Path) -> None:
    users = [7, "a", "b", "c"]
    lines = [json.dumps({"user": user, "item": "x"}) for user in users]
    frame, reading = read_table(write(tmp_path, "\n".join(lines), "a.jsonl"), SKIP)
    assert frame["user"].to_list() == ["a", "b", "c"]
    assert reading.num_skipped == 1


def test_bad_lines_of_lists(tmp_path: Path) -> None:
    path = write(tmp_path, b"1 2 3\n2 caf\xe9\n3 4.5 6 7\n", "a.txt")
    frame, reading = read_table(path, SKIP)
    assert frame.select("user", "item").rows() == [(1, 2), (1, 3), (3, 6), (3, 7)]
    assert [line.split(" ")[0] for line in reading.first_skipped] == [f"{path}:2:", f"{path}:3:"]
    with pytest.raises(DataError, match=r"a\.txt:1: got '4.5' as item id"):
        read_file(write(tmp_path, "3 4.5 6 7\n1 2\n", "a.txt"), DataConfig())


@pytest.mark.parametrize("kind", ["polars", "pandas", "parquet"])
def test_bad_rows_of_tables(tmp_path: Path, kind: str) -> None:
    columns = {"user": ["a", None, "c", ""], "item": [1.0, 2.0, 2.5, 4.0], "weight": [1.0, 1, 1, 1]}
    frame = pl.DataFrame(columns)
    if kind == "parquet":
        frame.write_parquet(tmp_path / "a.parquet")
        found = read_file(tmp_path / "a.parquet", SKIP)
    else:
        found = read_frame(frame if kind == "polars" else pd.DataFrame(columns), SKIP)
    assert found.rows() == [("a", 1, 1.0)]


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_a_file_without_a_good_row_is_refused(tmp_path: Path, name: str) -> None:
    rows = "user,item\n,1\n2,\n" if name == "a.csv" else '{"user": "", "item": 1}\n'
    with pytest.raises(DataError, match=r"got no row that can be used.*got an empty user id"):
        read_file(write(tmp_path, rows, name), SKIP)


def test_a_quote_that_is_not_closed_costs_one_line(tmp_path: Path) -> None:
    rows = [f"u{n},i{n},{n}" for n in range(2000)]
    rows[7] = '"u7,i7,7'
    path = write(tmp_path, "user,item,time\n" + "\n".join(rows))
    frame, reading = read_table(path, SKIP)
    assert frame.height == 1999
    assert reading.num_skipped == 1


def test_empty_fields_beyond_the_named_columns_are_no_matter(tmp_path: Path) -> None:
    """Spreadsheets leave empty columns at the end of a table, in all rows or in some."""
    for content in (
        "user,item,time,,\na,x,1,,\nb,y,2,,\n",
        "user,item,time,,\na,x,1\nb,y,2,\n",
        "user,item,time\na,x,1,\nb,y,2,,,\n",
    ):
        assert read_file(write(tmp_path, content), DataConfig()).rows() == [
            ("a", "x", 1),
            ("b", "y", 2),
        ]
