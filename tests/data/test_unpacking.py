"""Files that unpack to far more than their size are refused before they fill the memory."""

import gzip
import io
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from backports import zstd

from mgformer.data.attribute_file import read_about
from mgformer.data.formats import packed, read_file
from mgformer.data.formats.packed import most_unpacked
from mgformer.data.options import DataConfig
from mgformer.errors import DataError

ROW = b"user,item\n"
SIZE = 8 << 20
"""Bytes that the bombs of these tests unpack to; the limit is lowered accordingly."""


def zipped(content: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.csv", content)
    return stream.getvalue()


def parquet(frame: pl.DataFrame) -> bytes:
    stream = io.BytesIO()
    frame.write_parquet(stream)
    return stream.getvalue()


@pytest.fixture
def low_limit(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(packed, "ALWAYS_ALLOWED", 2 << 20)
    return 2 << 20


@pytest.mark.parametrize("pack", [gzip.compress, zstd.compress, zipped])
@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.txt", "a.parquet"])
def test_bombs_are_refused_in_one_line_and_little_memory(
    tmp_path: Path, low_limit: int, name: str, pack: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / name
    path.write_bytes(pack(ROW + b"1,2\n" * (SIZE // 4)))
    tracemalloc.start()
    try:
        with pytest.raises(DataError) as caught:
            read_file(path, DataConfig())
        assert tracemalloc.get_traced_memory()[1] < SIZE
    finally:
        tracemalloc.stop()
    message = str(caught.value)
    assert message.startswith(f"{path}: got ")
    assert "unpack to more than 0.0021 GB" in message
    assert "--set data.max_unpacked=GIGABYTES" in message
    assert "\n" not in message


def test_the_limit_can_be_raised_and_lowered(tmp_path: Path, low_limit: int) -> None:
    content = ROW + b"1,2\n" * (SIZE // 4)
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(content))
    assert read_file(path, DataConfig(max_unpacked=0.01)).height == SIZE // 4
    path.write_bytes(gzip.compress(content[: 10 + low_limit // 2]))
    assert read_file(path, DataConfig()).height == low_limit // 8
    with pytest.raises(DataError, match=r"unpack to more than 0\.001 GB"):
        read_file(path, DataConfig(max_unpacked=0.001))


def test_parquet_with_many_repeated_rows_is_refused(tmp_path: Path, low_limit: int) -> None:
    """One value, repeated a million times, takes some bytes in the file."""
    rows = 1_000_000
    path = tmp_path / "a.parquet"
    path.write_bytes(parquet(pl.DataFrame({"user": [7] * rows, "item": [9] * rows})))
    assert path.stat().st_size < rows / 100
    with pytest.raises(DataError, match=r"--set data\.max_unpacked=GIGABYTES"):
        read_file(path, DataConfig())
    assert read_file(path, DataConfig(max_unpacked=1)).height == rows


def test_parquet_pages_that_unpack_to_much_are_refused(tmp_path: Path, low_limit: int) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(parquet(pl.DataFrame({"user": ["a" * SIZE, "b"], "item": [1, 2]})))
    with pytest.raises(DataError, match=r"unpack to more than 0\.0021 GB"):
        read_file(path, DataConfig())
    assert read_file(path, DataConfig(max_unpacked=1)).height == 2


def test_names_of_items_have_the_same_limit(tmp_path: Path, low_limit: int) -> None:
    path = tmp_path / "items.csv"
    path.write_bytes(gzip.compress(b"item,name\n" + b"1,x\n" * (SIZE // 4)))
    with pytest.raises(DataError, match=r"data\.max_unpacked"):
        read_about(path, "item", DataConfig())


def test_the_default_limit_depends_on_the_size_and_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(packed, "_memory", lambda: 8 << 30)
    assert most_unpacked(100) == packed.ALWAYS_ALLOWED == 1 << 28
    assert most_unpacked(10 << 20) == 200 * (10 << 20)
    assert most_unpacked(1 << 30) == 4 << 30
    assert most_unpacked(100, gigabytes=2.5) == 2_500_000_000
