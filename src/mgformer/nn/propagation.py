"""Linear propagation on a graph, as in LightGCN (He et al., SIGIR 2020, arXiv:2002.02126).

A training step needs the last layer only for the nodes of its batch, and computes only these.

Shapes: N nodes, d channels; q nodes of a batch.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from mgformer.graph.sparse import SparseProduct
from mgformer.nn.tables import rows_at


def mean_of_layers(
    steps: Sequence[SparseProduct], x: Tensor, nodes: Tensor | None = None
) -> Tensor:
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
