"""Interactions: which user interacted with which item, numbered and in CSR order.

Shapes: U users, I items, E pairs.
"""

import hashlib
import logging
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import polars as pl
import scipy.sparse as sp
from numpy.typing import NDArray

from mgformer.data.ids import Ids, number
from mgformer.errors import DataError

log = logging.getLogger("mgformer")


@dataclass(frozen=True, eq=False)
class Interactions:
    """Distinct (user, item) pairs, ordered by user and then by item.

    The parts of a split share `users` and `items`, so numbers mean the same in all parts.
    """

    users: Ids
    items: Ids
    indptr: NDArray[np.int64]
    """[U + 1] user u has the pairs from indptr[u] to indptr[u + 1]."""
    indices: NDArray[np.int32]
    """[E] item of each pair, ascending within a user."""
    times: NDArray[np.int64] | NDArray[np.float64] | None = None
    """[E] time of each pair, in any unit; merged duplicates keep the latest."""
    places: NDArray[np.int64] | None = None
    """[E] place of each pair in its source, if the source is in order of time."""
    weights: NDArray[np.float32] | None = None
    """[E] weight of each pair; merged duplicates are added up."""
    duplicates: int = 0
    """Number of source rows that repeated a pair."""

    @classmethod
    def from_frame(
        cls, frame: pl.DataFrame, users: Ids | None = None, items: Ids | None = None
    ) -> "Interactions":
        """Build from columns `user`, `item` and optionally `time`, `place`, `weight`.

        Pass `users` and `items` to use ids of a larger table, which must contain all ids.
        """
        if users is None or items is None:
            users, rows = number(frame["user"])
            items, columns = number(frame["item"])
        else:
            rows, columns = users.encode(frame["user"]), items.encode(frame["item"])
        times = frame["time"].to_numpy() if "time" in frame.columns else None
        places = frame["place"].to_numpy() if "place" in frame.columns else None
        weights = frame["weight"].cast(pl.Float32).to_numpy() if "weight" in frame.columns else None
        pairs = cls.from_numbers(users, items, rows, columns, times, weights, places)
        if pairs.duplicates:
            log.info("merged %d duplicate pairs of %d rows", pairs.duplicates, len(rows))
        return pairs

    @classmethod
    def from_numbers(
        cls,
        users: Ids,
        items: Ids,
        rows: NDArray[np.int32],
        columns: NDArray[np.int32],
        times: NDArray[np.int64] | NDArray[np.float64] | None = None,
        weights: NDArray[np.float32] | None = None,
        places: NDArray[np.int64] | None = None,
    ) -> "Interactions":
        """Build from numbered pairs in any order; duplicates are merged."""
        width = max(len(items), 1)
        keys = rows.astype(np.int64) * width + columns
        keys, order = _sorted_with_order(keys, highest=len(users) * width)
        starts = np.flatnonzero(np.diff(keys, prepend=-1))
        if len(starts):
            times, places = (
                None if values is None else np.maximum.reduceat(values.take(order), starts)
                for values in (times, places)
            )
            weights = None if weights is None else _summed(weights.take(order), starts)
        merged = len(keys) - len(starts)
        keys = keys[starts]
        counts = np.bincount(keys // width, minlength=len(users))
        indptr = np.concatenate([[0], np.cumsum(counts)])
        items_of_pairs = (keys % width).astype(np.int32)
        return cls(users, items, indptr, items_of_pairs, times, places, weights, merged)

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def num_users(self) -> int:
        return len(self.users)

    @property
    def num_items(self) -> int:
        return len(self.items)

    @cached_property
    def rows(self) -> NDArray[np.int32]:
        """[E] user of each pair."""
        return np.repeat(np.arange(self.num_users, dtype=np.int32), np.diff(self.indptr))

    @property
    def order(self) -> NDArray[np.int64] | NDArray[np.float64] | None:
        """[E] values that grow with time: times or places; None if no order is known.

        Times are comparable between users, places only within a user.
        """
        return self.places if self.times is None else self.times

    @cached_property
    def strengths(self) -> NDArray[np.float32] | None:
        """[E] weight of each pair, 1 on average: only ratios count. None if all are alike."""
        if self.weights is None or not len(self) or np.ptp(self.weights) == 0:
            return None
        whole = self.weights.astype(np.float64)
        return (whole / whole.mean()).astype(np.float32)

    @property
    def popularity(self) -> NDArray[np.int64] | NDArray[np.float64]:
        """[I] users of each item or, with weights, the sum of their strengths."""
        return np.bincount(self.indices, weights=self.strengths, minlength=self.num_items)

    @cached_property
    def matrix(self) -> sp.csr_array:
        """[U, I] the binary interaction matrix R, float32 with int32 indices."""
        ones = np.ones(len(self), dtype=np.float32)
        shape = (self.num_users, self.num_items)
        return sp.csr_array((ones, self.indices, self.indptr.astype(np.int32)), shape=shape)

    def subset(self, keep: NDArray[np.bool_]) -> "Interactions":
        """Return the pairs where `keep` is true, with the same ids."""
        counts = np.bincount(self.rows[keep], minlength=self.num_users)
        return replace(
            self,
            indptr=np.concatenate([[0], np.cumsum(counts)]),
            indices=self.indices[keep],
            times=None if self.times is None else self.times[keep],
            places=None if self.places is None else self.places[keep],
            weights=None if self.weights is None else self.weights[keep],
            duplicates=0,
        )

    def no_pairs(self) -> "Interactions":
        """Return the same users and items without any pair."""
        return self.subset(np.zeros(len(self), dtype=bool))

    def union(self, other: "Interactions") -> "Interactions":
        """Return the pairs of both; they must share ids and have no pair in common."""
        assert self.users == other.users
        assert self.items == other.items
        both = [(getattr(self, n), getattr(other, n)) for n in ("times", "weights", "places")]
        values = (None if a is None or b is None else np.concatenate([a, b]) for a, b in both)
        rows = np.concatenate([self.rows, other.rows])
        indices = np.concatenate([self.indices, other.indices])
        merged = Interactions.from_numbers(self.users, self.items, rows, indices, *values)
        if merged.duplicates:
            raise DataError(
                f"got {merged.duplicates:,} pairs that are in two parts, expected each pair in one"
            )
        return merged

    def within(self, other: "Interactions") -> NDArray[np.bool_]:
        """[E] whether `other` has each of these pairs too; they must share ids."""
        assert self.users == other.users
        assert self.items == other.items
        width = max(self.num_items, 1)
        mine, theirs = (p.rows.astype(np.int64) * width + p.indices for p in (self, other))
        found: NDArray[np.bool_] = np.isin(mine, theirs)
        return found

    def renumbered(self, users: Ids, items: Ids) -> "Interactions":
        """Return the pairs with other ids; pairs of users or items without an id are left out."""
        rows = users.encode(self.users.values)[self.rows]
        columns = items.encode(self.items.values)[self.indices]
        known = (rows >= 0) & (columns >= 0)
        return Interactions.from_numbers(
            users,
            items,
            rows[known],
            columns[known],
            None if self.times is None else self.times[known],
            None if self.weights is None else self.weights[known],
            None if self.places is None else self.places[known],
        )

    def items_of(self, user: int) -> NDArray[np.int32]:
        """Return the items of one user, ascending."""
        return self.indices[self.indptr[user] : self.indptr[user + 1]]

    def core(self, k: int) -> "Interactions":
        """Return the k-core: drop users and items with fewer than `k` pairs until all have `k`.

        Ids without pairs are dropped as well.
        """
        keep = np.ones(len(self), dtype=bool)
        while True:
            user_degrees = np.bincount(self.rows[keep], minlength=self.num_users)
            item_degrees = np.bincount(self.indices[keep], minlength=self.num_items)
            still = keep & (user_degrees[self.rows] >= k) & (item_degrees[self.indices] >= k)
            if still.sum() == keep.sum():
                return self.subset(keep).compact()
            keep = still

    def compact(self) -> "Interactions":
        """Return the same pairs without the users and items that have no pairs."""
        user_degrees = np.diff(self.indptr)
        has_users = np.bincount(self.indices, minlength=self.num_items) > 0
        new_numbers = np.cumsum(has_users, dtype=np.int32) - 1
        return replace(
            self,
            users=Ids(self.users.values.filter(user_degrees > 0)),
            items=Ids(self.items.values.filter(has_users)),
            indptr=np.concatenate([[0], np.cumsum(user_degrees[user_degrees > 0])]),
            indices=new_numbers[self.indices].astype(np.int32),
        )

    @cached_property
    def fingerprint(self) -> str:
        """Counts and a hash of ids and pairs; it does not depend on the order of rows."""
        digest = hashlib.sha256()
        for ids in (self.users, self.items):
            text = ids.values.cast(pl.String)
            digest.update(text.str.len_bytes().to_numpy().astype("<u4").tobytes())
            digest.update("".join(text).encode())
        digest.update(self.indptr.astype("<i8").tobytes())
        digest.update(self.indices.astype("<i4").tobytes())
        return f"{self.num_users}x{self.num_items}-{len(self)}-{digest.hexdigest()[:12]}"


def _summed(weights: NDArray[np.float32], starts: NDArray[np.int64]) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):
        sums: NDArray[np.float32] = np.add.reduceat(weights, starts)
    if not np.isfinite(sums).all():
        raise DataError(
            "got weights of a repeated pair that add up to more than 3.4e38, the largest number of "
            "32 bits, expected less; divide the weights, or ignore them with --set data.weight=''"
        )
    return sums


def _sorted_with_order(
    keys: NDArray[np.int64], highest: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the sorted keys and the position of each; equal keys keep their order."""
    bits = len(keys).bit_length()
    if highest.bit_length() + bits > 63:
        order = np.argsort(keys, kind="stable")
        return keys[order], order
    # Key and position packed into one number: sorting values is several times faster than argsort.
    packed = keys << bits
    packed |= np.arange(len(keys))
    packed.sort()
    return packed >> bits, packed & ((1 << bits) - 1)
