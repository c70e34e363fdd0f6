import csv
import gzip
import logging
import re

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mgformer.data.formats import format_of, read_file
from mgformer.data.formats.frames import read_frame
from mgformer.data.interactions import Interactions
from mgformer.data.options import DataConfig
from mgformer.errors import DataError

ROWS = [(1, 10, 5), (1, 12, 7), (2, 10, 6), (3, 11, 9), (3, 12, 8)]
TEXT_ROWS = [(f"u{u}", f"i{i}", t) for u, i, t in ROWS]
CUT_GZIP = gzip.compress(b"user,item\n1,2\n", mtime=0)[:-9]


def lines(rows, sep=",", header=None):
    first = [header] if header else []
    return "\n".join(first + [sep.join(map(str, row)) for row in rows]) + "\n"


def lists(rows):
    of = {}
    for user, item, _ in rows:
        of.setdefault(user, []).append(item)
    return "".join(f"{u} {' '.join(map(str, i))}\n" for u, i in of.items())


def json_lines(rows):
    frame = pl.DataFrame(rows, schema=["user_id", "asin", "timestamp"], orient="row")
    return frame.write_ndjson()


TEXT_FORMATS = {
    "a.csv": lambda rows: lines(rows, ",", "user,item,timestamp"),
    "capitals.csv": lambda rows: lines(rows, ",", "userId,movieId,Timestamp"),
    "windows.csv": lambda rows: lines(rows, ",", "user,item,time").replace("\n", "\r\n"),
    "bom.csv": lambda rows: "\ufeff" + lines(rows, ",", "user,item,time"),
    "blank-lines.csv": lambda rows: lines(rows, ",", "user,item,time") + "\n\n",
    "blank-between.csv": lambda rows: lines(rows, ",", "user,item,time").replace("\n", "\n\n"),
    "no-newline.csv": lambda rows: lines(rows, ",", "user,item,time").rstrip("\n"),
    "semicolons.csv": lambda rows: lines(rows, ";", "user;item;time"),
    "bars.txt": lambda rows: lines(rows, "|", "user|item|time"),
    "a.tsv": lambda rows: lines(rows, "\t", "user\titem\ttime"),
    "spaces.txt": lambda rows: lines(rows, "   ", "user item time"),
    "a.dat": lambda rows: lines(rows, "::", "user::item::time"),
    "more.csv": lambda rows: lines([(9, *r, "x, y") for r in rows], ";", "n;user;item;time;note"),
    "a.inter": lambda rows: lines(rows, "\t", "user_id:token\titem_id:token\ttimestamp:float"),
    "a.jsonl": json_lines,
    "a.ndjson": json_lines,
    "no-extension-lines": lambda rows: lines(rows, ",", "user,item,time"),
    "no-extension-json": json_lines,
}


def as_table(path_or_frame, options=None):
    frame = path_or_frame
    if not isinstance(frame, pl.DataFrame):
        frame = read_file(path_or_frame, options or DataConfig())
    return sorted(frame.select("user", "item", "time").rows())


@pytest.mark.parametrize("zipped", [False, True], ids=["plain", "gz"])
@pytest.mark.parametrize("rows", [ROWS, TEXT_ROWS], ids=["integers", "text"])
@pytest.mark.parametrize("name", TEXT_FORMATS)
def test_every_text_format_gives_the_same_table(tmp_path, name, rows, zipped):
    content = TEXT_FORMATS[name](rows).encode()
    path = tmp_path / (name + ".gz" * zipped)
    path.write_bytes(gzip.compress(content) if zipped else content)
    assert as_table(path) == rows


@pytest.mark.parametrize("rows", [ROWS, TEXT_ROWS], ids=["integers", "text"])
def test_typed_sources_give_the_same_table(tmp_path, rows):
    frame = pl.DataFrame(rows, schema=["user", "item", "time"], orient="row")
    frame.write_parquet(tmp_path / "a.parquet")
    assert as_table(tmp_path / "a.parquet") == rows
    assert as_table(read_frame(frame)) == rows
    assert as_table(read_frame(frame.to_pandas())) == rows
    assert as_table(read_frame(frame.to_pandas().astype({"user": object, "item": object}))) == rows
    assert as_table(read_frame(frame.cast({"item": pl.String}).cast({"item": pl.Categorical}))) == [
        (u, str(i), t) for u, i, t in rows
    ]


