"""Readers: a table that is read is the right one, and everything else is a DataError."""

import contextlib
import csv
import gzip
import io
import json
import re
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from backports import zstd
from hypothesis import strategies as st

from mgformer.data.attribute_file import read_about
from mgformer.data.dataset import read_dataset
from mgformer.data.formats import read_file
from mgformer.data.ids import Ids
from mgformer.data.interactions import Interactions
from mgformer.data.options import DataConfig
from mgformer.errors import DataError
from tests.fuzz.conftest import Fuzz

Pairs = list[tuple[Any, Any]]
# As polars and Python's json see it; str.split also takes \x1c to \x1f for white space.
SPACE = r"[^\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+"
ODD = st.text(
    st.sampled_from(",;\"'\n\r\t |:.-+é∂\u2028\x00\x1c0179aeE") | st.characters(), max_size=8
)
IDS = st.integers(-(2**64), 2**64).map(str) | st.integers(0, 30).map(str) | ODD
EXTRA = st.sampled_from(["1", "-2.5", "1e39", "1e400", "nan", "", "2024-01-31", "x"]) | ODD


def read(path: Path, content: bytes, **options: Any) -> pl.DataFrame | None:
    """Return the table of a file, or None if it is refused in one line that names the file."""
    path.write_bytes(content)
    try:
        frame = read_file(path, DataConfig(**options))
    except DataError as error:
        assert_names_the_file(error, path)
        return None
    pairs = Interactions.from_frame(frame)
    assert len(pairs) + pairs.duplicates == frame.height
    return frame


def check_only(path: Path, content: bytes) -> None:
    read(path, content)


def assert_names_the_file(error: DataError, path: Path) -> None:
    message = str(error)
    assert str(path) in message
    assert "\n" not in message
    assert len(message) < len(str(path)) + 2000


def typed(ids: Iterable[str]) -> list[Any]:
    """Return ids as text files mean them: integers only if all of them are written as such."""
    ids = list(ids)
    whole = all(re.fullmatch(r"0|-?[1-9][0-9]*", i) and -(2**63) <= int(i) < 2**63 for i in ids)
    return [int(i) for i in ids] if whole else ids


def csv_pairs(text: str, sep: str) -> Pairs | None:
    """Return the first two columns after the header as Python's csv sees them; None if it cannot.

    A line ends with \n or \r\n. Rows must have equal lengths, and ids must not be empty.
    """
    try:
        rows = list(csv.reader(io.StringIO(text, newline="\n"), delimiter=sep))
    except csv.Error:
        return None
    rows = [row for row in rows if len(row) > 1 or "".join(row).strip()]
    # Empty fields beyond the header are no matter.
    width = len(rows[0]) if rows else 0
    rows = [row if any(row[width:]) else row[:width] for row in rows]
    table = rows[1:]
    if not table or len({len(row) for row in rows}) > 1 or len(rows[0]) < 2:
        return None
    if any("" in row[:2] for row in table) or rows[0] in table:
        return None
    return list(zip(typed(r[0] for r in table), typed(r[1] for r in table), strict=True))


@st.composite
def delimited(draw: st.DrawFn) -> tuple[str, str]:
    """A separator, and the text that csv writes for a table."""
    sep = draw(st.sampled_from(",;\t|"))
    width = draw(st.integers(2, 4))
    rows = draw(st.lists(st.lists(IDS, min_size=width, max_size=width), min_size=1, max_size=12))
    stream = io.StringIO(newline="")
    ends = draw(st.sampled_from(["\n", "\r\n"]))
    quoting = draw(st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]))
    writer = csv.writer(stream, delimiter=sep, lineterminator=ends, quoting=quoting)
    writer.writerows([["user", "item", "note", "more"][:width], *rows])
    return sep, stream.getvalue()


def assert_same_pairs(found: pl.DataFrame | None, text: str, sep: str) -> None:
    expected = csv_pairs(text, sep)
    if found is not None:
        assert expected is not None, found.rows()
        assert found.select("user", "item").rows() == expected
    elif expected is not None:
        # Python's csv has nothing against halves of characters and decimal ids.
        # Quotes may stand between the digits and the point of a decimal id.
        ids = " ".join(str(one) for pair in expected for one in pair)
        assert re.search(r"[\ud800-\udfff]|\d\.|\.\d", text + ids), text


def test_delimited_text_is_read_as_csv_reads_it(fuzz: Fuzz, tmp_path: Path) -> None:
    def check(case: tuple[str, str]) -> None:
        sep, text = case
        found = read(tmp_path / "a.csv", text.encode("utf-8", "surrogatepass"), sep=sep)
        assert_same_pairs(found, text, sep)

    fuzz.run(delimited(), check)


