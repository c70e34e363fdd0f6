"""Read Parquet files."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import polars as pl

from mgformer.data.formats.columns import check_columns, find_columns
from mgformer.data.formats.packed import is_packed, read_bytes
from mgformer.data.formats.parquet_check import check_parquet
from mgformer.data.formats.values import POLARS_ERRORS, first_line
from mgformer.data.options import DataConfig
from mgformer.errors import DataError, MgformerError


def read_parquet(path: Path, options: DataConfig) -> pl.DataFrame:
    """Read the columns of users, items, times, ratings and weights of a Parquet file."""
    with opened_parquet(path) as table:
        columns = find_columns(table.collect_schema().names(), options, str(path))
        # By position, because polars takes names such as "^user$" for patterns.
        chosen = table.select(pl.nth(at).alias(role) for role, at in columns.items())
        frame = chosen.collect()
    return check_columns(frame, options, str(path), lambda row: f"{path}: row {row}")


@contextmanager
def opened_parquet(path: Path) -> Iterator[pl.LazyFrame]:
    """Yield the table of a file; what polars says about a damaged file becomes a DataError."""
    try:
        source: io.BytesIO | Path = path
        if is_packed(path):
            source = io.BytesIO(read_bytes(path))
            check_parquet(source.getbuffer())
        else:
            check_parquet(np.memmap(path, dtype=np.uint8, mode="r").data)
        yield pl.scan_parquet(source, glob=False)
    except MgformerError:
        raise
    # Polars panics over some damaged files, and a panic is no Exception. An OSError without a
    # number is not the system's: the file ended too soon.
    except (*POLARS_ERRORS, OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise DataError(
            f"{path}: got {first_line(error)!r}, expected a Parquet file; it is damaged "
            "or of another format"
        ) from None