@pytest.mark.parametrize("rows", [ROWS, TEXT_ROWS], ids=["integers", "text"])
def test_lightgcn_files_give_the_same_pairs(tmp_path, rows):
    path = tmp_path / "train.txt"
    path.write_text(lists(rows) + "77\n\n")
    other = tmp_path / "same.csv"
    other.write_text(TEXT_FORMATS["a.csv"](rows))
    read, expected = read_file(path, DataConfig()), read_file(other, DataConfig())
    # A user without items has no pairs, so it is not a user.
    built, wanted = Interactions.from_frame(read), Interactions.from_frame(expected)
    assert built.fingerprint == wanted.fingerprint
    assert format_of(path, DataConfig()) == "lightgcn"


def write(tmp_path, content, name="a.csv"):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize(
    ("content", "options", "columns"),
    [
        ("1,2,5\n3,4,6\n", {}, ["user", "item"]),
        ("1,2,5\n3,4,6\n", {"time": 2}, ["user", "item", "time"]),
        ("1,2,5\n3,4,6\n", {"weight": "2"}, ["user", "item", "weight"]),
        ("2,1,5\n4,3,6\n", {"user": 1, "item": 0}, ["user", "item"]),
        ("who,what\n1,2\n3,4\n", {"user": "who", "item": "what"}, ["user", "item"]),
        ("who,what\n1,2\n3,4\n", {"user": 0, "item": 1}, ["user", "item"]),
        ("user,item,count,note\n1,2,1,1\n3,4,1,1\n", {"weight": ""}, ["user", "item"]),
        ("1 2\n3 4\n", {"sep": " "}, ["user", "item"]),
        ("1\t2\n3\t4\n", {"sep": "\\t"}, ["user", "item"]),
        ("user, item\n1, 2\n3, 4\n", {"sep": ", "}, ["user", "item"]),
    ],
)
def test_columns_are_found(tmp_path, content, options, columns):
    frame = read_file(write(tmp_path, content), DataConfig(**options))
    assert frame.columns == columns
    assert frame.select("user", "item").rows() == [(1, 2), (3, 4)]


def test_first_line_with_a_number_is_data(tmp_path):
    path = write(tmp_path, "A39H,B00X,5.0,1369699200\nA3JM,0558925278,3.0,1355443200\n")
    assert read_file(path, DataConfig()).height == 2


def test_header_option_decides_for_columns_of_text(tmp_path):
    path = write(tmp_path, "ann,tea\nbob,jam\n")
    frame = read_file(path, DataConfig(header=False))
    assert frame.rows() == [("ann", "tea"), ("bob", "jam")]
    assert read_file(path, DataConfig(header=True, user=0, item=1)).rows() == [("bob", "jam")]


def test_ratings_filter_rows_and_are_not_kept(tmp_path):
    path = write(tmp_path, "user,item,rating\n1,2,5\n3,4,3.5\n5,6,1\n")
    assert read_file(path, DataConfig()).height == 3
    frame = read_file(path, DataConfig(min_rating=3.5))
    assert frame.columns == ["user", "item"]
    assert frame["user"].to_list() == [1, 3]


@pytest.mark.parametrize("odd", ["007", "+7", "-0", " 7", "B00X", "99999999999999999999", '"07"'])
def test_a_column_is_integer_only_if_all_values_are(tmp_path, odd, caplog):
    rows = "".join(f"{n},{n}\n" for n in range(10_000))
    path = write(tmp_path, f"user,item\n{rows}5,{odd}\n")
    with caplog.at_level(logging.INFO, logger="mgformer"):
        frame = read_file(path, DataConfig())
    assert frame["user"].dtype == pl.Int64
    assert frame["item"].to_list() == [*map(str, range(10_000)), odd.strip('"')]
    assert "item ids are read as text: only 10000 of 10001" in caplog.text


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        (["5", "7"], [5, 7]),
        (["5.5", "7"], [5.5, 7.0]),
        (["5", "7.5"], [5.0, 7.5]),
        (["1970-01-01", "1970-01-02"], [0, 86_400_000_000]),
        (["1970-01-01T00:00:01", "1970-01-01 01:00:00+01:00"], [1_000_000, 0]),
    ],
)
def test_times_are_numbers_or_dates(tmp_path, times, expected):
    path = write(tmp_path, "user,item,date\n" + "".join(f"1,{t[:3]}x,{t}\n" for t in times))
    assert read_file(path, DataConfig())["time"].to_list() == expected


