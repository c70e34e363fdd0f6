"""Read more about items or users in the columns that a recommender has, from a file or a frame."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from mgformer.data.attribute_file import YEAR, Rows, Table, column_of, read_about, typed
from mgformer.data.attributes import NAME, Attribute, Attributes, Side
from mgformer.data.formats.values import POLARS_ERRORS
from mgformer.data.options import DataConfig
from mgformer.errors import DataError, did_you_mean

if TYPE_CHECKING:
    import pandas as pd

IN_MEMORY = Path("data frame")
"""What stands for the path of a table that is in memory."""


def read_update(
    source: "Path | pl.DataFrame | pd.DataFrame",
    side: Side,
    known: Attributes,
    options: DataConfig,
) -> Table:
    """Read rows about items or users. Their columns must be among the known ones.

    Args:
        source: A file or a data frame with a column of ids.
        side: What the rows are about.
        known: Attributes that are there. Their kinds are not detected again.
        options: How to read; `kinds` may ignore columns.
    """
    ignored = {name: kind for name, kind in options.kinds.items() if kind == "ignore"}
    kinds = {name: own.kind for name, own in known.items() if name != NAME}
    # A year is taken from names only if the recommender has one.
    years = {} if YEAR in known else {YEAR: "ignore"}
    wanted = options.model_copy(update={"kinds": {**years, **kinds, **ignored}, "private": ()})
    if isinstance(source, Path):
        table = read_about(source, side, wanted)
    else:
        table = typed(_rows_of(source), IN_MEMORY, side, wanted)
    own_year = [YEAR] if years and YEAR in table.header and YEAR not in ignored else []
    for name in [*table.attributes, *own_year]:
        if name not in known:
            raise DataError(
                f"{table.path}: got the column {name!r}, expected columns that the recommender"
                f" knows: {', '.join(known)}{did_you_mean(name, known)}; leave it out with"
                f' data.kinds={{{name} = "ignore"}}'
            )
    return table


def alike(known: Attributes, new: Attributes, source: Path) -> tuple[Attributes, Attributes]:
    """Return both tables with equal types in each column that both have.

    Numbers become floats, and dates become moments, if one of the tables has such.
    """
    before, after = dict(known), dict(new)
    for name, own in new.items():
        old = known[name]
        dtypes = old.values.dtype, own.values.dtype
        if dtypes[0] == dtypes[1]:
            continue
        if not own.values.count():
            after[name] = _cast(own, dtypes[0])
        elif old.kind in ("number", "date"):
            wider = pl.Float64 if old.kind == "number" else pl.Datetime("us")
            before[name], after[name] = _cast(old, wider), _cast(own, wider)
        else:
            sizes = [dtype.size if isinstance(dtype, pl.Array) else dtype for dtype in dtypes]
            raise DataError(
                f"{source}: got {sizes[1]} numbers in the column {name}, expected {sizes[0]} as in"
                " the recommender; make the embeddings by the same model"
            )
    return Attributes(before), Attributes(after)


def _cast(own: Attribute, dtype: Any) -> Attribute:
    if not own.values.count():
        return replace(own, values=pl.Series(own.values.name, [None] * len(own.values), dtype))
    return replace(own, values=own.values.cast(dtype))


def _rows_of(frame: "pl.DataFrame | pd.DataFrame") -> Rows:
    def place(row: int) -> str:
        return f"{IN_MEMORY}: row {row}"

    if isinstance(frame, pl.DataFrame):
        columns: Mapping[str, pl.Series] = {column.name: column for column in frame.get_columns()}
    elif hasattr(frame, "columns") and hasattr(frame, "iloc"):
        names = [str(name) for name in frame.columns]
        columns = {
            name: _from_pandas(frame.iloc[:, n], name, place) for n, name in enumerate(names)
        }
    else:
        raise DataError(f"got {type(frame).__name__}, expected a path, or a polars or pandas frame")
    return Rows(dict(columns), untyped=False, place=place)


def _from_pandas(column: "pd.Series[Any]", name: str, place: Any) -> pl.Series:
    if column.dtype != object:
        try:
            return pl.from_pandas(column.reset_index(drop=True).to_frame(name))[name]
        except (*POLARS_ERRORS, TypeError, ValueError, ImportError):
            column = column.astype(object)
    missing = column.isna().to_list()
    values = [None if m else v for v, m in zip(column.to_list(), missing, strict=True)]
    return column_of(name, values, place)
