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

from mgformer.graph.bipartite import Graph, inverse_sqrt
from mgformer.graph.sparse import pattern_of, row_numbers, scaled

Nodes = NDArray[np.int32]


def edges_with_loops(graph: Graph) -> sp.csr_array:
    """Return the pattern [N, N] of the pairs in both directions, with a loop at every node."""
    edges = graph.adjacency
    return with_loops(pattern_of(edges, np.ones(edges.nnz, dtype=bool)))


def drawn_edges(log_weights: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Return a mask [E] of `count` edges drawn without replacement, p ∝ weight.

    The edges with the largest log weight plus Gumbel noise are such a draw. Gumbel noise is minus
    the logarithm of an exponential variable.
    """
    noise = torch.empty(len(log_weights), dtype=torch.float64).exponential_(generator=generator)
    chosen = (log_weights.double() - noise.log()).topk(count, sorted=False).indices
    mask = torch.zeros(len(log_weights), dtype=torch.bool)
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
    rows, columns = edge_ends(pattern)
    added = _rejoined(rows, columns, int(share * len(rows)), generator)
    return _both_ways(added, (rows, columns), pattern.shape[0])


def with_rebuilt_edges(
    pattern: sp.csr_array,
    mask: Tensor,
    *,
    pool_share: float,
    share: float,
    generator: torch.Generator,
) -> sp.csr_array:
    """Return the kept edges, all loops, and random edges between ends of dropped edges.

    `mask` [E] says which edges are kept. `share` random edges per edge of the pattern are
    added, and their reverses. Their ends are drawn from a pool: those of all dropped edges,
    and of `pool_share` kept edges and loops per dropped edge.
    """
    num_nodes = pattern.shape[0]
    keep = mask.numpy()
    kept, dropped = edge_ends(pattern_of(pattern, keep)), edge_ends(pattern_of(pattern, ~keep))
    loops = np.arange(num_nodes, dtype=np.int32)
    known = [np.concatenate([loops, ends]) for ends in kept]
    more = _rejoined(known[0], known[1], int(pool_share * len(dropped[0])), generator)
    pool = [np.concatenate(ends) for ends in zip(more, dropped, strict=True)]
    count = int(share * pattern.nnz) if len(pool[0]) else 0
    drawn = _rejoined(pool[0], pool[1], count, generator)
    return _both_ways(drawn, (known[0], known[1]), num_nodes)


def edge_ends(pattern: sp.csr_array) -> tuple[Nodes, Nodes]:
    """Return rows [E] and columns [E] of a pattern."""
    return row_numbers(pattern), pattern.indices


def _rejoined(
    rows: Nodes, columns: Nodes, count: int, generator: torch.Generator
) -> tuple[Nodes, Nodes]:
    """Draw rows [count] and columns [count] independently, with replacement."""
    if not count:
        return rows[:0], columns[:0]
    chosen = torch.randint(len(rows), (2, count), generator=generator).numpy()
    return rows[chosen[0]], columns[chosen[1]]


def _both_ways(
    added: tuple[Nodes, Nodes], edges: tuple[Nodes, Nodes], num_nodes: int
) -> sp.csr_array:
    """Return the edges, the added ones and their reverses, each once."""
    rows = np.concatenate([added[0], added[1], edges[0]])
    columns = np.concatenate([added[1], added[0], edges[1]])
    ones = np.ones(len(rows), dtype=np.float32)
    pattern = sp.csr_array((ones, (rows, columns)), shape=(num_nodes, num_nodes))
    pattern.data[:] = 1
    return pattern
