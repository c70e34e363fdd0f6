"""Attributes as numbers, for models that predict from them: one sparse row per item or user.

A category is one channel, several categories are several. Numbers and dates are piecewise linear:
each lies between two of their quantiles and has a share of both. Words of free text are weighted by
how rare they are, also those of names. A missing value has no channels of its column. Private
attributes are left out, because predictions would tell them.

Shapes: n items or users, F channels.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import polars as pl
import scipy.sparse as sp
from numpy.typing import NDArray

from mgformer.data.attributes import Attribute, Attributes

MOST_VALUES = 1_000
"""Channels of one column: the most frequent categories or words."""
FEWEST = 2
"""Rows that a category or a word must have: one that occurs once predicts nothing."""
KNOTS = 8
"""Quantiles of a number."""


class Features(NamedTuple):
    """A table as numbers."""

    table: sp.csr_array
    """[n, F] with a channel of ones first."""
    doubtful: NDArray[np.bool_]
    """[F] channels that often tell nothing: words of text, as those of names."""

    def of(self, rows: NDArray[np.integer]) -> "Features":
        """Return the features of some rows."""
        return Features(sp.csr_array(self.table[rows]), self.doubtful)

    def scaled(self, factor: float) -> sp.csr_array:
        """Return the table with doubtful channels times the factor, or without them if it is 0."""
        if factor == 0:
            return sp.csr_array(self.table[:, np.flatnonzero(~self.doubtful)])
        scales = np.where(self.doubtful, np.float32(factor), np.float32(1))
        return sp.csr_array(self.table.multiply(scales[None]))


def features_of(about: Attributes, size: int) -> Features:
    """Return the features of a table."""
    about = about.public
    blocks = [sp.csr_array(np.ones((size, 1), dtype=np.float32)), *_blocks(about, size)]
    are_words = [False, *(own.kind == "text" for own in about.values())]
    table = sp.csr_array(sp.hstack(blocks, format="csr", dtype=np.float32))
    return Features(table, np.repeat(are_words, [block.shape[1] for block in blocks]))


def _blocks(about: Attributes, size: int) -> Iterator[sp.csr_array]:
    for own in about.values():
        if own.kind in ("category", "flag"):
            yield _of_sets(own.values.cast(pl.String).to_frame("value").with_row_index("row"), size)
        elif own.kind == "categories":
            table = own.values.to_frame("value").with_row_index("row").explode("value")
            yield _of_sets(table, size)
        elif own.kind in ("number", "date"):
            yield _of_numbers(own)
        elif own.kind == "text":
            yield _of_words(own, size)
        else:
            yield _of_vectors(own)


def _of_sets(table: pl.DataFrame, size: int) -> sp.csr_array:
    """Return a channel for each frequent value of a table with the columns row and value."""
    table = table.drop_nulls().unique(maintain_order=True)
    counts = table["value"].value_counts().filter(pl.col("count") >= FEWEST)
    frequent = counts.sort(["count", "value"], descending=[True, False]).head(MOST_VALUES)
    known = frequent.select("value").with_row_index("channel")
    found = table.join(known, on="value")
    return _sparse(
        np.ones(found.height), found["row"].to_numpy(), found["channel"].to_numpy(),
        (size, known.height),
    )  # fmt: skip


def _of_numbers(own: Attribute) -> sp.csr_array:
    values = own.values.cast(pl.Datetime("us")).to_physical() if own.kind == "date" else own.values
    numbers = values.cast(pl.Float64).to_numpy()
    rows = np.flatnonzero(~np.isnan(numbers))
    known = numbers[rows]
    if not len(known):
        return sp.csr_array((len(numbers), 0), dtype=np.float32)
    knots = np.unique(np.quantile(known, np.linspace(0, 1, KNOTS)))
    if len(knots) == 1:
        return _sparse(np.ones(len(rows)), rows, np.zeros(len(rows)), (len(numbers), 1))
    left = np.clip(np.searchsorted(knots, known, side="right") - 1, 0, len(knots) - 2)
    share = np.clip((known - knots[left]) / (knots[left + 1] - knots[left]), 0, 1)
    return _sparse(
        np.concatenate([1 - share, share]), np.tile(rows, 2), np.concatenate([left, left + 1]),
        (len(numbers), len(knots)),
    )  # fmt: skip


def _of_words(own: Attribute, size: int) -> sp.csr_array:
    words = own.values.str.to_lowercase().str.extract_all(r"[\pL\pN]+")
    table = words.to_frame("value").with_row_index("row").explode("value")
    block = _of_sets(table, size)
    counts = np.diff(block.tocsc().indptr)
    weights = np.log((1 + size) / (1 + counts)).astype(np.float32)
    weighted = sp.csr_array(block.multiply(weights[None]))
    lengths = np.sqrt(weighted.multiply(weighted).sum(1))
    return sp.csr_array(weighted.multiply((1 / np.maximum(lengths, 1e-12))[:, None]))


def _of_vectors(own: Attribute) -> sp.csr_array:
    dtype = own.values.dtype
    assert isinstance(dtype, pl.Array)
    zeros = pl.Series([[0.0] * dtype.size], dtype=dtype)
    table = own.values.zip_with(own.values.is_not_null(), zeros).to_numpy().astype(np.float64)
    scale = np.sqrt((table**2).sum() / max(1, own.values.count()))
    return sp.csr_array((table / max(float(scale), 1e-12)).astype(np.float32))


def _sparse(
    values: NDArray[np.float64],
    rows: NDArray[np.generic],
    columns: NDArray[np.generic],
    shape: tuple[int, int],
) -> sp.csr_array:
    places = (rows.astype(np.int64), columns.astype(np.int64))
    return sp.csr_array((values.astype(np.float32), places), shape=shape)
