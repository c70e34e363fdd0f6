"""Whole Parquet files pass the check, whoever wrote them; files that would end polars do not."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from mgformer.data.formats.parquet import opened_parquet
from mgformer.data.formats.parquet_check import check_parquet
from mgformer.errors import DataError

TABLE = pl.DataFrame(
    {
        "id": [f"user {n}" for n in range(3_000)],
        "few": np.arange(3_000) % 7,
        "list": [[1, 2] if n % 3 else None for n in range(3_000)],
        "flag": [True] * 3_000,
        "moment": pl.Series([0] * 3_000).cast(pl.Datetime),
    }
)


def written(table: pl.DataFrame, **options: Any) -> bytes:
    stream = io.BytesIO()
    table.write_parquet(stream, **options)
    return stream.getvalue()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"compression": "uncompressed", "statistics": False},
        {"compression": "snappy", "row_group_size": 100},
        {"compression": "gzip", "data_page_size": 500, "statistics": "full"},
        {"use_pyarrow": True},
        {"use_pyarrow": True, "pyarrow_options": {"data_page_version": "2.0"}},
        {"use_pyarrow": True, "pyarrow_options": {"use_dictionary": False}},
        {"use_pyarrow": True, "pyarrow_options": {"write_page_index": True}},
    ],
)
def test_whole_files_pass(options: dict[str, Any]) -> None:
    for table in (TABLE, TABLE.head(1), TABLE.head(0)):
        check_parquet(written(table, **options), most_rows=3_000)
    with pytest.raises(ValueError, match="3000 rows, expected at most 2999"):
        check_parquet(written(TABLE, **options), most_rows=2_999)


def test_a_negative_number_of_values_is_refused(tmp_path: Path) -> None:
    # polars would ask for 2⁶¹ bytes, and the process would end.
    table = pl.DataFrame({"user": [f"u{n}" for n in range(10)], "item": list(range(10))})
    content = bytearray(written(table))
    zigzag = 20  # the number 10 as the header of a page has it
    places = [at for at in range(4, len(content) - 8) if content[at] == zigzag]
    refused = 0
    for at in places:
        changed = bytearray(content)
        changed[at] = 121  # -61
        try:
            check_parquet(bytes(changed))
        except ValueError:
            refused += 1
            (tmp_path / "table.parquet").write_bytes(changed)
            with (
                pytest.raises(DataError, match="expected a Parquet file"),
                opened_parquet(tmp_path / "table.parquet"),
            ):
                pass
    assert refused >= 4  # two pages of each column: its dictionary, and its values


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1PAR1", b"PAR1" + bytes(20) + b"PAR1"])
def test_other_files_are_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"Parquet|header"):
        check_parquet(content)


def test_headers_cannot_make_the_check_run_away() -> None:
    def with_footer(footer: bytes) -> bytes:
        return b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1"

    endless = b"\xff" * 9 + b"\x7f"
    for footer in (
        b"\x19\xfc" + endless,
        b"\x1c" * 5_000,
        b"\x16" + b"\xff" * 40,
        b"\x18" + endless,
    ):
        with pytest.raises(ValueError, match="header"):
            check_parquet(with_footer(footer))
