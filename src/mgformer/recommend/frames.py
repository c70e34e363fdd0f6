"""Tables in Python: whoever brings pandas frames gets pandas frames."""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar, Union

import polars as pl

from mgformer.errors import COLUMN_OPTIONS, ConfigError, did_you_mean

if TYPE_CHECKING:
    import pandas as pd
    from typing_extensions import TypeVar as TypeVarWithDefault

    Frame = TypeVarWithDefault("Frame", "pl.DataFrame", "pd.DataFrame", default=pl.DataFrame)
else:
    Frame = TypeVar("Frame")

Source = Union[str, Path, pl.DataFrame, "pd.DataFrame", tuple[Any, ...]]
"""Interactions: a file, a folder, a catalog name, a data frame, or arrays (users, items, …)."""
Column = str | int | Literal[False] | None
"""A column by name or position; False leaves it out, and None lets its name decide."""
FrameKind = Literal["polars", "pandas"]
KINDS: tuple[FrameKind, ...] = ("polars", "pandas")


class FitOptions(TypedDict, total=False):
    """The keywords of `Recommender.fit` but `frame`, for the overloads that depend on `frame`."""

    seed: int
    budget: float | None
    options: Mapping[str, Any] | None
    user: Column
    item: Column
    time: Column
    rating: Column
    weight: Column
    data: Mapping[str, Any] | None
    split: Mapping[str, Any]
    train: Mapping[str, Any]
    score: Mapping[str, Any]
    evaluation: Mapping[str, Any]
    warm_start: str
    progress: bool | None


def frame_kind(asked: str | None, source: object = None) -> FrameKind:
    """Return the kind of frames to answer with: as asked, else as the source is, else polars."""
    if asked is None:
        return "pandas" if type(source).__module__.partition(".")[0] == "pandas" else "polars"
    for kind in KINDS:
        if asked == kind:
            return kind
    raise ConfigError(
        f"frame: got {asked!r}, expected {' or '.join(KINDS)}{did_you_mean(str(asked), KINDS)}"
    )


def as_frame(table: pl.DataFrame, kind: FrameKind) -> Any:
    """Return a table as a frame of this kind."""
    if kind == "polars":
        return table
    try:
        pandas: Any = import_module("pandas")
    except ImportError:
        raise ConfigError(
            "frame='pandas': the package pandas is not installed; pip install pandas"
        ) from None
    # `to_pandas` of polars would need pyarrow.
    columns = {
        column.name: column.to_numpy() if column.dtype.is_numeric() else column.to_list()
        for column in table
    }
    return pandas.DataFrame(columns, columns=table.columns)


def data_section(
    section: Mapping[str, Any] | None, columns: Mapping[str, Column], source: object
) -> dict[str, Any]:
    """Return the options of the section [data], with the columns that are keywords of their own."""
    named = {role: column for role, column in columns.items() if column is not None}
    given = {**(section or {}), **{r: "" if c is False else c for r, c in named.items()}}
    if isinstance(source, tuple) and (wrong := [r for r in COLUMN_OPTIONS if given.get(r)]):
        raise ConfigError(
            f"{wrong[0]}: got {given[wrong[0]]!r}, but arrays have no names; give the arrays in the"
            " order users, items, times, weights, or give a data frame"
        )
    return given
