"""Attributes of items and users in the files of a bundle: columns beside the ids, and their kinds.

The manifest says what each column holds. Nothing is used before its type and its values are
checked.
"""

from collections.abc import Mapping
from typing import Any

import polars as pl

from mgformer.data.attributes import NAME, Attribute, Attributes, Kind
from mgformer.data.ids import Ids
from mgformer.runs.bundle_check import LARGEST, refuse_table
from mgformer.runs.bundle_manifest import Column

ID = "id"
_TYPES: dict[Kind, tuple[Any, ...]] = {
    "category": (pl.String,),
    "text": (pl.String,),
    "categories": (pl.List(pl.String),),
    "number": (pl.Int64, pl.Float64),
    "date": (pl.Date, pl.Datetime("us")),
    "flag": (pl.Boolean,),
}


def packed(ids: Ids, about: Attributes) -> tuple[pl.DataFrame, dict[str, Any]]:
    """Return the table of ids and attributes, and what the manifest says about its columns."""
    columns = [own.values.alias(_stored(name)) for name, own in about.items()]
    kinds = {_stored(name): {"kind": a.kind, "private": a.private} for name, a in about.items()}
    return pl.DataFrame([ids.values.alias(ID), *columns]), kinds


def attributes_of(table: pl.DataFrame, kinds: Mapping[str, Column], source: str) -> Attributes:
    """Return the attributes of a table, checked. A name needs no kind, as in older bundles."""
    known = {NAME: Column(kind="text"), **kinds}
    found = {}
    for name in table.columns:
        if name == ID:
            continue
        if name not in known:
            refuse_table(source, f"the column {name!a}", "columns that the manifest describes")
        _check(table[name], known[name].kind, source)
        own = Attribute(known[name].kind, table[name].alias(_shown(name)), known[name].private)
        found[_shown(name)] = own
    for name in kinds:
        if name not in table.columns:
            refuse_table(source, "columns without", f"a column {name!a}")
    return Attributes(found)


def _check(column: pl.Series, kind: Kind, source: str) -> None:
    dtype = column.dtype
    if kind == "embedding":
        if not isinstance(dtype, pl.Array) or dtype.inner != pl.Float32:
            refuse_table(source, f"{dtype} in the column {column.name!a}", "arrays of float32")
        _check_numbers(column.drop_nulls().explode(), source)
    elif dtype not in _TYPES[kind]:
        expected = " or ".join(map(str, _TYPES[kind]))
        refuse_table(source, f"{dtype} in the column {column.name!a}", expected)
    elif dtype == pl.Float64:
        _check_numbers(column.drop_nulls(), source, most=float("inf"))


def _check_numbers(values: pl.Series, source: str, most: float = LARGEST) -> None:
    if values.null_count() or not (values.is_finite() & (values.abs() <= most)).all():
        refuse_table(source, f"a number in the column {values.name!a}", "finite ones")


def _stored(name: str) -> str:
    """Return the name of a column in the file, where `id` is that of the ids."""
    return f"{name}_" if name.rstrip("_") == ID else name


def _shown(name: str) -> str:
    return name.removesuffix("_") if name.rstrip("_") == ID else name
