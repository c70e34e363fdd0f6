"""Where nodes are on a graph, told by the nodes that they are close to.

The position-aware network of You et al. (ICML 2019, arXiv:1906.04817) as GFormer
(arXiv:2306.02330) uses it: without activations, so it is one linear map.

Shapes: N nodes, A anchors, d channels.
"""

import math

import numpy as np
import torch
from torch import Tensor


def anchor_encoding(
    x: Tensor,
    anchors: Tensor,
    closeness: Tensor,
    weight: Tensor,
    bias: Tensor,
    own: Tensor | None = None,
) -> Tensor:
    """Return mean_a (W₁ ω_va x_a + W₂ x_v + b) of every node v [N, d], in O(N A d).

    Args:
        x: [N, d].
        anchors: Node numbers [A].
        closeness: ω [N, A].
        weight: [W₁ | W₂], [d, 2d].
        bias: b [d].
        own: What stands for x in the part of a node itself [N, d]; x if not given.
    """
    of_anchors, of_self = weight.chunk(2, dim=1)
    # W₁ is applied to the few anchors, not to the many nodes.
    told = closeness @ (x[anchors] @ of_anchors.T / len(anchors))
    return told + torch.addmm(bias, x if own is None else own, of_self.T)


def tiled_means(x: Tensor, count: int) -> Tensor:
    """Return, for node v [N, d], the mean of the `count` rows of x from v·count on, going round.

    That is what becomes of the node itself where x is tiled as a whole, [N·count, d], and then
    viewed as [N, count, d]. No more rows than there are.
    """
    rows = torch.cat([x, x[:count]]).double()
    sums = torch.cat([rows.new_zeros(1, x.shape[1]), rows.cumsum(0)])
    starts = torch.arange(len(x)) * count % len(x)
    return ((sums[starts + count] - sums[starts]) / count).to(x.dtype)


def drawn_linear(
    num_outputs: int, num_inputs: int, rng: np.random.Generator
) -> tuple[Tensor, Tensor]:
    """Return a weight and a bias, uniform as those of torch's linear maps."""
    bound = 1 / math.sqrt(num_inputs)
    weight = rng.uniform(-bound, bound, size=(num_outputs, num_inputs))
    bias = rng.uniform(-bound, bound, size=num_outputs)
    return torch.from_numpy(weight).float(), torch.from_numpy(bias).float()
