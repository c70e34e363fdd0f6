"""External ids and their contiguous internal numbers.

An external id is a string or an integer from the user's file. Its internal number is its position
among the sorted ids. So numbers do not depend on the order of rows, and a binary search replaces a
dictionary.
"""

import difflib
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.dtypes import StringDType
from numpy.typing import NDArray

from mgformer.errors import DataError

ExternalId = str | int
MAX_INTEGER = 2**63 - 1
FEW = 16
"""Ids are looked up one by one if more than this many ids are known for each of them: a request for
one user must not take as long as a request for all users."""
NEIGHBORS = 100
"""Number of ids before and after an unknown id that are compared with it."""
LONGEST = 64
"""Maximum length of an unknown id that gets suggestions."""


class Ids:
    """Distinct external ids in ascending order; the position is the internal number."""

    def __init__(self, values: pl.Series) -> None:
        assert values.dtype in (pl.String, pl.Int64), values.dtype
        self.values = values
        self._sorted: Any = values if self.are_text else values.to_numpy()  # for lookups one by one

    def __len__(self) -> int:
        return len(self.values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ids) and self.values.equals(other.values)

    __hash__ = None  # type: ignore[assignment]

    @property
    def are_text(self) -> bool:
        """Whether ids are strings rather than integers."""
        return self.values.dtype == pl.String

    def decode(self, numbers: NDArray[np.integer] | Sequence[int]) -> pl.Series:
        """Return the external ids of internal numbers."""
        return self.values.gather(pl.Series(np.asarray(numbers, dtype=np.int64)))

    def encode(self, ids: pl.Series | Sequence[ExternalId]) -> NDArray[np.int32]:
        """Return the internal numbers of external ids, -1 for unknown ids.

        Integers may be given as text, because command lines and URLs give text.
        """
        if isinstance(ids, pl.Series):
            wanted = ids
        elif self.are_text and len(ids) * FEW < len(self):
            return np.array([self._find(str(one)) for one in ids], dtype=np.int32)
        else:
            wanted = pl.Series([str(i) for i in ids], dtype=pl.String)
        wanted = wanted.cast(self.values.dtype, strict=False)
        if not len(self) or not len(wanted):
            return np.full(len(wanted), -1, dtype=np.int32)
        if self.are_text:
            table = pl.DataFrame({"id": self.values}).with_row_index("number")
            asked_for = pl.DataFrame({"id": wanted})
            found = asked_for.join(table, on="id", how="left", maintain_order="left")
            return found["number"].cast(pl.Int32).fill_null(-1).to_numpy()
        known = self.values.to_numpy()
        asked = wanted.fill_null(0).to_numpy()
        places = np.minimum(np.searchsorted(known, asked), len(known) - 1)
        hit = (known[places] == asked) & wanted.is_not_null().to_numpy()
        return np.where(hit, places, -1).astype(np.int32)

    def split(self, text: str) -> list[str]:
        """Return the ids in a text that separates them by commas.

        Ids may contain commas: from left to right, the longest known id wins.
        """
        if self.encode([text])[0] >= 0:
            return [text]
        commas = self.values.str.count_matches(",").to_numpy() if self.are_text else np.zeros(0)
        longest = 1 + int(commas.max(initial=0))
        parts, found = text.split(","), []
        while parts:
            counts = range(1, min(longest, len(parts)) + 1)
            readings = [",".join(parts[:count]).strip() for count in counts]
            known = np.flatnonzero(self.encode(readings) >= 0)
            last = int(known[-1]) if len(known) else 0
            found.append(readings[last])
            del parts[: last + 1]
        return [one for one in found if one]

    def closest(self, wanted: ExternalId, most: int = 3) -> list[str]:
        """Return known ids that resemble `wanted`, best first."""
        # difflib is slow, more so for long text. A service must not spend the time of hundreds of
        # requests on one mistyped id, so only ids next to it in the sorted order are compared.
        if len(str(wanted)) > LONGEST:
            return []
        try:
            place = bisect_left(self._sorted, str(wanted) if self.are_text else int(wanted))
        except ValueError:
            place = 0
        beside = self._sorted[max(0, place - NEIGHBORS) : place + NEIGHBORS]
        return difflib.get_close_matches(str(wanted), map(str, beside), n=most, cutoff=0.5)

    def prepare(self) -> None:
        """Make lookups of single ids several times faster; this needs memory for a copy of them."""
        if self.are_text:
            self._sorted = np.array(self.values.to_list(), dtype=StringDType())

    def _find(self, text: str) -> int:
        place = bisect_left(self._sorted, text)
        return place if place < len(self) and self._sorted[place] == text else -1


