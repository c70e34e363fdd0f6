"""Files that are damaged, or that would be misread: every one is refused in one line."""

import gzip
import io
import os
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
from backports import zstd

from mgformer.data.attribute_file import read_about
from mgformer.data.dataset import open_dataset, read_dataset
from mgformer.data.formats import packed, read_file
from mgformer.data.formats.frames import read_frame
from mgformer.data.interactions import Interactions
from mgformer.data.options import DataConfig
from mgformer.errors import DataError

TABLE = b"user,item\na,x\nb,y\n"
BIG = 2**53


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(
        content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
    )
    return path


def refusal(path: Path, **options: object) -> str:
    with pytest.raises(DataError) as caught:
        Interactions.from_frame(read_file(path, DataConfig(**options)))
    message = str(caught.value)
    assert "\n" not in message
    assert str(path) in message
    assert len(message) < 400 + len(str(path))
    return message


def zipped(*files: tuple[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files:
            archive.writestr(name, content)
    return stream.getvalue()


def parquet(frame: pl.DataFrame, **options: object) -> bytes:
    stream = io.BytesIO()
    frame.write_parquet(stream, **options)
    return stream.getvalue()


PACKED = {
    "gzip": gzip.compress(TABLE),
    "zstandard": zstd.compress(TABLE),
    "zip": zipped(("__MACOSX/._a.csv", b"x"), ("folder/", b""), ("folder/a.csv", TABLE)),
}


@pytest.mark.parametrize("kind", PACKED)
@pytest.mark.parametrize("name", ["a.csv", "a", "a.csv.gz", "a.csv.zst", "a.csv.zip", "A.TXT.GZ"])
def test_packed_content_is_recognised_whatever_the_name(
    tmp_path: Path, name: str, kind: str
) -> None:
    path = write(tmp_path / name, PACKED[kind])
    assert read_file(path, DataConfig()).rows() == [("a", "x"), ("b", "y")]


@pytest.mark.parametrize("end", [".gz", ".zst", ".zip"])
def test_parts_of_a_folder_may_be_packed(tmp_path: Path, end: str) -> None:
    write(tmp_path / "train.csv", TABLE)
    write(tmp_path / f"test.csv{end}", zipped(("test.csv", b"user,item\na,y\n")))
    assert len(open_dataset(str(tmp_path)).parts["test"]) == 1


def test_packed_parquet_is_read(tmp_path: Path) -> None:
    content = parquet(pl.DataFrame({"user": ["a"], "item": [1]}))
    path = write(tmp_path / "a.parquet.gz", gzip.compress(content))
    assert read_file(path, DataConfig()).rows() == [("a", 1)]


@pytest.mark.parametrize("kind", PACKED)
def test_damaged_packed_content_is_one_line(tmp_path: Path, kind: str) -> None:
    assert "cannot be unpacked" in refusal(write(tmp_path / "a.csv", PACKED[kind][:-20]))


def test_archives_must_hold_one_file(tmp_path: Path) -> None:
    path = write(tmp_path / "a.zip", zipped(("a.csv", TABLE), ("b.csv", TABLE)))
    assert "zip archive of 2 files ('a.csv', 'b.csv'), expected one" in refusal(path)
    assert "zip archive of 0 files, expected one" in refusal(write(tmp_path / "b.csv", zipped()))


def test_zstandard_without_its_package_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(packed.sys.modules, "backports.zstd", None)
    monkeypatch.delattr("backports.zstd")
    message = refusal(write(tmp_path / "a.csv", PACKED["zstandard"]))
    assert "pip install 'mgformer[zstd]'" in message


@pytest.mark.parametrize("end", [1, 8, 30, 200, -4, -1, 0])
def test_truncated_parquet_is_one_line(tmp_path: Path, end: int) -> None:
    content = parquet(pl.DataFrame({"user": ["a", "b"] * 50, "item": range(100)}))
    assert "expected a Parquet file" in refusal(write(tmp_path / "a.parquet", content[:end]))


@pytest.mark.parametrize(
    "error",
    [
        pl.exceptions.PanicException("index out of range\nof this slice"),
        pl.exceptions.ComputeError(""),
        OSError("failed to fill whole buffer"),
    ],
    ids=["panic", "compute", "cut short"],
)
def test_what_polars_says_about_damage_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    path = write(tmp_path / "a.parquet", parquet(pl.DataFrame({"user": ["a"], "item": [1]})))
    monkeypatch.setattr(pl, "scan_parquet", fail)
    assert "expected a Parquet file; it is damaged" in refusal(path)
    with pytest.raises(DataError, match="expected a Parquet file"):
        read_about(path, "item", DataConfig())


def test_errors_of_the_system_stay_what_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    path = write(tmp_path / "a.parquet", parquet(pl.DataFrame({"user": ["a"], "item": [1]})))
    monkeypatch.setattr(pl, "scan_parquet", fail)
    with pytest.raises(PermissionError):
        read_file(path, DataConfig())
    monkeypatch.setattr(Path, "open", fail)
    with pytest.raises(PermissionError):
        read_file(tmp_path / "a.parquet", DataConfig(format="csv"))


@pytest.mark.parametrize("name", ["*", "^user$", "^.*$", "[a]"])
def test_names_of_columns_and_files_are_no_patterns(tmp_path: Path, name: str) -> None:
    frame = pl.DataFrame({"user": [1, 2], name: [3, 4], "item": [5, 6]})
    path = write(tmp_path / f"[{name.strip('^$')}].parquet", parquet(frame))
    assert read_file(path, DataConfig(user=name)).rows() == [(3, 5), (4, 6)]


def test_paths_that_are_no_files(tmp_path: Path) -> None:
    (tmp_path / "link.csv").symlink_to(tmp_path / "gone.csv")
    assert "got a link to nothing" in refusal(tmp_path / "link.csv")
    os.mkfifo(tmp_path / "pipe.csv")
    assert "got a device or a pipe" in refusal(tmp_path / "pipe.csv")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[" * 100_000, "recursion"),
        ('{"user":' * 100_000, "recursion"),
        ('{"user": 1' + "0" * 5000 + ', "item": 1}', "4300 digits"),
        ('{"user": 1' + "0" * 50 + ', "item": 1}', "whole numbers of 64 bits"),
        ('{"user": 9223372036854775808, "item": 1}', "whole numbers of 64 bits"),
        ('{"user": -9223372036854775809, "item": 1}', "whole numbers of 64 bits"),
        ('{"user": 1e999, "item": 1}', "whole numbers of 64 bits"),
        ('{"user": NaN, "item": 1}', "got no user id"),
        ('{"user": 1, "item": "x"}', "got 'x' of type str"),
        ('{"user": 1, "item": 1, "time": {}}', "got {} of type dict in the time"),
    ],
)
def test_hostile_json(tmp_path: Path, line: str, message: str) -> None:
    path = write(tmp_path / "a.jsonl", '{"user": 5, "item": 6, "time": 7}\n\n' + line + "\n")
    got = refusal(path)
    assert f"{path}:3: got" in got
    assert message in got


def test_lists_are_no_times(tmp_path: Path) -> None:
    # polars makes a column of four rows of these three times.
    times = ("null", "[{}]", "null")
    lines = [f'{{"user": "0", "item": "0", "time": {time}}}\n' for time in times]
    path = write(tmp_path / "a.jsonl", "".join(lines))
    assert f"{path}:2: got [{{}}] of type list in the time" in refusal(path)


@pytest.mark.parametrize("role", ["user", "item"])
def test_half_of_a_surrogate_pair_is_no_id(tmp_path: Path, role: str) -> None:
    line = '{"user": "a", "item": "b"}\n'
    path = write(tmp_path / "a.jsonl", line + line.replace(f'"{role}": "', f'"{role}": "\\ud800'))
    assert f"{path}:2: got '\\ud800" in refusal(path)
    frame = pd.DataFrame({"user": ["a"], "item": ["b"]}, dtype=object)
    frame[role] = pd.Series(["\ud800"], dtype=object)
    with pytest.raises(DataError, match="half of a pair of surrogates"):
        read_frame(frame)
    arrays = {"user": ["a"], "item": ["b"]} | {role: ["\ud800"]}
    with pytest.raises(DataError):
        read_dataset((arrays["user"], arrays["item"]))


def test_integer_ids_may_span_all_64_bits(tmp_path: Path) -> None:
    ids = [-(2**63), -1, 2**63 - 1]
    path = write(tmp_path / "a.jsonl", "".join(f'{{"user": {i}, "item": {i}}}\n' for i in ids))
    assert read_dataset(path).interactions.users.values.to_list() == ids


@pytest.mark.parametrize("role", ["user", "item"])
def test_large_ids_among_floats_are_refused(tmp_path: Path, role: str) -> None:
    """As floats, 9007199254740993 and 9007199254740992 are one number: two users would be one."""
    other = "item" if role == "user" else "user"
    rows = [f'{{"{role}": {i}, "{other}": 1}}\n' for i in (BIG + 1, BIG, 1)]
    path = write(tmp_path / "a.jsonl", "".join(rows))
    assert sorted(read_file(path, DataConfig())[role]) == [1, BIG, BIG + 1]
    path = write(tmp_path / "a.jsonl", rows[2].replace("1,", "1.0,") + "".join(rows))
    got = refusal(path)
    assert f"{path}:2: got 9007199254740992.0 among {role} ids that are Float64" in got
    assert "expected ids below 2^53" in got


@pytest.mark.parametrize(
    ("dtype", "bits"), [(pl.Float32, 24), (pl.Float64, 53)], ids=["float32", "float64"]
)
@pytest.mark.parametrize("sign", [1, -1])
def test_large_float_ids_are_refused(tmp_path: Path, dtype: type, bits: int, sign: int) -> None:
    def frame(largest: int) -> pl.DataFrame:
        ids = pl.Series([1, sign * largest], dtype=pl.Int64).cast(dtype)
        return pl.DataFrame({"user": ids, "item": [1, 2]})

    path = write(tmp_path / "good.parquet", parquet(frame(2**bits - 1)))
    assert read_file(path, DataConfig())["user"].to_list() == [1, sign * (2**bits - 1)]
    path = write(tmp_path / "bad.parquet", parquet(frame(2**bits)))
    assert f"row 1: got {sign * 2.0**bits!r} among user ids" in refusal(path)
    for source in (frame(2**bits), frame(2**bits).to_pandas()):
        with pytest.raises(DataError, match=r"data frame, row 1: got .* among user ids"):
            read_frame(source)


def test_large_ids_among_floats_in_pandas_and_arrays() -> None:
    users = pd.Series([BIG + 1, 1.0], dtype=object)
    for source in (
        pd.DataFrame({"user": users, "item": [1, 2]}),
        (np.array([BIG + 1, 1.0]), [1, 2]),
        (users.to_numpy().astype(float), [1, 2]),
    ):
        with pytest.raises(DataError, match="among user ids that are Float64"):
            read_dataset(source)
    with pytest.raises(DataError, match="mixed types"):
        read_dataset(([BIG + 1, 1.0], [1, 2]))


@pytest.mark.parametrize("sep", [",", "\t"])
def test_decimal_ids_far_down_a_text_file_are_refused(tmp_path: Path, sep: str) -> None:
    rows = [("user", "item"), *((u, u) for u in range(1500))]
    content = "\n".join(sep.join(map(str, row)) for row in rows) + "\n"
    path = write(tmp_path / "a.txt", content + f"9007199254740993.0{sep}1\n")
    assert f"{path}:1502: got '9007199254740993.0' as user id" in refusal(path)
    path = write(tmp_path / "a.txt", content + f"9007199254740993.0{sep}1\nab{sep}1\n")
    assert read_file(path, DataConfig())["user"][-1] == "ab"


@pytest.mark.parametrize("weight", ["1e39", "-1e39", "3.5e38", "1e400", "inf", "nan", "''"])
def test_weights_must_fit_32_bits(tmp_path: Path, weight: str) -> None:
    path = write(tmp_path / "a.csv", f"user,item,weight\na,x,3e38\nb,y,{weight}\n")
    assert f"{path}:3: got" in refusal(path)
    assert read_file(path, DataConfig(weight="")).height == 2


def test_missing_weights_and_ratings_of_frames_are_refused() -> None:
    frame = pd.DataFrame({"user": [1, 2], "item": [1, 2], "weight": [1.0, np.nan]})
    with pytest.raises(DataError, match="row 1: got no weight"):
        read_frame(frame)
    with pytest.raises(DataError, match="row 1: got no rating"):
        read_frame(frame.rename(columns={"weight": "rating"}), DataConfig(min_rating=1))
    with pytest.raises(DataError, match="row 1: got nan as a weight"):
        read_frame(pl.DataFrame({"user": [1, 2], "item": [1, 2], "weight": [1.0, float("nan")]}))


def test_weights_of_a_repeated_pair_must_not_overflow(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "user,item,weight\na,x,3e38\na,x,3e38\n")
    with pytest.raises(DataError, match=r"add up to more than 3.4e38"):
        read_dataset(path)


def test_a_file_that_shrinks_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program may truncate a file between two reads: each reading stands for itself."""
    path = write(tmp_path / "a.txt", TABLE)
    whole = packed.read_bytes

    def shrinking(path: Path, count: int = -1, gigabytes: float | None = None) -> bytes:
        content = whole(path, count, gigabytes)
        path.write_bytes(b"")
        return content

    for module in ("delimited", "lightgcn", "jsonl", "__init__"):
        name = f"mgformer.data.formats.{module}".removesuffix(".__init__")
        monkeypatch.setattr(f"{name}.read_bytes", shrinking)
    assert "got an empty file" in refusal(path)
    write(path, TABLE)
    assert read_file(path, DataConfig(format="csv")).height == 2


@pytest.mark.parametrize("source", [(1, 2), (iter([1]), iter([1])), ([10**400], [1])])
def test_arrays_that_are_none(source: tuple[object, object]) -> None:
    with pytest.raises(DataError):
        read_dataset(source)


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ("user,item\n0,\r0\n", {}, ":2: got a row that cannot be split"),
        ('user,item\n0,"a\rb"\n1,\r\n', {}, ":3: got an empty item id"),
        ('user,item,note\na,x,n\n,,"m"\n', {}, ":3: got an empty user id"),
        ("user,item\n0,1\n", {"sep": "\n"}, r"got data.sep='\n'"),
        ("user,item\n0,1\n", {"sep": '"'}, "which ends a line or quotes a field"),
        (f"{'a' * 5000},item\n0,1\n", {}, "a" * 40 + ", item, expected one of user ids"),
    ],
)  # fmt: skip
def test_text_that_a_fuzzer_found(
    tmp_path: Path, content: str, options: dict[str, object], message: str
) -> None:
    assert message in refusal(write(tmp_path / "a.csv", content), **options)


def test_quoted_carriage_returns_belong_to_ids(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", 'user,item\na,"x\ry"\nb,y\n')
    assert read_file(path, DataConfig()).rows() == [("a", "x\ry"), ("b", "y")]


def test_an_archive_that_points_outside_of_itself(tmp_path: Path) -> None:
    """A fuzzer found it: the place of the file in the archive is negative."""
    content = bytearray(zipped(("a.csv", TABLE)))
    end = content.rindex(b"PK\x05\x06")
    content[end + 16 : end + 20] = (2**31).to_bytes(4, "little")
    assert "cannot be unpacked" in refusal(write(tmp_path / "a.csv", bytes(content)))
