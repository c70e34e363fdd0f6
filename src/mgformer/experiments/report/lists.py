"""The lists that a trained recommender makes for its test users, and what they consist of.

Shapes: I items, q users, k places of a list.
"""

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from mgformer.ranking.evaluation import GROUPS, popularity_groups
from mgformer.ranking.topk import TopK, top_k
from mgformer.runs.bundle import Bundle

K = 20
SAMPLED_USERS = 2_000
EXAMPLE_USERS = (0.15, 0.5, 0.8, 0.97)
"""Quantiles of the history length at which the example users are."""

Values = NDArray[np.float64]


class LongTail(NamedTuple):
    """How recommendations and training pairs are distributed over items, most popular first."""

    items: Values
    """[·] cumulative share of the items."""
    trained: Values
    """[·] share of the training pairs that these items have."""
    recommended: Values
    """[·] share of the places in all lists that these items have."""
    groups: dict[str, tuple[float, float, float]]
    """Popularity group → its share of items, of training pairs and of places."""
    num_users: int
    coverage: float
    """Share of the items that are in at least one list."""


class ExampleUser(NamedTuple):
    """A user with their history, held-out items and recommendations, all by number."""

    user: int
    history: NDArray[np.int32]
    held_out: NDArray[np.int32]
    items: NDArray[np.int32]
    scores: NDArray[np.float32]


def lists_for(bundle: Bundle, users: NDArray[np.int64], k: int = K) -> TopK:
    """Rank for users as the test does: their held-out items may be recommended."""
    seen = _known_before_test(bundle)
    if not _holds_out_users(bundle):
        return top_k(bundle.scorer, users, k, seen=seen)
    rows = sp.csr_array(seen[users])
    return top_k(bundle.scorer.fold_in(rows), np.arange(len(users)), k, seen=rows)


def audience(bundle: Bundle) -> NDArray[np.int64]:
    """Return the users whom the test ranks, or all users with a history if nothing is held out."""
    if not len(bundle.test):
        return np.flatnonzero(np.diff(_known_before_test(bundle).indptr))
    # The test leaves out users without known items.
    known = bundle.train if bundle.history is None else bundle.history
    return np.flatnonzero((np.diff(bundle.test.indptr) > 0) & (np.diff(known.indptr) > 0))


def long_tail(bundle: Bundle, num_places: int = 200) -> LongTail | None:
    """Count the items in the lists of a sample of users; None if there are no users."""
    users = evenly(audience(bundle), SAMPLED_USERS)
    if not len(users):
        return None
    listed, degrees = lists_for(bundle, users).items, bundle.item_degrees
    places = np.bincount(listed[listed >= 0], minlength=len(degrees))
    order = np.argsort(-degrees, kind="stable")
    ends = np.unique(np.linspace(0, len(order), num_places + 1).astype(int))
    ones = np.ones(len(degrees))
    items, trained, recommended = (
        np.concatenate([[0], np.cumsum(counts[order])])[ends] / max(counts.sum(), 1)
        for counts in (ones, degrees, places)
    )
    group_of = popularity_groups(degrees)
    counts_by_group = (np.bincount(group_of, c, len(GROUPS)) for c in (ones, degrees, places))
    shares = [counts / max(counts.sum(), 1) for counts in counts_by_group]
    groups = dict(zip(GROUPS, zip(*(s.tolist() for s in shares), strict=True), strict=True))
    coverage = float((places > 0).mean())
    return LongTail(items, trained, recommended, groups, len(users), coverage)


def best_recall(bundle: Bundle) -> dict[str, float]:
    """Return the recall of finding all held-out items of a popularity group, by group."""
    users, rows = audience(bundle), bundle.test.rows
    counts = np.diff(bundle.test.indptr)
    is_ranked = np.isin(rows, users)
    group_of = popularity_groups(bundle.item_degrees)[bundle.test.indices[is_ranked]]
    share = 1.0 / counts[rows[is_ranked]]  # of one held-out item in the recall of its user
    total = np.bincount(group_of, share, len(GROUPS)) / max(len(users), 1)
    return dict(zip(GROUPS, total.tolist(), strict=True))


def example_users(bundle: Bundle, k: int = 10) -> list[ExampleUser]:
    """Return a few users, from one with a short history to one with a long history."""
    users = audience(bundle)
    if not len(users):
        return []
    before, test = _known_before_test(bundle), bundle.test
    order = users[np.argsort(np.diff(before.indptr)[users], kind="stable")]
    places = dict.fromkeys(int(q * len(order)) for q in EXAMPLE_USERS)
    chosen = order[list(places)]
    return [
        ExampleUser(
            int(user),
            before.indices[before.indptr[user] : before.indptr[user + 1]],
            test.indices[test.indptr[user] : test.indptr[user + 1]],
            items[items >= 0],
            scores[items >= 0],
        )
        for user, items, scores in zip(chosen, *lists_for(bundle, chosen, k), strict=True)
    ]


def evenly(numbers: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """Return at most so many of the numbers, evenly spaced."""
    places = np.linspace(0, len(numbers) - 1, min(most, len(numbers)))
    return numbers[places.astype(np.int64)]


def _holds_out_users(bundle: Bundle) -> bool:
    return bundle.history is not None and not bundle.record.refreshed


def _known_before_test(bundle: Bundle) -> sp.csr_array:
    """Return [U, I] the pairs that the test masks; all pairs if nothing is held out any more."""
    if bundle.record.refreshed:
        return bundle.known
    if bundle.history is not None:
        return bundle.history.matrix
    return sp.csr_array(bundle.train.matrix + bundle.valid.matrix)
