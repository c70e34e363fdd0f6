"""Slow references of graphs and sparse matrices, entry by entry in float64."""

import numpy as np
from numpy.typing import NDArray

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