def test_dates_of_typed_frames_become_microseconds():
    frame = pl.DataFrame({"user": [1], "item": [1], "time": ["1970-01-02"]})
    dates = frame.with_columns(pl.col("time").str.to_date())
    for source in (frame, dates, dates.cast({"time": pl.Datetime("ms")})):
        assert read_frame(source)["time"].to_list() == [86_400_000_000]


GOOD = "user,item,time\na,x,1\nb,y,2\n"


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ("", {}, "a.csv: got an empty file"),
        ("\n \n", {}, "a.csv: got an empty file"),
        ("user,item\n", {}, "a.csv:2: got only a header"),
        (GOOD, {"sep": ";"}, "a.csv:1: got a single column .*use --set data.sep=','"),
        (GOOD.replace(",", "\t"), {"sep": ","}, r"use --set data.sep='\\t'"),
        (GOOD.replace(",", "^"), {}, "a.csv:1: got a single column 'user.item.time'"),
        (GOOD, {"user": "usr"}, "a.csv:1: got the columns user, item, time, expected 'usr'; did "
         "you mean user.*--set data.user=NAME"),
        (GOOD, {"item": 7}, "a.csv:1: .*expected 7"),
        (GOOD, {"item": "user"}, "one column for users and items"),
        (GOOD, {"min_rating": 3}, "got no column of ratings.*--set data.rating=NAME"),
        ("user,what\na,1\n", {}, "a.csv:1: got the columns user, what.*--set data.item=NAME"),
        ("ann,tea\nbob,jam\n", {}, "a.csv:1: got 'ann, tea'.*--set data.user=….*data.header=false"),
        (GOOD + "c,z,3,4\n", {}, "a.csv:4: got 4 fields, expected 3"),
        (GOOD + "c,z\n", {}, "a.csv:4: got 2 fields, expected 3"),
        ("user,item,note\na,x,\nb,y\n", {}, "a.csv:3: got 2 fields, expected 3"),
        ("user,item,note\n1,1,\n2,2\n", {}, "a.csv:3: got 2 fields, expected 3"),
        (GOOD + ",z,3\n", {}, "a.csv:4: got an empty user id"),
        (GOOD + 'c,"",3\n', {}, "a.csv:4: got an empty item id"),
        ("user,item\n1,2\n\n,\n", {}, "a.csv:4: got an empty user id"),
        ("user,item\n1,2\n3,\n", {}, "a.csv:3: got an empty item id"),
        (GOOD + "c,z,soon\n", {}, "a.csv:4: got 'soon' as a time, expected a number"),
        (GOOD + "c,z,\n", {}, "a.csv:4: got no time.*--set data.time=''"),
        (GOOD + "c,z,nan\n", {}, "a.csv:4: got 'nan' as a time"),
        ("user,item,date\na,x,2024-01-31\nb,y,2024-02-31\n", {}, "a.csv:3: got '2024-02-31'"),
        ("user,item,stars\na,x,1\nb,y,*\n", {"min_rating": 1}, "a.csv:3: got '.' as a rating"),
        ("user,item,stars\na,x,1\nb,y,*\n", {"rating": "stars"}, "a.csv:3: got '.' as a rating"),
        ("user,item,stars\na,x,1\n", {"min_rating": 2}, "no rating above 1.0.*data.min_rating=2"),
        ("user,item,weight\na,x,1\nb,y,w\n", {}, "a.csv:3: got 'w' as a weight"),
        ("user,item\n\n1,2\n2,3.5\n", {}, "a.csv:4: got '3.5' as item id.*without decimals"),
        ('user,item,note\na,x,"1, 2"\nb,y\n', {}, "a.csv:3: got 2 fields, expected 3"),
        (GOOD.encode("utf-16"), {}, "a.csv:1: got bytes that are not UTF-8"),
        (GOOD + GOOD, {}, "a.csv:4: got the header again"),
        ("user,item\na,x\nuser,item\nb,y\n", {}, "a.csv:3: got the header again"),
        ("user,item\n1,2\nuser,item\n", {}, "a.csv:3: got the header again"),
        (b"user,item\na,x\nb,caf\xe9\n", {}, "a.csv:3: got bytes that are not UTF-8"),
        ('user,item\na,"x\ny"\nb\n', {}, "a.csv:4: got 1 fields, expected 2"),
        ('user,item\na\rb,x\nc\n', {}, "a.csv:2: got a row that cannot be split"),
        ("user,item\ra,x\rb,y\r", {}, "a.csv:1: got a first line that cannot be split"),
    ],
)  # fmt: skip
def test_errors_of_text_files(tmp_path, content, options, message):
    with pytest.raises(DataError, match=message) as caught:
        read_file(write(tmp_path, content), DataConfig(**options))
    assert "\n" not in str(caught.value)
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", '{"user": 1, "item": 2}\n{"user": 1, item}\n', "a.jsonl:2: got .*JSON object"),
        ("a.jsonl", '{"user": 1, "item": 2}\n{"user": "a", "item": 2}\n', "a.jsonl:2: got 'a' of "
         "type str in the user column, expected a number"),
        ("a.jsonl", '{"user": 1, "item": 2}\n\n{"user": 1}\n', "a.jsonl:3: got no item id"),
        ("a.jsonl", '{"user": 1, "item": 2}\n{"user": 1.5, "item": 2}\n', "a.jsonl:2: got 1.5 as"),
        ("a.jsonl", '{"user": 1, "item": [2]}\n', "a.jsonl:1: got .2. of type list"),
        ("a.jsonl", '{"usr": 1, "item": 2}\n', "a.jsonl:1: got the columns usr, item"),
        ("a.json", '[{"user": 1, "item": 2}]\n', "a.json:1: got a JSON list"),
        ("a.jsonl", "\n", "a.jsonl: got an empty file"),
        ("a.jsonl", b'{"user": 1, "item": 2}\n\xff', "a.jsonl:2: got bytes that are not UTF-8"),
        ("a.parquet", "user,item\n1,2\n", "a.parquet: got .*expected a Parquet file"),
        ("a.csv.gz", CUT_GZIP, "a.csv.gz: got packed content that"),
        ("a.inter", "user_id:token\titm:token\n1\t2\n", "a.inter:1: got the columns user_id, itm"),
    ],
)  # fmt: skip
def test_errors_of_other_formats(tmp_path, name, content, message):
    with pytest.raises(DataError, match=message) as caught:
        read_file(write(tmp_path, content, name), DataConfig())
    assert "\n" not in str(caught.value)


