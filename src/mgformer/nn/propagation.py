"""Linear propagation on a graph: Âˡ X, and means over layers, as in LightGCN.

He et al. (SIGIR 2020, arXiv:2002.02126). A training step needs the last layer only for the nodes of
its batch: `rows` computes only these, and its gradient follows only their edges.

Shapes: N nodes, d channels; q nodes of a batch.
"""

from collections.abc import Sequence

import scipy.sparse as sp
import torch
from torch import Tensor

from mgformer.graph.sparse import SparseProduct
from mgformer.nn.tables import rows_at


class Propagation:
    """Products with a symmetric matrix Â [N, N]."""

    def __init__(self, adjacency: sp.csr_array) -> None:
        self.adjacency = adjacency
        self._product = SparseProduct(adjacency, symmetric=True)

    def __call__(self, x: Tensor) -> Tensor:
        """Return Â x [N, d]."""
        return self._product(x)

    def rows(self, x: Tensor, nodes: Tensor) -> Tensor:
        """Return (Â x)[nodes] [q, d]."""
        return SparseProduct(self.adjacency[nodes.numpy()])(x)

    def mean(self, x: Tensor, num_layers: int, nodes: Tensor | None = None) -> Tensor:
        """Return the mean of x, Â x, …, Âᴸ x [N, d], or its rows [q, d] for nodes."""
        return mean_of_layers([self] * num_layers, x, nodes)


def mean_of_layers(steps: Sequence[Propagation], x: Tensor, nodes: Tensor | None = None) -> Tensor:
    """Return the mean of x, Â₁ x, Â₂ Â₁ x, … [N, d], or its rows [q, d] for nodes."""
    total = x if nodes is None else rows_at(x, nodes)
    for layer, step in enumerate(steps, start=1):
        if nodes is not None and layer == len(steps):
            total = total + step.rows(x, nodes)
            break
        x = step(x)
        total = total + (x if nodes is None else rows_at(x, nodes))
    return total / (len(steps) + 1)


def places_of(*parts: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Return the distinct nodes of several lists, and the places of each list among them."""
    nodes, places = torch.cat([part.flatten() for part in parts]).unique(return_inverse=True)
    split = places.split([part.numel() for part in parts])
    return nodes, [p.reshape(part.shape) for p, part in zip(split, parts, strict=True)]
