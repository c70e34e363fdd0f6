"""The formulas, for many users at once.

A user's ranking is a row of hits: whether the item at each rank is one of the user's held-out
items. n is the number of held-out items, r a rank counted from 1, k the cut-off, h_r the hit at r.

    recall@k         Σ h_r / n
    capped_recall@k  Σ h_r / min(n, k)            the most that a list of k can reach counts as 1
    precision@k      Σ h_r / k                    also where the list is shorter than k
    hitrate@k        1 if any h_r
    mrr@k            1 / (rank of the first hit)
    map@k            Σ h_r · precision@r / n
    ndcg@k           Σ h_r / log2(r + 1)  divided by  Σ_{r ≤ min(n, k)} 1 / log2(r + 1)

All but capped_recall follow trec_eval. Users without held-out items do not count.
docs/reference/metrics.md has a worked example.
"""

import logging
from collections.abc import Callable, Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from mgformer import outside
from mgformer.errors import ConfigError

log = logging.getLogger("mgformer")

Hits = NDArray[np.bool_]  # [U, K], K the length of the lists
Counts = NDArray[np.int64]  # [U]
Values = NDArray[np.float64]  # [U]

SELECTION_K = 20
SELECTION_METRIC = f"ndcg@{SELECTION_K}"
"""What epochs, options and models are chosen by, on validation."""
SELECTION_METRICS = (f"recall@{SELECTION_K}", SELECTION_METRIC)
"""What tables show."""


def recall(hits: Hits, relevant: Counts, k: int) -> Values:
    """Return the share of held-out items found."""
    return hits[:, :k].sum(1) / relevant


def capped_recall(hits: Hits, relevant: Counts, k: int) -> Values:
    """Return the share of held-out items found, of at most k."""
    return hits[:, :k].sum(1) / np.minimum(relevant, k)


def precision(hits: Hits, relevant: Counts, k: int) -> Values:
    """Return the share of the list that is held out."""
    return hits[:, :k].sum(1) / k


def hit_rate(hits: Hits, relevant: Counts, k: int) -> Values:
    """Return 1 if the list has a hit, else 0."""
    return hits[:, :k].max(1).astype(np.float64)


def reciprocal_rank(hits: Hits, relevant: Counts, k: int) -> Values:
    """Return one over the rank of the first hit, 0 if there is none."""
    found = hits[:, :k]
    first: Values = found.argmax(1) + 1.0
    return found.any(1) / first


def average_precision(hits: Hits, relevant: Counts, k: int) -> Values:
    """Return the mean over held-out items of the precision at their ranks."""
    found = hits[:, :k]
    ranks = np.arange(1, found.shape[1] + 1)
    return (found * found.cumsum(1) / ranks).sum(1) / relevant


def ndcg(hits: Hits, relevant: Counts, k: int) -> Values:
    """Return the discounted gain as a share of the ideal gain."""
    return (hits[:, :k] * discounts(hits.shape[1])[:k]).sum(1) / ideal_gain(relevant, k)


def discounts(length: int) -> NDArray[np.float64]:
    """Return 1 / log2(r + 1) for ranks r = 1 … length."""
    return 1.0 / np.log2(np.arange(2, length + 2))


def ideal_gain(relevant: Counts, k: int) -> Values:
    """Return the gain of a list that starts with all held-out items."""
    most = np.minimum(relevant, k)
    return np.cumsum(discounts(int(most.max())))[most - 1]


Metric = Callable[[Hits, Counts, int], Values]
METRICS: Mapping[str, Metric] = {
    "recall": recall,
    "ndcg": ndcg,
    "precision": precision,
    "hitrate": hit_rate,
    "mrr": reciprocal_rank,
    "map": average_precision,
    "capped_recall": capped_recall,
}


def outside_metrics(names: Iterable[str]) -> dict[str, Metric]:
    """Return metrics `package.module:function` by the names of their functions.

    A metric that the user did not name in this process is left out: its name was read from a file,
    and reading a file must not run code.
    """
    found: dict[str, Metric] = {}
    for name in names:
        metric, short = outside.imported.get(name), name.rpartition(":")[2]
        if metric is None:
            log.info("left out the metric %s, which is not imported; add --metric %s", name, name)
        elif not callable(metric) or short in METRICS:
            raise ConfigError(
                f"evaluation.metrics: {name} must be a function whose name is none of"
                f" {', '.join(METRICS)}"
            )
        else:
            found[short] = metric
    return found


def coverage(items: NDArray[np.int32], num_items: int) -> float:
    """Return the share of items that are in any list; -1 marks an empty place."""
    shown = np.zeros(num_items, dtype=bool)
    shown[items[items >= 0]] = True
    return float(shown.mean())


def gini(items: NDArray[np.int32], num_items: int) -> float:
    """Return how unequally items are recommended: 0 if all alike, near 1 if always the same few."""
    shown = np.sort(np.bincount(items[items >= 0], minlength=num_items))
    total = shown.sum()
    if total == 0:
        return 0.0
    ranks = np.arange(1, num_items + 1)
    return float((2 * ranks - num_items - 1) @ shown / (num_items * total))


def novelty(items: NDArray[np.int32], item_degrees: Counts, num_users: int) -> float:
    """Return the mean self-information -log2(share of users) of recommended items.

    An item without users counts as if it had one.
    """
    shown = items[items >= 0]
    if not len(shown):
        return 0.0
    return float(-np.log2(np.maximum(item_degrees[shown], 1) / num_users).mean())


def intra_list_diversity(alike: NDArray[np.float64]) -> float:
    """Return 1 − the mean similarity [P, P] of two items of a list; NaN if there are no two."""
    size = len(alike)
    if size < 2:
        return float("nan")
    return float(1 - (alike.sum() - np.trace(alike)) / (size * (size - 1)))
