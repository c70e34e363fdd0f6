"""What a trained recommender shows: lists of a sample of users, made as the test makes them.

Shapes: I items, q users asked for, k places of a list.
"""

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from mgformer.ranking.evaluation import GROUPS, popularity_groups
from mgformer.ranking.topk import TopK, top_k
from mgformer.runs.bundle import Bundle

SAMPLED_USERS = 2_000
"""Users, evenly spaced, whose lists are looked at together."""
K = 20
EXAMPLES = (0.15, 0.5, 0.8, 0.97)
"""Places, among users by length of history, of those who are shown as examples."""


class LongTail(NamedTuple):
    """How places in lists, and training pairs, are shared out among items by popularity."""

    items: NDArray[np.float64]
    """[·] shares of the items, the most popular first."""
    trained: NDArray[np.float64]
    """[·] share of the training pairs that these items have."""
    shown: NDArray[np.float64]
    """[·] share of the places of all lists that these items have."""
    groups: dict[str, tuple[float, float, float]]
    """Popularity group → its share of items, of training pairs and of places."""
    num_users: int
    coverage: float
    """Share of the items that are in any list of the sample."""


class Person(NamedTuple):
    """A user with what they had, what was held out, and what they are shown, by number."""

    user: int
    history: NDArray[np.int32]
    held_out: NDArray[np.int32]
    items: NDArray[np.int32]
    scores: NDArray[np.float32]


def lists_for(bundle: Bundle, users: NDArray[np.int64], k: int = K) -> TopK:
    """Rank for users as the test does: what is held out for them may be recommended."""
    scorer, history = bundle.scorer, bundle.history
    seen = _known_before(bundle)
    if history is None:
        return top_k(scorer, users, k, seen=seen)
    rows = sp.csr_array(seen[users])
    return top_k(scorer.fold_in(rows), np.arange(len(users)), k, seen=rows)


def audience(bundle: Bundle) -> NDArray[np.int64]:
    """Return the users who count in the test; all who have anything, if nothing is held out."""
    tested = np.flatnonzero(np.diff(bundle.test.indptr))
    return tested if len(tested) else np.flatnonzero(np.diff(_known_before(bundle).indptr))


def long_tail(bundle: Bundle, num_places: int = 200) -> LongTail | None:
    """Share out the lists of a sample of users among items; None if there is nobody."""
    users = evenly(audience(bundle), SAMPLED_USERS)
    if not len(users):
        return None
    listed = lists_for(bundle, users).items
    degrees = bundle.item_degrees
    places = np.bincount(listed[listed >= 0], minlength=len(degrees))
    order = np.argsort(-degrees, kind="stable")
    counts = np.unique(np.linspace(0, len(order), num_places + 1).astype(int))
    trained, shown = (
        np.concatenate([[0], np.cumsum(of[order])])[counts] / max(of.sum(), 1)
        for of in (degrees, places)
    )
    group_of = popularity_groups(degrees)
    groups = {}
    for number, name in enumerate(GROUPS):
        inside = group_of == number
        groups[name] = (
            float(inside.mean()),
            float(degrees[inside].sum() / max(degrees.sum(), 1)),
            float(places[inside].sum() / max(places.sum(), 1)),
        )
    coverage = float((places > 0).mean())
    return LongTail(counts / len(order), trained, shown, groups, len(users), coverage)


def within_reach(bundle: Bundle) -> dict[str, float]:
    """Return the most that each popularity group could add to recall: what is held out of it."""
    test = bundle.test
    counts = np.diff(test.indptr)
    group_of = popularity_groups(bundle.item_degrees)[test.indices]
    each = 1.0 / counts[test.rows]  # a user's held-out items share one
    tested = max(int((counts > 0).sum()), 1)
    return {
        name: float(each[group_of == number].sum() / tested) for number, name in enumerate(GROUPS)
    }


def examples(bundle: Bundle, k: int = 10) -> list[Person]:
    """Return a few users, from those with a short history to those with a long one."""
    users = audience(bundle)
    if not len(users):
        return []
    before = _known_before(bundle)
    order = users[np.argsort(np.diff(before.indptr)[users], kind="stable")]
    chosen = np.array(list(dict.fromkeys(order[int(q * len(order))] for q in EXAMPLES)))
    found = lists_for(bundle, chosen, k)
    return [
        Person(
            int(user),
            before.indices[before.indptr[user] : before.indptr[user + 1]],
            bundle.test.indices[bundle.test.indptr[user] : bundle.test.indptr[user + 1]],
            items[items >= 0],
            scores[items >= 0],
        )
        for user, items, scores in zip(chosen, *found, strict=True)
    ]


def evenly(numbers: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """Return at most so many of the numbers, evenly spaced."""
    places = np.linspace(0, len(numbers) - 1, min(most, len(numbers)))
    return numbers[places.astype(np.int64)]


def _known_before(bundle: Bundle) -> sp.csr_array:
    """Return [U, I] what is known of users before the test, which masks it."""
    if bundle.history is not None:
        return bundle.history.matrix
    return sp.csr_array(bundle.train.matrix + bundle.valid.matrix)
