"""How close every node of a graph is to some of its nodes, the anchors.

Shapes: N nodes, A anchors.
"""

import scipy.sparse as sp
import torch
from torch import Tensor

from mgformer.graph.sparse import csr_matmul


def closeness(adjacency: sp.csr_array, anchors: Tensor) -> Tensor:
    """Return 1 / (distance + 1) of nodes to anchors [N, A], 0 for those that cannot be reached.

    All anchors are searched from at once, breadth first: a step along the edges is one product.

    Args:
        adjacency: Symmetric [N, N]; its entries are positive, and their values do not matter.
        anchors: Node numbers [A].
    """
    reached = torch.zeros(adjacency.shape[0], len(anchors), dtype=torch.bool)
    reached[anchors, torch.arange(len(anchors))] = True
    frontier, result, distance = reached, reached.float(), 0
    while frontier.any():
        distance += 1
        frontier = (csr_matmul(adjacency, frontier.float()) > 0) & ~reached
        reached = reached | frontier
        result[frontier] = 1 / (distance + 1)
    return result