def test_errors_of_lightgcn_files(tmp_path):
    path = write(tmp_path, "1,2\n3,4\n", "a.txt")
    with pytest.raises(DataError, match=r"a.txt:1: got no line of a user and items"):
        read_file(path, DataConfig(format="lightgcn"))
    with pytest.raises(DataError, match=r"a.txt: got lists of items, which have no ratings"):
        read_file(path, DataConfig(format="lightgcn", min_rating=3))


def test_errors_of_paths(tmp_path):
    path = write(tmp_path, GOOD, "ratings.csv")
    with pytest.raises(DataError, match=r"rating.csv: got no such file; did you mean ratings.csv"):
        read_file(tmp_path / "rating.csv", DataConfig())
    with pytest.raises(DataError, match="got a folder, expected a file"):
        read_file(tmp_path, DataConfig())
    with pytest.raises(DataError, match="which is a file, expected a folder"):
        read_file(path / "train.csv", DataConfig())


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"user": [1.0, None], "item": [1, 2]}, "data frame, row 1: got no user id"),
        ({"user": [1.0, 1.5], "item": [1, 2]}, "data frame, row 1: got 1.5 as user id"),
        ({"user": [True, False], "item": [1, 2]}, "user ids of type Boolean"),
        ({"user": ["a", ""], "item": [1, 2]}, "row 1: got an empty user id"),
        ({"user": ["a", "b"], "item": [1, 2], "time": [1.0, None]}, "row 1: got no time"),
        ({"user": ["a", "b"], "item": [1, 2], "weight": [1.0, np.inf]}, "row 1: got inf"),
        ({"user": [2**63], "item": [1]}, "row 0: got 9223372036854775808"),
        ({"user": [], "item": []}, "data frame: got no interactions"),
    ],
)
@pytest.mark.parametrize("kind", ["polars", "pandas"])
def test_errors_of_frames(columns, message, kind):
    make = pl.DataFrame if kind == "polars" else pd.DataFrame
    with pytest.raises(DataError, match=message):
        read_frame(make(columns))