def test_text_that_is_hardly_a_table(fuzz: Fuzz, tmp_path: Path) -> None:
    def check(text: str) -> None:
        content = f"user,item\n{text}"
        found = read(tmp_path / "a.csv", content.encode("utf-8", "surrogatepass"), sep=",")
        assert_same_pairs(found, content, ",")

    fuzz.run(st.text(st.sampled_from(',"\n\r a1.-0'), max_size=40), check)


def test_times_weights_and_ratings_of_text(fuzz: Fuzz, tmp_path: Path) -> None:
    def check(case: tuple[str, list[str], str, float | None]) -> None:
        role, values, name, least = case
        rows = [f"u{n},i{n},{value}" for n, value in enumerate(values)]
        content = "\n".join([f"user,item,{role}", *rows]).encode("utf-8", "surrogatepass")
        options = {} if least is None else {"rating": role, "min_rating": least}
        read(tmp_path / name, content, sep=",", **options)

    roles = st.sampled_from(["time", "weight", "rating", "date"])
    names = st.sampled_from(["a.csv", "a.txt", "a.dat", "a"])
    case = st.tuples(
        roles, st.lists(EXTRA, min_size=1, max_size=8), names, st.none() | st.floats(-9, 9)
    )
    fuzz.run(case, check)


def test_any_bytes_under_any_name(fuzz: Fuzz, tmp_path: Path) -> None:
    def check(case: tuple[str, bytes, str | None]) -> None:
        read(tmp_path / case[0], case[1], sep=case[2])

    names = [
        "a.csv",
        "a.txt",
        "a.inter",
        "a.jsonl",
        "a.parquet",
        "a.dat.gz",
        "a.tsv.zst",
        "a.zip",
        "a",
    ]
    starts = [
        b"",
        b"PAR1",
        b"\x1f\x8b",
        b"\x28\xb5\x2f\xfd",
        b"PK\x03\x04",
        b"PK\x05\x06",
        b"{",
        b"\xef\xbb\xbf",
    ]
    content = st.tuples(
        st.sampled_from(starts),
        st.binary(max_size=80) | ODD.map(lambda t: t.encode("utf-8", "replace")),
    )
    separators = st.none() | st.sampled_from(
        ["::", "\\t", ", ", "é", '"', "\n", "\r", "\x00", "x" * 9]
    )
    fuzz.run(st.tuples(st.sampled_from(names), content.map(b"".join), separators), check)


def test_lines_of_users_and_items(fuzz: Fuzz, tmp_path: Path) -> None:
    def check(lines: list[list[str]]) -> None:
        text = "\n".join(" ".join(line) for line in lines)
        found = read(tmp_path / "a.txt", text.encode("utf-8", "surrogatepass"), format="lightgcn")
        fields = [re.findall(SPACE, line) for line in text.removeprefix("\ufeff").split("\n")]
        pairs = [(user, item) for user, *items in filter(None, fields) for item in items]
        users, items = (typed(column) for column in zip(*pairs, strict=True)) if pairs else ([], [])
        if found is not None:
            assert found.select("user", "item").rows() == list(zip(users, items, strict=True))

    fuzz.run(st.lists(st.lists(IDS, max_size=5), max_size=8), check)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | ODD
    | st.sampled_from([2**53, 2**53 + 1, 2**63, -(2**63), 10**30, 1.0, 1e300, "\ud800"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ODD, inner, max_size=3),
    max_leaves=5,
)  # fmt: skip
KIND = st.sampled_from(
    [ODD.filter(bool), st.integers(-5, 5) | st.integers() | st.sampled_from([1.0, 2**53 + 1]), JSON]
)


