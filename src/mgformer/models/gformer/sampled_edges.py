"""Random subgraphs by weights of the edges, and edges added at random.

A matrix is a pattern here: its stored entries are directed edges, in the order of CSR, and weights
go with them in this order. A direction of an edge may be drawn without the other.

Shapes: N nodes, E edges.
"""

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from mgformer.graph.bipartite import Graph, inverse_sqrt

Nodes = NDArray[np.int32]


def edges_with_loops(graph: Graph) -> sp.csr_array:
    """Return the pattern [N, N] of the pairs in both directions, with a loop at every node."""
    r = graph.interactions
    loops = [sp.eye_array(count, format="csr") for count in r.shape]
    blocks = [[loops[0], r], [r.T, loops[1]]]
    pattern = sp.csr_array(sp.block_array(blocks, format="csr", dtype=np.float32))
    pattern.sort_indices()
    return pattern


def drawn_edges(log_weights: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Return a mask [E] of edges drawn one after another without replacement, p ∝ weight.

    The largest of log weight plus Gumbel noise are such a draw; minus the logarithm of an
    exponential variable is Gumbel noise.
    """
    noise = torch.empty(len(log_weights), dtype=torch.float64).exponential_(generator=generator)
    chosen = (log_weights.double() - noise.log()).topk(count, sorted=False).indices
    mask = torch.zeros(len(log_weights), dtype=torch.bool)
    mask[chosen] = True
    return mask


def subgraph(pattern: sp.csr_array, mask: Tensor) -> sp.csr_array:
    """Return the edges of a mask [E]."""
    kept = mask.numpy()
    starts = np.concatenate([[0], np.cumsum(kept)])[pattern.indptr].astype(np.int32)
    ones = np.ones(starts[-1], dtype=np.float32)
    return sp.csr_array((ones, pattern.indices[kept], starts), shape=pattern.shape)


def with_loops(pattern: sp.csr_array) -> sp.csr_array:
    """Return A + I; an edge of A from a node to itself then counts twice."""
    loops = sp.eye_array(pattern.shape[0], dtype=np.float32, format="csr")
    return sp.csr_array(pattern + loops)


def normalized_by_rows(counts: sp.csr_array) -> sp.csr_array:
    """Return D^(-1/2) A D^(-1/2) of a matrix of counts, with D of row sums on both sides."""
    scale = inverse_sqrt(counts.sum(axis=1).astype(np.int64))
    values = np.repeat(scale, np.diff(counts.indptr)) * counts.data * scale[counts.indices]
    result = (values.astype(np.float32), counts.indices, counts.indptr)
    return sp.csr_array(result, shape=counts.shape)


def with_random_edges(
    pattern: sp.csr_array, share: float, generator: torch.Generator
) -> sp.csr_array:
    """Return the edges and ⌊share·E⌋ more, both ways, that join ends of any two edges."""
    rows, columns = edge_ends(pattern)
    added = _rejoined(rows, columns, int(share * len(rows)), generator)
    return _both_ways(added, (rows, columns), len(pattern.indptr) - 1)


def with_rebuilt_edges(
    pattern: sp.csr_array,
    mask: Tensor,
    *,
    pool_share: float,
    share: float,
    generator: torch.Generator,
) -> sp.csr_array:
    """Return the edges kept, all loops, and edges that join ends of those dropped at random.

    Args:
        pattern: [N, N].
        mask: The edges kept [E].
        pool_share: Ends of kept edges and of loops that join those of the edges dropped, in the
            pool from which ends are drawn, for each edge dropped.
        share: Edges drawn, for each edge of the pattern; the reverse of each is added.
        generator: Source of all that is drawn.
    """
    num_nodes = pattern.shape[0]
    kept, dropped = edge_ends(subgraph(pattern, mask)), edge_ends(subgraph(pattern, ~mask))
    loops = np.arange(num_nodes, dtype=np.int32)
    known = [np.concatenate([loops, ends]) for ends in kept]
    more = _rejoined(known[0], known[1], int(pool_share * len(dropped[0])), generator)
    pool = [np.concatenate(ends) for ends in zip(more, dropped, strict=True)]
    count = int(share * pattern.nnz) if len(pool[0]) else 0
    drawn = _rejoined(pool[0], pool[1], count, generator)
    return _both_ways(drawn, (known[0], known[1]), num_nodes)


def edge_ends(pattern: sp.csr_array) -> tuple[Nodes, Nodes]:
    """Return rows [E] and columns [E] of a pattern."""
    rows = np.arange(pattern.shape[0], dtype=np.int32)
    return np.repeat(rows, np.diff(pattern.indptr)), pattern.indices


def _rejoined(
    rows: Nodes, columns: Nodes, count: int, generator: torch.Generator
) -> tuple[Nodes, Nodes]:
    """Draw rows [count] and, independently of them, columns [count], with replacement."""
    if not count:
        return rows[:0], columns[:0]
    chosen = torch.randint(len(rows), (2, count), generator=generator).numpy()
    return rows[chosen[0]], columns[chosen[1]]


def _both_ways(
    added: tuple[Nodes, Nodes], edges: tuple[Nodes, Nodes], num_nodes: int
) -> sp.csr_array:
    """Return edges and added ones with their reverses; those that occur twice count once."""
    rows = np.concatenate([added[0], added[1], edges[0]])
    columns = np.concatenate([added[1], added[0], edges[1]])
    ones = np.ones(len(rows), dtype=np.float32)
    pattern = sp.csr_array((ones, (rows, columns)), shape=(num_nodes, num_nodes))
    pattern.data[:] = 1
    return pattern