def test_columns_of_lists_cannot_be_weights():
    with pytest.raises(DataError, match="got a weight of type List"):
        read_frame(pl.DataFrame({"user": ["a"], "item": [1], "weight": [[1]]}))


def test_whole_floats_are_integers():
    assert read_frame(pd.DataFrame({"user": [1.0], "item": [2]})).rows() == [(1, 2)]


@pytest.mark.parametrize("value", ["a", None, (1, 2), True])
def test_errors_of_mixed_types_in_pandas(value):
    frame = pd.DataFrame({"user": pd.Series([1, value], dtype=object), "item": [1, 2]})
    got = "no user id" if value is None else repr(value)
    with pytest.raises(DataError, match=re.escape(f"data frame, row 1: got {got}")):
        read_frame(frame)


def test_other_sources_are_refused():
    with pytest.raises(DataError, match="got list, expected a path, a polars or pandas frame"):
        read_frame([1, 2])


# Carriage returns are left out: Python's csv writer does not quote them.
odd_ids = st.text(
    st.sampled_from(',;"\n\t |:é∂0') | st.characters(exclude_categories=["Cs", "Cc"]),
    min_size=1,
    max_size=6,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(odd_ids, odd_ids), min_size=1, max_size=8))
def test_csv_round_trips_odd_ids(tmp_path, rows):
    path = tmp_path / "odd.csv"
    rows = [(f"{u}x", f"{i}x") for u, i in rows]
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([("user", "item"), *rows])
    frame = read_file(path, DataConfig(sep=","))
    assert frame.rows() == rows


@pytest.mark.parametrize("field", ['""0"', '""a', '""""0"', '""', '"0"0""', '","0""'])
def test_malformed_quotes_are_read_as_csv_reads_them(tmp_path, field):
    text = f"user,item\nx,1\n{field},2\n"
    path = tmp_path / "a.csv"
    path.write_text(text)
    expected = [tuple(row) for row in csv.reader(text.splitlines())][1:]
    if "" in expected[1]:
        with pytest.raises(DataError, match=r"a\.csv:3: got an empty user id"):
            read_file(path, DataConfig())
    else:
        assert read_file(path, DataConfig(sep=",")).select("user").rows() == [
            (user,) for user, _ in expected
        ]


@pytest.mark.parametrize("field", ['"0""', '"a', '"a,""b', '"""'])
def test_a_last_field_without_closing_quote_is_read_as_csv_reads_it(tmp_path, field):
    text = f"user,item\nx,1\ny,{field}"
    path = tmp_path / "a.csv"
    path.write_text(text)
    expected = [tuple(row) for row in csv.reader(text.splitlines())][1:]
    assert read_file(path, DataConfig(sep=",")).select("user", "item").rows() == expected


def test_options_refuse_unknown_keys():
    with pytest.raises(ValueError, match="seperator"):
        DataConfig(seperator=",")


@pytest.mark.parametrize("value", ["2024-01-31", "31.01.2024 10:00", "4,5"])
def test_dates_and_decimal_commas_tell_data_from_a_header(tmp_path, value):
    path = write(tmp_path, f"ann;tea;{value}\nbob;jam;{value}\n")
    assert read_file(path, DataConfig()).height == 2
    path = write(tmp_path, f"who;what;note\nann;tea;{value}\n")
    with pytest.raises(DataError, match="got the columns who, what, note, expected one of user"):
        read_file(path, DataConfig())


def test_numbers_with_a_decimal_comma(tmp_path):
    path = write(tmp_path, "user;item;weight\na;x;4,5\nb;y;1\nc;z;0,25\n")
    assert read_file(path, DataConfig())["weight"].to_list() == [4.5, 1.0, 0.25]
    # It may be one thousand.
    with pytest.raises(DataError, match=r"a\.csv:2: got '1,000' as a weight"):
        read_file(write(tmp_path, "user;item;weight\na;x;1,000\n"), DataConfig())
