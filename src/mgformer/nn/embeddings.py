"""Embeddings of nodes: starting values, rows of some nodes, and linear propagation on a graph.

Shapes: N nodes, d channels; q nodes of a batch.
"""

import math
from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn
from torch.nn import functional

from mgformer.device import on_host
from mgformer.graph.sparse import SparseProduct
from mgformer.world import Shards


def normal_table(
    num_rows: int, num_channels: int, rng: np.random.Generator, deviation: float | None = None
) -> nn.Parameter:
    """Return a table [num_rows, num_channels] of normal numbers.

    Without a deviation, Xavier's is used: √(2 / (num_rows + num_channels)).
    """
    if deviation is None:
        deviation = math.sqrt(2 / (num_rows + num_channels))
    drawn = rng.standard_normal((num_rows, num_channels), dtype=np.float32)
    return nn.Parameter(torch.from_numpy(drawn * np.float32(deviation)))


def xavier_matrices(count: int, channels: int, rng: np.random.Generator) -> Tensor:
    """Return square matrices [count, channels, channels] of Xavier's uniform numbers."""
    bound = math.sqrt(6 / (2 * channels))
    return torch.from_numpy(rng.uniform(-bound, bound, size=(count, channels, channels))).float()


def rows_at(x: Tensor, numbers: Tensor) -> Tensor:
    """Return x[numbers] […, d] for x [N, d].

    The gradient of plain indexing is summed in an order that changes from run to run if torch has
    several threads. The gradient of an embedding is summed in a fixed order, and as fast.
    """
    return functional.embedding(numbers, x)


class OwnProduct(nn.Module):
    """The rows of a matrix [N, N] that this process owns, times rows [n, d] of all processes.

    All rows [N, d] travel in every product, and their gradients travel back.
    """

    def __init__(self, matrix: sp.csr_array, shards: Shards) -> None:
        super().__init__()
        self.product, self.shards = SparseProduct(matrix[shards.own.numpy()]), shards

    def forward(self, dense: Tensor) -> Tensor:
        """Return the own rows [n, d] of the product."""
        product: Tensor = self.product(self.shards.whole(dense))
        return product

    def rows(self, dense: Tensor, numbers: Tensor) -> Tensor:
        """Return only some of the own rows [q, d]."""
        return self.product.rows(self.shards.whole(dense), numbers)


def mean_of_layers(
    steps: Sequence[SparseProduct | OwnProduct], x: Tensor, nodes: Tensor | None = None
) -> Tensor:
    """Return the mean of x, Â₁ x, Â₂ Â₁ x, … [N, d], or its rows [q, d] for nodes.

    This is LightGCN (He et al., SIGIR 2020, arXiv:2002.02126). For nodes of a batch, the last layer
    is computed for these nodes only.
    """
    total = x if nodes is None else rows_at(x, nodes)
    for layer, step in enumerate(steps, start=1):
        if nodes is not None and layer == len(steps):
            total = total + step.rows(x, nodes)
            break
        x = step(x)
        total = total + (x if nodes is None else rows_at(x, nodes))
    return total / (len(steps) + 1)


def places_of(*parts: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Return the distinct nodes of several lists, and the places of each list among them.

    Elsewhere than on the processor, all nodes are returned in order, so that sizes are fixed.
    """
    nodes = torch.cat([part.flatten() for part in parts])
    places = torch.arange(len(nodes), device=nodes.device)
    if on_host(nodes):
        nodes, places = nodes.unique(return_inverse=True)
    split = places.split([part.numel() for part in parts])
    return nodes, [p.reshape(part.shape) for p, part in zip(split, parts, strict=True)]
