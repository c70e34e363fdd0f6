"""Read Parquet files."""

from pathlib import Path

import polars as pl

from mgformer.data.formats.columns import check_columns, find_columns
from mgformer.data.options import DataConfig
from mgformer.errors import DataError


def read_parquet(path: Path, options: DataConfig) -> pl.DataFrame:
    """Read the columns of users, items, times, ratings and weights of a Parquet file."""
    try:
        names = list(pl.read_parquet_schema(path))
        columns = find_columns(names, options, str(path))
        frame = pl.read_parquet(path, columns=[names[at] for at in columns.values()])
    except (pl.exceptions.PolarsError, OSError) as error:
        reason = str(error).splitlines()[0]
        raise DataError(f"{path}: got {reason!r}, expected a Parquet file") from None
    frame = frame.select(**{role: pl.col(names[at]) for role, at in columns.items()})
    return check_columns(frame, options, str(path), lambda row: f"{path}: row {row}")