def number(column: pl.Series) -> tuple[Ids, NDArray[np.int32]]:
    """Return the sorted ids of a column, and the internal number of each row."""
    if column.null_count():
        row = column.is_null().arg_true()[0]
        raise DataError(f"row {row}: got no {column.name} id, expected an id in every row")
    if column.dtype.is_integer():
        largest = int(column.max() or 0)  # type: ignore[arg-type]
        if largest > MAX_INTEGER:
            raise DataError(
                f"got the {column.name} id {largest}, expected integers up to {MAX_INTEGER}; "
                "write larger ids as text"
            )
        return _number_integers(column.cast(pl.Int64))
    if isinstance(column.dtype, pl.String | pl.Categorical | pl.Enum):
        return _number_text(column.cast(pl.String))
    raise DataError(
        f"got a column of {column.dtype} as {column.name} ids, expected text or whole numbers"
    )


def _number_text(column: pl.Series) -> tuple[Ids, NDArray[np.int32]]:
    """Number strings by their hashes, which is three times as fast as a join or a categorical."""
    num_distinct: int = column.to_frame().select(pl.first().approx_n_unique()).item()
    owners = _owners(column.hash().to_numpy(), bits=num_distinct.bit_length() + 2)
    examples = np.flatnonzero(owners == np.arange(len(column)))
    names = column.gather(examples).rename("id")
    order = names.arg_sort().to_numpy()
    ids = Ids(names.gather(order))
    rank = np.empty(len(column), dtype=np.int32)
    rank[examples[order]] = np.arange(len(order), dtype=np.int32)
    numbers = rank[owners]
    # Different strings hardly ever have equal 64-bit hashes; if they do, a join numbers them.
    if not (ids.decode(numbers) == column).all():
        ids = Ids(column.unique().sort().rename("id"))
        numbers = ids.encode(column)
    return ids, numbers


def _owners(hashes: NDArray[np.uint64], bits: int) -> NDArray[np.int32]:
    """Return for each row one row that has the same hash: the same one for all of them.

    A hash table of 2^bits slots is filled with array operations. The last row that writes to a slot
    owns it. Rows with another hash in that slot go to the next round, with their hashes mixed.
    """
    owners = np.empty(len(hashes), dtype=np.int32)
    left, mixed = np.arange(len(hashes), dtype=np.int32), hashes
    while len(left):
        slots = (mixed >> np.uint64(64 - bits)).view(np.int64)
        table = np.empty(1 << bits, dtype=np.int32)
        table[slots] = left
        owners[left] = table[slots]
        unplaced = np.flatnonzero(hashes[owners[left]] != hashes[left])
        left, mixed = left[unplaced], mixed[unplaced] * np.uint64(0x9E3779B97F4A7C15)
    return owners


def _number_integers(column: pl.Series) -> tuple[Ids, NDArray[np.int32]]:
    distinct = column.unique().sort()
    known, values = distinct.to_numpy(), column.to_numpy()
    # In a dense range of ids a table is faster than a binary search. The span is a Python integer
    # because it can exceed 64 bits.
    span = int(known[-1]) - int(known[0]) + 1 if len(known) else 0
    if 0 < span <= 8 * len(values) + 1_000_000:
        table = np.empty(span, dtype=np.int32)
        table[known - known[0]] = np.arange(len(known), dtype=np.int32)
        return Ids(distinct.rename("id")), table[values - known[0]]
    return Ids(distinct.rename("id")), np.searchsorted(known, values).astype(np.int32)
