"""Slow references of ranking and metrics, user by user."""

import math
from collections.abc import Callable

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from mgformer.ranking.scorers import Scorer


def ranking_by_sorting(
    scorer: Scorer,
    users: NDArray[np.integer],
    k: int,
    seen: sp.csr_array | None = None,
    candidates: object = None,
) -> NDArray[np.int64]:
    """Return the k best unseen items per user by a full sort: score, then number; -1 fills up."""
    allowed = set(range(scorer.num_items)) if candidates is None else set(candidates)  # type: ignore[call-overload]
    lists = np.full((len(users), k), -1)
    for row, user in enumerate(users):
        scores = scorer.scores(torch.tensor([int(user)]))[0].tolist()
        known = set() if seen is None else set(seen[[int(user)]].indices.tolist())
        ranked = sorted(allowed - known, key=lambda item: (-scores[item], item))[:k]
        lists[row, : len(ranked)] = ranked
    return lists


def _dcg(hits: list[bool], k: int) -> float:
    return sum(1 / math.log2(rank + 1) for rank, hit in enumerate(hits[:k], start=1) if hit)


def _average_precision(hits: list[bool], relevant: int, k: int) -> float:
    total = 0.0
    for rank, hit in enumerate(hits[:k], start=1):
        if hit:
            total += sum(hits[:rank]) / rank
    return total / relevant


def _reciprocal_rank(hits: list[bool], relevant: int, k: int) -> float:
    for rank, hit in enumerate(hits[:k], start=1):
        if hit:
            return 1 / rank
    return 0.0


METRICS: dict[str, Callable[[list[bool], int, int], float]] = {
    "recall": lambda hits, relevant, k: sum(hits[:k]) / relevant,
    "capped_recall": lambda hits, relevant, k: sum(hits[:k]) / min(relevant, k),
    "precision": lambda hits, relevant, k: sum(hits[:k]) / k,
    "hitrate": lambda hits, relevant, k: float(any(hits[:k])),
    "mrr": _reciprocal_rank,
    "map": _average_precision,
    "ndcg": lambda hits, relevant, k: _dcg(hits, k) / _dcg([True] * min(relevant, k), k),
}


def gini(shown: list[int]) -> float:
    """Return the mean absolute difference of all pairs over twice the mean."""
    count, mean = len(shown), sum(shown) / len(shown)
    return sum(abs(a - b) for a in shown for b in shown) / (2 * count * count * mean)
