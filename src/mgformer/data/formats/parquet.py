"""Read Parquet files."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import polars as pl

from mgformer.data.formats.checks import check_columns
from mgformer.data.formats.columns import find_columns
from mgformer.data.formats.packed import is_packed, most_unpacked, read_bytes, too_large
from mgformer.data.formats.parquet_check import TooLargeError, check_parquet
from mgformer.data.formats.reading import IN_TABLE, Reading
from mgformer.data.formats.values import POLARS_ERRORS, first_line
from mgformer.data.options import DataConfig
from mgformer.errors import DataError, MgformerError

ROW_BYTES = 32
"""Bytes of a row in memory: a user, an item, a time and a rating or weight."""


def read_parquet(path: Path, options: DataConfig) -> tuple[pl.DataFrame, Reading]:
    """Read the columns of users, items, times, ratings and weights of a Parquet file."""
    reading = Reading(str(path), form=IN_TABLE, skip=options.on_error == "skip")
    with opened_parquet(path, options.max_unpacked) as table:
        columns = find_columns(table.collect_schema().names(), options, str(path), reading)
        # By position, because polars takes names such as "^user$" for patterns.
        chosen = table.select(pl.nth(at).alias(role) for role, at in columns.items())
        frame = chosen.collect()
    return check_columns(frame, options, reading), reading


@contextmanager
def opened_parquet(path: Path, gigabytes: float | None = None) -> Iterator[pl.LazyFrame]:
    """Yield the table of a file; what polars says about a damaged file becomes a DataError.

    A file whose pages unpack to more than `gigabytes`, or more than `most_unpacked`, is refused.
    """
    most = most_unpacked(path.stat().st_size, gigabytes)
    try:
        source: io.BytesIO | Path = path
        if is_packed(path):
            source = io.BytesIO(read_bytes(path, gigabytes=gigabytes))
            content = source.getbuffer()
        else:
            content = np.memmap(path, dtype=np.uint8, mode="r").data
        # A page may repeat one value any number of times.
        check_parquet(content, most_rows=most // ROW_BYTES, most_bytes=most)
        yield pl.scan_parquet(source, glob=False)
    except TooLargeError:
        raise too_large(path, most) from None
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
