"""Slow references of the simple models: dense matrices and loops in float64."""

import numpy as np

from tests.graph.oracles_graph import Matrix, largest, normalized


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
    """W [I, I], cosine with shrinkage, the nearest neighbors of each column."""
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


def ridge(r: Matrix, num_predictors: int, l2: float, dropout: float) -> Matrix:
    """B [I, I], one ridge regression of each item on its nearest items by cosine."""
    num_items = r.shape[1]
    degrees = (r**2).sum(axis=0)  # of ones: the number of users
    b = np.zeros((num_items, num_items))
    for j in range(num_items):
        cosines = np.zeros(num_items)
        for i in range(num_items):
            common = (r[:, i] * r[:, j]).sum()
            if i != j and common:
                cosines[i] = common / np.sqrt(degrees[i] * degrees[j])
        near = np.flatnonzero(largest(cosines, num_predictors))
        x = r[:, near]
        penalty = np.diag(l2 + dropout * degrees[near])
        b[near, j] = np.linalg.solve(x.T @ x + penalty, x.T @ r[:, j])
    return b
