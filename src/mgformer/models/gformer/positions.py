"""Positions of nodes on a graph, described by their distances to a few anchor nodes.

This is the position-aware network of You et al. (ICML 2019, arXiv:1906.04817) in the form that
GFormer (arXiv:2306.02330) uses: without activations, so it is one linear map.

Shapes: N nodes, A anchors, d channels.
"""

import math

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from mgformer.device import double_on
from mgformer.graph.sparse import csr_matmul
from mgformer.nn.embeddings import rows_at


def closeness(adjacency: sp.csr_array, anchors: Tensor) -> Tensor:
    """Return 1 / (distance + 1) of nodes to anchors [N, A], or 0 if there is no path.

    `adjacency` [N, N] is symmetric, `anchors` [A] are nodes. One breadth-first search serves all
    anchors: a step along the edges is one matrix product.
    """
    host = anchors.device
    reached = torch.zeros(adjacency.shape[0], len(anchors), dtype=torch.bool, device=host)
    reached[anchors, torch.arange(len(anchors), device=host)] = True
    frontier, result, distance = reached, reached.float(), 0
    while frontier.any():
        distance += 1
        frontier = (csr_matmul(adjacency, frontier.float()) > 0) & ~reached
        reached = reached | frontier
        result[frontier] = 1 / (distance + 1)
    return result


def anchor_encoding(
    x: Tensor, own: Tensor, anchors: Tensor, closeness: Tensor, weight: Tensor, bias: Tensor
) -> Tensor:
    """Return mean_a (W₁ ω_va x_a + W₂ y_v + b) of every node v [N, d], in O(N A d).

    x and `own` y are [N, d], ω = `closeness` is [N, A], and `weight` is [W₁ | W₂], [d, 2d].
    """
    of_anchors, of_self = weight.chunk(2, dim=1)
    # Apply W₁ to the few anchors, not to the many nodes.
    from_anchors = closeness @ (rows_at(x, anchors) @ of_anchors.T / len(anchors))
    return from_anchors + torch.addmm(bias, own, of_self.T)


def tiled_means(x: Tensor, count: int) -> Tensor:
    """Return for node v [N, d] the mean of `count` rows of x from v·count on, wrapping around.

    The authors' code tiles x as a whole to [N·count, d] and views the result as [N, count, d]. This
    is its mean over the second dimension. `count` is at most N.
    """
    rows = torch.cat([x, x[:count]]).to(double_on(x.device))
    sums = torch.cat([rows.new_zeros(1, x.shape[1]), rows.cumsum(0)])
    starts = torch.arange(len(x), device=x.device) * count % len(x)
    return ((sums[starts + count] - sums[starts]) / count).to(x.dtype)


def drawn_linear(
    num_outputs: int, num_inputs: int, rng: np.random.Generator
) -> tuple[Tensor, Tensor]:
    """Draw a weight and a bias from the uniform distribution of torch's linear maps."""
    bound = 1 / math.sqrt(num_inputs)
    weight = rng.uniform(-bound, bound, size=(num_outputs, num_inputs))
    bias = rng.uniform(-bound, bound, size=num_outputs)
    return torch.from_numpy(weight).float(), torch.from_numpy(bias).float()
