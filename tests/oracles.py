"""Slow, obvious references: dense matrices, loops, float64."""

import math
from collections.abc import Callable

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from mgformer.ranking.scorers import Scorer

Matrix = NDArray[np.float64]


def normalized(r: Matrix) -> Matrix:
    """D_u^(-1/2) R D_i^(-1/2), entry by entry."""
    result = np.zeros(r.shape)
    for u in range(r.shape[0]):
        for i in range(r.shape[1]):
            if r[u, i]:
                result[u, i] = r[u, i] / np.sqrt(r[u].sum() * r[:, i].sum())
    return result


def normalized_adjacency(r: Matrix) -> Matrix:
    """D^(-1/2) A D^(-1/2) of the bipartite graph, entry by entry."""
    num_users, num_items = r.shape
    a = np.zeros((num_users + num_items, num_users + num_items))
    for u in range(num_users):
        for i in range(num_items):
            a[u, num_users + i] = a[num_users + i, u] = r[u, i]
    degrees = a.sum(axis=1)
    for x in range(len(a)):
        for y in range(len(a)):
            if a[x, y]:
                a[x, y] /= np.sqrt(degrees[x] * degrees[y])
    return a


def largest(values: Matrix, k: int) -> Matrix:
    """The k largest positive values, the earlier first among equals; zero elsewhere."""
    order = sorted(range(len(values)), key=lambda j: (-values[j], j))
    kept = np.zeros(len(values))
    for j in order[:k]:
        kept[j] = max(values[j], 0.0)
    return kept


def weighted(r: Matrix, weighting: str) -> Matrix:
    """R with TF-IDF or BM25 weights; an item is a document, its users the words."""
    result = np.zeros(r.shape)
    degrees, mean = r.sum(axis=0), r.sum(axis=0).mean()
    for u in range(r.shape[0]):
        rarity = np.log((1 + r.shape[1]) / (1 + r[u].sum()))
        for i in range(r.shape[1]):
            term = r[u, i]
            if weighting == "bm25" and r[u, i]:
                term = term * 2.2 / (1.2 * (0.25 + 0.75 * degrees[i] / mean) + term)
            result[u, i] = r[u, i] if weighting == "none" else term * rarity
    return result


def itemknn(r: Matrix, num_neighbors: int, shrink: float, weighting: str = "none") -> Matrix:
    """W [I, I], cosine with shrinkage, the nearest neighbours of each column."""
    x = weighted(r, weighting)
    num_items = r.shape[1]
    w = np.zeros((num_items, num_items))
    for j in range(num_items):
        for i in range(num_items):
            common = sum(x[u, j] * x[u, i] for u in range(r.shape[0]))
            if i != j and common > 0:
                lengths = np.sqrt((x[:, j] ** 2).sum()) * np.sqrt((x[:, i] ** 2).sum())
                w[j, i] = common / (lengths + shrink)
    return np.stack([largest(w[:, i], num_neighbors) for i in range(num_items)], axis=1)


def rp3beta(r: Matrix, num_neighbors: int, alpha: float, beta: float) -> Matrix:
    """W [I, I], cut by row, scaled by row, cut by column."""
    num_users, num_items = r.shape
    w = np.zeros((num_items, num_items))
    for i in range(num_items):
        for j in range(num_items):
            for u in range(num_users):
                if i != j and r[u, i] and r[u, j]:
                    walk = r[:, i].sum() ** -alpha * r[u].sum() ** -alpha
                    w[i, j] += walk * r[:, j].sum() ** -beta
    for i in range(num_items):
        w[i] = largest(w[i], num_neighbors)
        if w[i].sum() > 0:
            w[i] /= w[i].sum()
    return np.stack([largest(w[:, j], num_neighbors) for j in range(num_items)], axis=1)


def ease(r: Matrix, l2: float) -> Matrix:
    """B [I, I], one ridge regression of each item on the others."""
    num_items = r.shape[1]
    b = np.zeros((num_items, num_items))
    for j in range(num_items):
        others = [i for i in range(num_items) if i != j]
        x = r[:, others]
        b[others, j] = np.linalg.solve(x.T @ x + l2 * np.eye(len(others)), x.T @ r[:, j])
    return b


