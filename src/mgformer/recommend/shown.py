"""Attributes as answers show them: public ones only, as values that JSON has."""

from collections.abc import Sequence
from datetime import date
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from mgformer.data.attributes import NAME, Attribute, Attributes
from mgformer.errors import ConfigError, did_you_mean

TOP_VALUES = 30
"""Categories that the description of a column lists."""


def shown_attributes(about: Attributes, wanted: bool | Sequence[str]) -> Attributes:
    """Return the attributes that an answer has: all, or some by name.

    Names of items are in every answer, and embeddings are too long.
    """
    known = {n: a for n, a in about.public.items() if n != NAME and a.kind != "embedding"}
    if isinstance(wanted, bool):
        return Attributes(known if wanted else {})
    for name in wanted:
        if name not in known:
            listed = ", ".join(known) or "none, because there are no attributes"
            raise ConfigError(
                f"attributes: got {name!r}, expected some of: {listed}{did_you_mean(name, known)}"
            )
    return Attributes({name: known[name] for name in wanted})


def rows_of(about: Attributes, numbers: NDArray[np.integer]) -> list[dict[str, Any]]:
    """Return the attributes of some items, one mapping for each."""
    columns = {name: own.gather(numbers).values.to_list() for name, own in about.items()}
    return [
        {name: _plain(values[row]) for name, values in columns.items()}
        for row in range(len(numbers))
    ]


def described(about: Attributes) -> list[dict[str, Any]]:
    """Describe each public column: its kind, its range, its most frequent categories."""
    return [
        {"name": name, "kind": own.kind, "missing": own.values.null_count(), **_facts(own)}
        for name, own in about.public.items()
    ]


def _facts(own: Attribute) -> dict[str, Any]:
    if own.kind in ("number", "date"):
        return {"min": _plain(own.values.min()), "max": _plain(own.values.max())}
    if own.kind not in ("category", "categories", "flag"):
        return {}
    values = own.values.explode() if own.kind == "categories" else own.values
    counts = values.drop_nulls().alias("value").value_counts().sort(
        ["count", "value"], descending=[True, False]
    )  # fmt: skip
    top = counts.head(TOP_VALUES).to_dicts()
    return {"distinct": counts.height, "values": top}


def _plain(value: object) -> object:
    """Return a value as JSON has it."""
    if isinstance(value, pl.Series):
        return value.to_list()
    return value.isoformat() if isinstance(value, date) else value