@st.composite
def records(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Records whose columns are mostly of one kind."""
    number = draw(st.integers(1, 8))
    keys = draw(
        st.sampled_from([["user", "item"], ["user", "item", "time"], ["user", "item", "weight"]])
    )
    columns = {key: draw(st.lists(draw(KIND), min_size=number, max_size=number)) for key in keys}
    return [{key: columns[key][row] for key in keys} for row in range(number)]


def assert_ids_are_kept(found: pl.DataFrame | None, given: list[dict[str, Any]]) -> None:
    if found is None:
        return
    for role in ("user", "item"):
        for got, one in zip(found[role], given, strict=True):
            assert got == one[role]
            assert not isinstance(one[role], float) or abs(one[role]) < 2**53


def test_json_lines_keep_ids_exactly(fuzz: Fuzz, tmp_path: Path) -> None:
    def check(given: list[dict[str, Any]]) -> None:
        text = "\n".join(map(json.dumps, given))
        assert_ids_are_kept(read(tmp_path / "a.jsonl", text.encode()), given)

    fuzz.run(records(), check)


def test_text_that_is_hardly_json(fuzz: Fuzz, tmp_path: Path) -> None:
    def check(case: tuple[str, int, str]) -> None:
        text = '{"user": 1, "item": "b"}\n{"user": 2, "item": "c", "time": 3}\n'
        changed = text[: case[1]] + case[0] + text[case[1] + len(case[2]) :]
        read(tmp_path / "a.json", changed.encode("utf-8", "surrogatepass"))

    pieces = st.sampled_from(
        ["[" * 3000, '{"a":' * 3000, "9" * 5000, "\\ud800", "\\u0000", "NaN", "1e999", "-0", "}\n{"]
    )
    fuzz.run(st.tuples(pieces | ODD, st.integers(0, 70), ODD), check)


def written(frame: pl.DataFrame, how: str) -> bytes:
    stream = io.BytesIO()
    frame.write_parquet(stream, compression=how)
    return stream.getvalue()


TABLE = pl.DataFrame({"user": ["a", "b", "c"] * 20, "item": range(60), "time": [1.5] * 60})
PARQUET = [written(TABLE, how) for how in ("uncompressed", "zstd", "snappy", "gzip")]


@st.composite
def damaged(draw: st.DrawFn, sources: list[bytes]) -> bytes:
    """One of some files, with bytes changed, left out or put in."""
    content = bytearray(draw(st.sampled_from(sources)))
    for _ in range(draw(st.integers(1, 4))):
        # What matters is often at the end of a file.
        last = len(content)
        at = draw(st.integers(0, last) | st.integers(max(0, last - 300), last))
        content[at : at + draw(st.integers(0, 4))] = draw(st.binary(max_size=4))
    return bytes(content)


def test_damaged_parquet(fuzz: Fuzz, tmp_path: Path) -> None:
    fuzz.run(damaged(PARQUET), lambda content: check_only(tmp_path / "a.parquet", content))


COLUMN_TYPES = (
    pl.Int8, pl.UInt64, pl.Int128, pl.Float32, pl.Float64, pl.String, pl.Boolean, pl.Date,
    pl.Binary, pl.Datetime("ms"), pl.Datetime("ns", "UTC"), pl.Duration, pl.Time, pl.Categorical,
    pl.Decimal(9, 2), pl.List(pl.Int64), pl.Struct({"a": pl.Int64}), pl.Null,
)  # fmt: skip


@st.composite
def frames(draw: st.DrawFn) -> pl.DataFrame:
    """A frame with columns of any type."""
    height = draw(st.integers(0, 6))
    columns = {}
    for name in ("user", "item", draw(st.sampled_from(["time", "weight", "rating", "note"]))):
        plain = st.integers(-(2**63), 2**63 - 1) | st.integers(0, 3)
        values = draw(st.lists(plain | st.none(), min_size=height, max_size=height))
        dtype = draw(st.sampled_from(COLUMN_TYPES))
        column = pl.Series(name, values, dtype=pl.Int64)
        try:
            columns[name] = column.cast(dtype, strict=False)
        except pl.exceptions.PolarsError:
            columns[name] = column
    return pl.DataFrame(columns)


def test_frames_of_any_type(fuzz: Fuzz, tmp_path: Path) -> None:
    def check(frame: pl.DataFrame) -> None:
        found = []
        sources: list[Any] = [frame]
        with contextlib.suppress(pa.ArrowException):  # pandas does not have all types of polars
            sources.append(frame.to_pandas())
        for source in sources:
            try:
                found.append(read_dataset(source).fingerprint)
            except DataError:
                found.append("")
        table = read(tmp_path / "a.parquet", written(frame, "uncompressed"))
        as_file = "" if table is None else Interactions.from_frame(table).fingerprint
        assert as_file == found[0]

    fuzz.run(frames(), check)


def test_python_values_keep_ids_exactly(fuzz: Fuzz) -> None:
    def check(given: list[dict[str, Any]]) -> None:
        columns = {key: [one[key] for one in given] for key in given[0]}
        for source in (pd.DataFrame(columns, dtype=object), tuple(columns.values())):
            try:
                rows = read_dataset(source, keep_rows=True).rows
            except DataError:
                continue
            if isinstance(source, pd.DataFrame):
                assert_ids_are_kept(rows, given)

    fuzz.run(records(), check)


CSV = b"user,item\na,x\nb,y\n"


def zipped(content: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.csv", content)
    return stream.getvalue()


@pytest.mark.parametrize("pack", [gzip.compress, zstd.compress, zipped])
def test_damaged_packed_files(fuzz: Fuzz, tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    assert read(tmp_path / "a.csv", pack(CSV)) is not None
    fuzz.run(damaged([pack(CSV)]), lambda content: check_only(tmp_path / "a.csv", content))


def test_names_of_items(fuzz: Fuzz, tmp_path: Path) -> None:
    items = Ids(pl.Series(["a", "b"]))

    def check(case: tuple[str, bytes]) -> None:
        path = tmp_path / case[0]
        path.write_bytes(case[1])
        try:
            names = read_about(path, "item", DataConfig()).matched(items).names
            assert names is None or len(names) == 2
        except DataError as error:
            assert_names_the_file(error, path)

    texts = [
        b"item,name\na,Tea\nb,Jam\n",
        b"a::Tea\nb::Jam",
        b'{"item": "a", "name": "Tea"}\n{"item": 1}\n',
        *PARQUET,
    ]
    names = st.sampled_from(["items.csv", "items.txt", "items.jsonl", "items.parquet"])
    fuzz.run(st.tuples(names, damaged(texts) | st.sampled_from(texts)), check)


GOOD = [[f"g{n}", f"h{n}", str(10**9 + n)] for n in range(24)]
"""More rows than a case has bad ones, so that they decide what a column holds."""
TIMES = EXTRA | st.integers(0, 99).map(str)


def as_csv(rows: list[list[str]]) -> bytes:
    stream = io.StringIO(newline="")
    csv.writer(stream).writerows([["user", "item", "time"], *rows])
    return stream.getvalue().encode("utf-8", "surrogatepass")


def as_json(records: list[Any]) -> bytes:
    good = [{"user": user, "item": item, "time": int(time)} for user, item, time in GOOD]
    lines = [*map(json.dumps, good), *(r if isinstance(r, str) else json.dumps(r) for r in records)]
    return "\n".join(lines).encode("utf-8", "surrogatepass")


def as_floats(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Rows with times as floats: a fraction in one row makes floats of all."""
    return [tuple(float(v) if isinstance(v, int) else v for v in row) for row in rows]


def assert_skips_what_stops(
    path: Path, write: Callable[[list[Any]], bytes], rows: list[Any]
) -> None:
    """With on_error=skip, a row is kept if and only if it would not stop the reader by itself."""
    expected = []
    for row in rows:
        alone = read(path, write([row]))
        expected += [] if alone is None else alone.rows()[len(GOOD) :]
    found = read(path, write(rows), on_error="skip")
    assert found is not None
    assert as_floats(found.rows()[len(GOOD) :]) == as_floats(expected)
    assert [row[0] for row in found.rows()[: len(GOOD)]] == [row[0] for row in GOOD]


def test_bad_rows_of_text_are_left_out(fuzz: Fuzz, tmp_path: Path) -> None:
    fields = st.lists(IDS, min_size=1, max_size=5) | st.tuples(IDS, IDS, TIMES).map(list)

    def check(rows: list[list[str]]) -> None:
        assert_skips_what_stops(tmp_path / "a.csv", lambda some: as_csv(GOOD + some), rows)

    fuzz.run(st.lists(fields, max_size=5), check)


def test_bad_json_lines_are_left_out(fuzz: Fuzz, tmp_path: Path) -> None:
    record = st.fixed_dictionaries(
        {"user": KIND.flatmap(lambda s: s), "item": ODD}
    ) | records().map(lambda some: some[0])
    junk = st.text(st.sampled_from('{}[]",:1eu '), max_size=12)

    def check(rows: list[Any]) -> None:
        assert_skips_what_stops(tmp_path / "a.jsonl", as_json, rows)

    fuzz.run(st.lists(record | junk, max_size=5), check)


def test_skipping_changes_nothing_about_good_files(fuzz: Fuzz, tmp_path: Path) -> None:
    def check(case: tuple[str, bytes]) -> None:
        path = tmp_path / case[0]
        whole = read(path, case[1])
        some = read(path, case[1], on_error="skip")
        if whole is not None:
            assert some is not None
            assert some.equals(whole)

    text = st.text(st.sampled_from(',"\n\r a1.-0'), max_size=40).map(lambda t: f"user,item\n{t}")
    content = text.map(str.encode) | st.binary(max_size=60).map(lambda b: b"user,item\na,b\n" + b)
    names = st.sampled_from(["a.csv", "a.txt", "a.inter", "a.jsonl", "a.parquet"])
    fuzz.run(st.tuples(names, content | damaged(PARQUET)), check)
