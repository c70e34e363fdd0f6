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
    x: Tensor, anchors: Tensor, closeness: Tensor, weight: Tensor, bias: Tensor
) -> Tensor:
    """Return mean_a (W₁ ω_va x_a + W₂ x_v + b) of every node v [N, d], in O(N A d).

    Args:
        x: [N, d].
        anchors: Node numbers [A].
        closeness: ω [N, A].
        weight: [W₁ | W₂], [d, 2d].
        bias: b [d].
    """
    of_anchors, of_self = weight.chunk(2, dim=1)
    # W₁ is applied to the few anchors, not to the many nodes.
    told = closeness @ (x[anchors] @ of_anchors.T / len(anchors))
    return told + torch.addmm(bias, x, of_self.T)


def drawn_linear(
    num_outputs: int, num_inputs: int, rng: np.random.Generator
) -> tuple[Tensor, Tensor]:
    """Return a weight and a bias, uniform as those of torch's linear maps."""
    bound = 1 / math.sqrt(num_inputs)
    weight = rng.uniform(-bound, bound, size=(num_outputs, num_inputs))
    bias = rng.uniform(-bound, bound, size=num_outputs)
    return torch.from_numpy(weight).float(), torch.from_numpy(bias).float()
