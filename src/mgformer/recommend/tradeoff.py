"""What diversity costs: NDCG against intra-list diversity and coverage, on validation.

Test is never looked at, so the figures may be used to choose a value for diversity. Lists are made
as in validation: pairs of train are masked, and there are no rules.

Shapes: n users, k places of a list.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from mgformer.progress import phase
from mgformer.ranking import metrics
from mgformer.ranking.evaluation import hits_of
from mgformer.ranking.metrics import SELECTION_K
from mgformer.recommend.query import ListOptions
from mgformer.recommend.reranking import best_items, similarities
from mgformer.runs.bundle import Bundle
from mgformer.runs.rules import NO_RULES

DIVERSITIES = (0.0, 0.1, 0.2, 0.3, 0.5, 0.7)
MOST_USERS = 500
"""Users of the sample that is ranked."""
BLOCK = 50


class Point(NamedTuple):
    """What one value of diversity does to the lists."""

    diversity: float
    ndcg: float
    """NDCG@k on validation."""
    intra_list: float
    """Mean over lists of 1 − the mean similarity of two of their items."""
    coverage: float
    """Share of all items that are in at least one list."""


class Tradeoff(NamedTuple):
    """The lists of a sample of validation users for several values of diversity."""

    points: list[Point]
    k: int
    num_users: int


def tradeoff(
    bundle: Bundle, diversities: Sequence[float] = DIVERSITIES, k: int = SELECTION_K
) -> Tradeoff | None:
    """Measure lists of several values of diversity; None if the bundle has no validation pairs."""
    valid, bundle = bundle.valid, replace(bundle, rules=NO_RULES)
    known = bundle.train.matrix if bundle.history is None else bundle.history.matrix
    able = np.flatnonzero((np.diff(valid.indptr) > 0) & (np.diff(known.indptr) > 0))
    if not len(able):
        return None
    places = np.linspace(0, len(able) - 1, min(MOST_USERS, len(able))).astype(np.int64)
    users, points = able[places], []
    with phase("diversity", len(diversities) * len(users)) as advance:
        for diversity in diversities:
            lists = np.full((len(users), min(k, len(bundle.items))), -1, dtype=np.int32)
            inside: list[float] = []
            for start in range(0, len(users), BLOCK):
                block = slice(start, start + BLOCK)
                lists[block] = _lists(bundle, known, users[block], k, diversity)
                inside += [_difference(bundle, items[items >= 0]) for items in lists[block]]
                advance(len(lists[block]))
            gains = metrics.ndcg(hits_of(valid, users, lists), np.diff(valid.indptr)[users], k)
            points.append(
                Point(
                    diversity,
                    float(gains.mean()),
                    float(np.nanmean(inside)) if np.isfinite(inside).any() else 0.0,
                    metrics.coverage(lists, len(bundle.items)),
                )
            )
    return Tradeoff(points, k, len(users))


def _lists(
    bundle: Bundle, known: sp.csr_array, users: NDArray[np.int64], k: int, diversity: float
) -> NDArray[np.int32]:
    """Return the lists [n, k] of validation."""
    scorer, seen, rows = bundle.scorer, known, users
    if bundle.history is not None:
        seen, rows = sp.csr_array(known[users]), np.arange(len(users))
        scorer = scorer.fold_in(seen)
    options = ListOptions(k=k, diversity=diversity)
    choice = {"candidates": None, "exclude": np.zeros(0, dtype=np.int64), "seen": seen}
    return best_items(bundle, scorer, rows, options, {**choice, "allowed": None}).items


def _difference(bundle: Bundle, items: NDArray[np.int32]) -> float:
    """Return 1 − the mean similarity of two items of a list; not a number if there are no two."""
    return metrics.intra_list_diversity(similarities(bundle, items.tolist()))
