"""Read interactions that are in memory: polars frames, pandas frames and arrays."""

from typing import TYPE_CHECKING, Any

import polars as pl

from mgformer.data.formats.checks import check_columns
from mgformer.data.formats.columns import find_columns
from mgformer.data.formats.reading import IN_MEMORY, Reading, say
from mgformer.data.formats.values import POLARS_ERRORS, check_values, first_line
from mgformer.data.options import DataConfig
from mgformer.errors import DataError

if TYPE_CHECKING:
    import pandas as pd


def read_frame(
    source: "pl.DataFrame | pd.DataFrame", options: DataConfig | None = None
) -> pl.DataFrame:
    """Return the checked columns of a polars or pandas frame."""
    options = options or DataConfig()
    reading = Reading("data frame", form=IN_MEMORY, skip=options.on_error == "skip")
    if isinstance(source, pl.DataFrame):
        columns = find_columns(source.columns, options, "data frame", reading)
        frame = source.select(**{role: pl.nth(at) for role, at in columns.items()})
    elif hasattr(source, "columns") and hasattr(source, "iloc"):
        columns = find_columns(
            [str(name) for name in source.columns], options, "data frame", reading
        )
        frame = pl.DataFrame(
            {role: _from_pandas(source.iloc[:, at], role, reading) for role, at in columns.items()}
        )
    else:
        raise DataError(
            f"got {type(source).__name__}, expected a path, a polars or pandas frame, "
            "or a tuple of arrays"
        )
    frame = check_columns(frame, options, reading)
    say([reading])
    return frame


def read_arrays(arrays: tuple[Any, ...], options: DataConfig) -> pl.DataFrame:
    """Return the checked columns of arrays (users, items[, times[, weights]])."""
    if not 2 <= len(arrays) <= 4:
        raise DataError(f"got {len(arrays)} arrays, expected users, items[, times[, weights]]")
    # Arrays have a fixed order, so options that name columns do not apply.
    names = ("user", "item", "time", "rating", "weight")
    return read_frame(
        frame_of_arrays(*arrays), options.model_copy(update=dict.fromkeys(names, None))
    )


def frame_of_arrays(users: Any, items: Any, times: Any = None, weights: Any = None) -> pl.DataFrame:
    """Return arrays or lists as columns; they must have equal lengths and one type each."""
    arrays = {"user": users, "item": items, "time": times, "weight": weights}
    given = {name: values for name, values in arrays.items() if values is not None}
    try:
        lengths = {name: len(values) for name, values in given.items()}
    except TypeError:
        raise DataError("got values that have no length, expected arrays or lists") from None
    if len(set(lengths.values())) > 1:
        raise DataError(f"got arrays of different lengths {lengths}, expected one value per pair")
    try:
        return pl.DataFrame(given, strict=True)
    except (*POLARS_ERRORS, TypeError, ValueError, OverflowError) as error:
        raise DataError(
            f"got values of mixed types in one array ({first_line(error)}), expected all text or "
            "all numbers"
        ) from None


def _from_pandas(column: "pd.Series[Any]", role: str, reading: Reading) -> pl.Series:
    if column.dtype != object:
        try:
            return pl.from_pandas(column.reset_index(drop=True).to_frame(role))[role]
        except (*POLARS_ERRORS, TypeError, ValueError, OverflowError, ImportError) as error:
            raise DataError(
                f"{reading.place(0)}: got a {role} column of type {column.dtype} that cannot be "
                f"read ({first_line(error)}), expected text or numbers; convert the column"
            ) from None
    values = [
        None if missing else value
        for value, missing in zip(column.to_list(), column.isna().to_list(), strict=True)
    ]
    return check_values(values, role, reading)
