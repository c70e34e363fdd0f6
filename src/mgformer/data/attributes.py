"""What is known about items or users beside their interactions: names, categories, numbers, ….

Every fact is one column with a kind. Names are the column `name`. Columns are in the order of the
ids they belong to, with null where a value is not known.

Shapes: n items or users.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from mgformer.data.ids import Ids
from mgformer.data.options import AttributeKind

Kind = AttributeKind
Side = Literal["item", "user"]
NAME = "name"


@dataclass(frozen=True, eq=False)
class Attribute:
    """One fact about every item or user."""

    kind: Kind
    values: pl.Series
    """[n] null where it is not known. Text for a category and for free text, lists of text for
    several categories, arrays of float32 for an embedding."""
    private: bool = False
    """For rules only: never shown, and not for the filters of requests."""

    def gather(self, numbers: NDArray[np.integer] | Sequence[int]) -> "Attribute":
        """Return the values at these positions; null at -1."""
        places = pl.Series(np.asarray(numbers, dtype=np.int64))
        return replace(self, values=self.values.gather(places.set(places < 0, None)))


class Attributes(Mapping[str, Attribute]):
    """The columns of a table of items or users, by name. There may be none."""

    def __init__(self, columns: Mapping[str, Attribute] | None = None) -> None:
        self._columns = dict(columns or {})

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__

    def __getitem__(self, name: str) -> Attribute:
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    @cached_property
    def names(self) -> pl.Series | None:
        """[n] name of each item, null where it is not known; None if there are no public names."""
        return self.public[NAME].values if NAME in self.public else None

    @cached_property
    def public(self) -> "Attributes":
        """The columns that may be shown, and by which requests may filter."""
        return Attributes({name: own for name, own in self.items() if not own.private})

    def gather(self, numbers: NDArray[np.integer] | Sequence[int]) -> "Attributes":
        """Return the rows at these positions; a row of nulls at -1."""
        return Attributes({name: own.gather(numbers) for name, own in self.items()})

    def for_ids(self, known: Ids, wanted: Ids) -> "Attributes":
        """Return the rows of other ids, where this table has those of `known`."""
        return self if wanted == known else self.gather(known.encode(wanted.values))


NO_ATTRIBUTES = Attributes()


def names_only(names: pl.Series) -> Attributes:
    """Return attributes that are names and nothing else."""
    return Attributes({NAME: Attribute("text", names.rename(NAME))})


def joined(parts: Sequence[tuple[Ids, Attributes]], wanted: Ids) -> Attributes:
    """Return the attributes of ids from several tables: of the last one that knows a value.

    Columns whose kind differs between tables are those of the last table.
    """
    columns: dict[str, Attribute] = {}
    for known, table in parts:
        for name, own in table.for_ids(known, wanted).items():
            before = columns.get(name)
            if before is not None and before.values.dtype == own.values.dtype:
                own = replace(own, values=_filled(own.values, before.values))
            columns[name] = own
    return Attributes(columns)


def _filled(values: pl.Series, others: pl.Series) -> pl.Series:
    """Return values, and others where they are null."""
    return values.zip_with(values.is_not_null(), others)
