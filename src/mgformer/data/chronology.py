"""What the order of interactions says: recent items of a user, items on the rise, honest splits.

Order means times or, where there are none, the order of the rows in the file.

Shapes: U users, I items, E pairs.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from mgformer.data.interactions import Interactions

RECENT = 0.2
"""Share of the pairs that count as recent."""
SMOOTHING = 5.0
"""Added to both counts of a trend, so that rare items do not seem to rise or fall."""
FEWEST_PAIRS = 50
"""Items with fewer pairs say little about how a split was made."""


@dataclass(frozen=True, eq=False)
class Chronology:
    """The order of training pairs; they must have times or an order."""

    pairs: Interactions

    @cached_property
    def positions(self) -> NDArray[np.float32]:
        """[E] the share of the user's pairs that are not later than this one; 1 for the latest."""
        return positions(self.pairs)

    @cached_property
    def trend(self) -> NDArray[np.float32]:
        """[I] how much more often than expected an item occurs among recent pairs."""
        return trend(self.pairs)

    def histories(self, kappa: float) -> sp.csr_array:
        """Return R [U, I], in which an item at position p counts exp(−κ (1 − p))."""
        matrix = self.pairs.matrix
        weights = recency(self.positions, kappa)
        return sp.csr_array((weights, matrix.indices, matrix.indptr), shape=matrix.shape)


def recency(positions: NDArray[np.float32], kappa: float) -> NDArray[np.float32]:
    """Return exp(−κ (1 − p)): how much items at these positions of a history count."""
    return np.exp(np.float32(-kappa) * (1 - positions), dtype=np.float32)


def positions(pairs: Interactions) -> NDArray[np.float32]:
    """Return for each pair [E] the share of the user's pairs that are not later."""
    order = pairs.order
    assert order is not None
    within = np.lexsort((order, pairs.rows))
    # Pairs of the same moment share the place of the last of them.
    rows, moments = pairs.rows[within], order[within]
    ends = np.append((rows[1:] != rows[:-1]) | (moments[1:] != moments[:-1]), True)[: len(rows)]
    last = np.flatnonzero(ends)
    places = np.repeat(last, np.diff(last, prepend=-1))
    share = np.empty(len(pairs), dtype=np.float32)
    share[within] = (places + 1 - pairs.indptr[rows]) / np.diff(pairs.indptr)[rows]
    return share


def trend(pairs: Interactions) -> NDArray[np.float32]:
    """Return for each item [I] the ratio of its recent pairs to the number expected.

    Recent is the last fifth of all pairs. Without times, the moments of different users cannot be
    compared, so recent is the last fifth of each user's pairs.
    """
    if pairs.times is not None:
        recent = pairs.times > np.quantile(pairs.times, 1 - RECENT, method="lower")
        expected_share = np.full(len(pairs), recent.mean() if len(pairs) else 0.0)
    else:
        recent = positions(pairs) > 1 - RECENT + 1e-6
        counts = np.bincount(pairs.rows, weights=recent, minlength=pairs.num_users)
        expected_share = (counts / np.maximum(np.diff(pairs.indptr), 1))[pairs.rows]
    got, expected = (
        np.bincount(pairs.indices, weights=values, minlength=pairs.num_items)
        for values in (recent, expected_share)
    )
    return ((got + SMOOTHING) / (expected + SMOOTHING)).astype(np.float32)


def dispersion(train: Interactions, test: Interactions) -> float | None:
    """Return how unevenly frequent items fall into test: 1 if at random, more if by time.

    It is the mean of (t − n s)² / (n s (1 − s)) over the items with at least 50 pairs, where t of
    the n pairs of an item are in test, and s is the share that a random split of each user's pairs
    would put there. None if no item is frequent enough.
    """
    sizes = [np.diff(part.indptr) for part in (train, test)]
    shares = sizes[1] / np.maximum(sizes[0] + sizes[1], 1)  # [U]
    both = [(part.indices, shares[part.rows]) for part in (train, test)]
    items = np.concatenate([items for items, _ in both])
    share = np.concatenate([share for _, share in both])
    count, mean, variance = (
        np.bincount(items, weights=weights, minlength=train.num_items)
        for weights in (np.ones_like(share), share, share * (1 - share))
    )
    in_test = np.bincount(test.indices, minlength=train.num_items)
    frequent = (count >= FEWEST_PAIRS) & (variance > 0)
    if not frequent.any():
        return None
    return float(((in_test - mean)[frequent] ** 2 / variance[frequent]).mean())