def puresvd(r: Matrix, rank: int, matrix: Matrix) -> Matrix:
    """Scores [U, I]: R projected on the leading right vectors of `matrix`."""
    v = np.linalg.svd(matrix)[2][:rank].T
    return r @ v @ v.T


def gfcf(r: Matrix, rank: int, alpha: float) -> Matrix:
    """Scores [U, I]: linear plus ideal low-pass filter."""
    r_norm, degrees = normalized(r), r.sum(axis=0)
    v = np.linalg.svd(r_norm)[2][:rank].T
    inverse = np.array([d**-0.5 if d > 0 else 0.0 for d in degrees])
    low_pass = np.diag(inverse) @ v @ v.T @ np.diag(np.sqrt(degrees))
    return r @ (r_norm.T @ r_norm) + alpha * r @ low_pass


def ials_objective(
    r: Matrix, users: Matrix, items: Matrix, unobserved_weight: float, l2: float
) -> float:
    """The objective of Rendle et al. (2022), pair by pair."""
    total = 0.0
    for u in range(r.shape[0]):
        for i in range(r.shape[1]):
            score = float(users[u] @ items[i])
            total += r[u, i] * (score - 1) ** 2 + unobserved_weight * score**2
    for u in range(r.shape[0]):
        total += l2 * (r[u].sum() + unobserved_weight * r.shape[1]) * (users[u] @ users[u])
    for i in range(r.shape[1]):
        total += l2 * (r[:, i].sum() + unobserved_weight * r.shape[0]) * (items[i] @ items[i])
    return total


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


def positive_features(x: torch.Tensor, projection: torch.Tensor) -> torch.Tensor:
    """exp(-½‖x‖²) exp(Wx) / √F [n, F], row by row."""
    rows = [torch.exp(projection @ row) * torch.exp(-(row @ row) / 2) for row in x]
    return torch.stack(rows) / math.sqrt(len(projection))


def weighted_means(weights: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Σ_j weights_ij v_j / Σ_j weights_ij [q, D]; zeros where a row has no weights."""
    rows = [
        (row[:, None] * values).sum(0) / row.sum() if row.any() else torch.zeros_like(values[0])
        for row in weights
    ]
    return torch.stack(rows)


def sine_weights(query_angles: torch.Tensor, key_angles: torch.Tensor) -> torch.Tensor:
    """sin(c_i + c_j) [q, n]."""
    return torch.stack([torch.sin(angle + key_angles) for angle in query_angles])


def masked_attention(
    q_features: torch.Tensor,
    k_features: torch.Tensor,
    values: torch.Tensor,
    mask: torch.Tensor | float = 1.0,
) -> torch.Tensor:
    """Attention with weights M_ij φ(q_i)·φ(k_j), all [q, n] of them written out."""
    kernel = (q_features[:, None, :] * k_features[None, :, :]).sum(2)
    return weighted_means(mask * kernel, values)


def alignment(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The mean squared distance of matching rows on the sphere, row by row."""
    total = torch.zeros((), dtype=x.dtype)
    for a, b in zip(x, y, strict=True):
        total = total + (a / a.norm() - b / b.norm()).square().sum()
    return total / len(x)


def uniformity(x: torch.Tensor, t: float) -> torch.Tensor:
    """log of the mean over pairs a < b of exp(-t ‖x_a - x_b‖²) on the sphere, pair by pair."""
    rows = [row / row.norm() for row in x]
    terms = [
        torch.exp(-t * (rows[a] - rows[b]).square().sum())
        for a in range(len(rows))
        for b in range(a + 1, len(rows))
    ]
    return torch.stack(terms).mean().log()


def info_nce(
    a: torch.Tensor, b: torch.Tensor, candidates: torch.Tensor, temperature: float
) -> torch.Tensor:
    """The mean of -log(exp(cos(a_r, b_r) / τ) / Σ_k exp(cos(a_r, c_k) / τ)), row by row."""

    def weight(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.exp(x @ y / (x.norm() * y.norm() * temperature))

    total = torch.zeros((), dtype=a.dtype)
    for x, y in zip(a, b, strict=True):
        everything = torch.stack([weight(x, c) for c in candidates]).sum()
        total = total - torch.log(weight(x, y) / everything)
    return total / len(a)
