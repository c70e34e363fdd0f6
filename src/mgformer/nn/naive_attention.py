"""The equations of masked attention over all pairs: the specification of `kernel_attention`.

Every function follows its formula literally, in O(q·n) time and memory and without protection
against overflow. Tests compare the fast functions with these, values and gradients; nothing else
uses them.

Shapes: n keys, q queries, m channels, F features, D channels of the values.
"""

import math

import torch
from torch import Tensor


def positive_features(x: Tensor, projection: Tensor) -> Tensor:
    """φ(x) = exp(-½‖x‖²) exp(Wx) / √F [n, F], row by row: Eq. (7)."""
    rows = [torch.exp(projection @ row) * torch.exp(-(row @ row) / 2) for row in x]
    return torch.stack(rows) / math.sqrt(len(projection))


def sine_weights(query_angles: Tensor, key_angles: Tensor) -> Tensor:
    """M_ij = sin(c_i + c_j) [q, n] with c = πz/4: Eq. (10)."""
    return torch.stack([torch.sin(angle + key_angles) for angle in query_angles])


def masked_attention(
    q_features: Tensor, k_features: Tensor, values: Tensor, mask: Tensor | float = 1.0
) -> Tensor:
    """Attention [q, D] with weights M_ij φ(q_i)·φ(k_j): Eq. (8), and Eq. (6) for M = 1."""
    kernel = (q_features[:, None, :] * k_features[None, :, :]).sum(2)  # [q, n]
    return weighted_means(mask * kernel, values)


def softmax_attention(
    queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | float = 1.0
) -> Tensor:
    """Attention [q, D] with weights M_ij exp(q_i·k_j): Eq. (1), queries and keys scaled before."""
    return weighted_means(mask * (queries @ keys.T).exp(), values)


def weighted_means(weights: Tensor, values: Tensor) -> Tensor:
    """Σ_j w_ij v_j / Σ_j w_ij [q, D]; zeros if a row has no weights."""
    rows = [
        (row[:, None] * values).sum(0) / row.sum() if row.any() else torch.zeros_like(values[0])
        for row in weights
    ]
    return torch.stack(rows)
