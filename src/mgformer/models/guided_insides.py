"""What the attention of a guided model looks at: `Guided.insides`.

The guide fixes the attention weights before training, so an untrained model shows the same. Weights
are those of M, without the factor β and without the hop on the graph.

Shapes: N nodes, q sampled nodes, K neighbors of the node that has most.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from mgformer.graph.bipartite import Graph
from mgformer.graph.sparse import row_numbers
from mgformer.models.insides import Inside, NodeRanking, Nodes, Plot, Series, Values

SAMPLED_NODES = 2_000
"""How many users, and how many items, the means are taken over."""
NAMED_NODES = 6
"""How many nodes a ranking names."""
EXAMPLE_ITEMS = (1.0, 0.95, 0.75, 0.4)
"""Popularity quantiles of the items whose neighbors are named."""


class Neighborhood(NamedTuple):
    """Attention weights by rank of the neighbor, averaged over nodes."""

    to_users: Values  # [K] weight on neighbors that are users
    to_items: Values  # [K] weight on neighbors that are items
    effective: float  # mean exp(entropy) of the shares: how many neighbors a node reads


def attention_insides(attention: sp.csr_array, graph: Graph) -> Iterator[Inside]:
    """Yield what can be shown of the attention M [N, N]; see `TrainableModel.insides`."""
    sides = {"users": (0, graph.num_users), "items": (graph.num_users, graph.num_nodes)}
    for side, (start, stop) in sides.items():
        sampled = np.linspace(start, stop - 1, min(SAMPLED_NODES, stop - start)).astype(np.int64)
        found = neighborhood(attention, sampled, graph.num_users)
        if found is not None:
            yield _describe(side, found)
    for item in example_items(graph):
        node = graph.num_users + item
        nodes, shares = strongest_neighbors(attention, node)
        if len(nodes):
            facts = {"training users": f"{graph.item_degrees[item]:,}"}
            yield NodeRanking("attends to", nodes, shares, facts, owner=node)


def neighborhood(attention: sp.csr_array, nodes: Nodes, num_users: int) -> Neighborhood | None:
    """Return the mean attention weights of nodes; None if no node has a neighbor.

    Nodes without neighbors are left out.
    """
    rows = _without_zeros(attention[nodes])
    counts = np.diff(rows.indptr)
    if not rows.nnz:
        return None
    node, weights = row_numbers(rows), rows.data.astype(np.float64)
    order = np.lexsort((-weights, node))  # rows stay together, large weights first
    rank = np.arange(rows.nnz) - np.repeat(rows.indptr[:-1], counts)
    ranked, to_users = weights[order], rows.indices[order] < num_users
    linked = np.count_nonzero(counts)
    mean_to_users, mean_to_items = (
        np.bincount(rank, ranked * of_side, minlength=counts.max()) / linked
        for of_side in (to_users, ~to_users)
    )
    shares = weights / np.bincount(node, weights)[node]
    entropy = np.bincount(node, -shares * np.log(shares), minlength=len(nodes))
    effective = float(np.exp(entropy[counts > 0]).mean())
    return Neighborhood(mean_to_users, mean_to_items, effective)


def strongest_neighbors(attention: sp.csr_array, node: int) -> tuple[Nodes, Values]:
    """Return the nodes that a node attends to most, and their weights."""
    row = _without_zeros(attention[[node]])
    order = np.argsort(-row.data, kind="stable")[:NAMED_NODES]
    return row.indices[order].astype(np.int64), row.data[order].astype(np.float64)


def example_items(graph: Graph) -> list[int]:
    """Return items of different popularity, the most popular first."""
    by_degree = np.argsort(graph.item_degrees, kind="stable")
    chosen = (int(by_degree[round(place * (len(by_degree) - 1))]) for place in EXAMPLE_ITEMS)
    return list(dict.fromkeys(chosen))


def _without_zeros(rows: sp.csr_array) -> sp.csr_array:
    kept = sp.csr_array(rows, copy=True)
    kept.eliminate_zeros()
    return kept


def _describe(side: str, found: Neighborhood) -> Plot:
    caption = (
        f"Mean attention weight by rank of the neighbor. On average, {side} read"
        f" {found.effective:.1f} neighbors effectively (the exponential of the entropy of their"
        " weights). The guide sets these weights, and training does not change them."
    )
    ranks = np.arange(1, len(found.to_users) + 1)
    bars = [Series("to users", ranks, found.to_users), Series("to items", ranks, found.to_items)]
    return Plot("bars", f"What {side} attend to", caption, bars, ("rank", "weight"))
