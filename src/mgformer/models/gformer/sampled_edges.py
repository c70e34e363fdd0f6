"""Random subgraphs drawn by weights of the edges, and random additional edges.

A matrix is a pattern: its stored entries are directed edges, in CSR order. Weights and masks of
edges have the same order. One direction of an edge may be drawn without the other.

Shapes: N nodes, E edges.
"""

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from mgformer.device import HOST
from mgformer.graph.bipartite import Graph, inverse_sqrt
from mgformer.graph.sparse import pattern_of, row_numbers, scaled

Ends = NDArray[np.int32]
"""Rows and columns of edges [2, E]."""


def edges_with_loops(graph: Graph) -> sp.csr_array:
    """Return the pattern [N, N] of the pairs in both directions, with a loop at every node."""
    edges = graph.adjacency
    return with_loops(pattern_of(edges, np.ones(edges.nnz, dtype=bool)))


def drawn_edges(log_weights: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Return a mask [E] of `count` edges drawn without replacement, p ∝ weight.

    The edges with the largest log weight plus Gumbel noise are such a draw. Gumbel noise is minus
    the logarithm of an exponential variable.
    """
    noise = torch.empty(len(log_weights), dtype=torch.float64, device=HOST)
    noise.exponential_(generator=generator)
    chosen = (log_weights.double() - noise.log()).topk(count, sorted=False).indices
    mask = torch.zeros(len(log_weights), dtype=torch.bool, device=HOST)
    mask[chosen] = True
    return mask


def with_loops(pattern: sp.csr_array) -> sp.csr_array:
    """Return A + I; a loop that A has already then counts twice."""
    loops = sp.eye_array(pattern.shape[0], dtype=np.float32, format="csr")
    return sp.csr_array(pattern + loops)


def normalized_by_rows(counts: sp.csr_array) -> sp.csr_array:
    """Return D^(-1/2) A D^(-1/2) of a matrix of counts; D holds the row sums."""
    roots = inverse_sqrt(counts.sum(axis=1).astype(np.int64))
    return scaled(counts, roots, roots)


def with_random_edges(
    pattern: sp.csr_array, share: float, generator: torch.Generator
) -> sp.csr_array:
    """Return the edges plus ⌊share·E⌋ more, in both directions, between ends of random edges."""
    ends = edge_ends(pattern)
    added = _rejoined(ends, int(share * pattern.nnz), generator)
    return _both_ways(added, ends, pattern.shape[0])


def with_rebuilt_edges(
    pattern: sp.csr_array, mask: Tensor, pool_share: float, share: float, generator: torch.Generator
) -> sp.csr_array:
    """Return the kept edges, all loops, and random edges between ends of dropped edges.

    `mask` [E] says which edges are kept. `share` random edges per edge of the pattern are
    added, and their reverses. Their ends are drawn from a pool: those of all dropped edges,
    and of `pool_share` kept edges and loops per dropped edge.
    """
    num_nodes = pattern.shape[0]
    keep = mask.numpy()
    dropped = edge_ends(pattern_of(pattern, ~keep))
    loops = np.tile(np.arange(num_nodes, dtype=np.int32), (2, 1))
    known = np.concatenate([loops, edge_ends(pattern_of(pattern, keep))], axis=1)
    more = _rejoined(known, int(pool_share * dropped.shape[1]), generator)
    pool = np.concatenate([more, dropped], axis=1)
    drawn = _rejoined(pool, int(share * pattern.nnz) if pool.size else 0, generator)
    return _both_ways(drawn, known, num_nodes)


def edge_ends(pattern: sp.csr_array) -> Ends:
    """Return the rows and the columns [2, E] of a pattern."""
    return np.stack([row_numbers(pattern), pattern.indices])


def _rejoined(ends: Ends, count: int, generator: torch.Generator) -> Ends:
    """Draw rows and columns [2, count] of edges independently, with replacement."""
    if not count:
        return ends[:, :0]
    size = (2, count)
    chosen = torch.randint(ends.shape[1], size, generator=generator, device=HOST).numpy()
    return np.take_along_axis(ends, chosen, axis=1)


def _both_ways(added: Ends, edges: Ends, num_nodes: int) -> sp.csr_array:
    """Return the edges, the added ones and their reverses, each once."""
    rows, columns = np.concatenate([added, added[::-1], edges], axis=1)
    ones = np.ones(len(rows), dtype=np.float32)
    pattern = sp.csr_array((ones, (rows, columns)), shape=(num_nodes, num_nodes))
    pattern.data[:] = 1
    return pattern
