"""Graphs with some pairs left out, normalised by the degrees that remain.

Which entry of the adjacency belongs to which pair is found once; a thinned graph is then a
selection of its entries, and nothing is sorted again.

Shapes: U users, I items, N = U + I nodes, E pairs.
"""

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from mgformer.graph.bipartite import Graph, inverse_sqrt


class Thinning:
    """Draws thinned versions of the normalised adjacency [N, N] of a graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        by_item = np.argsort(graph.interactions.indices, kind="stable")
        # Rows of users hold the pairs in their order, rows of items in the order of items.
        self._pairs = np.concatenate([np.arange(len(by_item)), by_item])  # [2E]

    def without_pairs(self, share: float, rng: np.random.Generator) -> sp.csr_array:
        """Return the graph without `share` of its pairs, to the nearest number."""
        count = self.graph.interactions.nnz
        keep = np.ones(count, dtype=bool)
        keep[rng.choice(count, round(share * count), replace=False)] = False
        return self.of_pairs(keep)

    def without_nodes(self, share: float, rng: np.random.Generator) -> sp.csr_array:
        """Return the graph without the pairs of `share` of the users and of the items."""
        r = self.graph.interactions
        users, items = (np.ones(count, dtype=bool) for count in r.shape)
        for side in (users, items):
            side[rng.choice(len(side), round(share * len(side)), replace=False)] = False
        return self.of_pairs(np.repeat(users, self.graph.user_degrees) & items[r.indices])

    def of_pairs(self, keep: NDArray[np.bool_]) -> sp.csr_array:
        """Return the normalised adjacency of the pairs [E] to keep, in the order of the graph."""
        whole = self.graph.adjacency
        kept = keep[self._pairs]
        indptr = np.concatenate([[0], np.cumsum(kept)])[whole.indptr].astype(whole.indptr.dtype)
        indices = whole.indices[kept]
        roots = inverse_sqrt(np.diff(indptr))
        values = np.repeat(roots, np.diff(indptr)) * roots[indices]
        return sp.csr_array((values.astype(np.float32), indices, indptr), shape=whole.shape)
