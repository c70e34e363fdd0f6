"""Optimal transport between points and centroids, as a soft and balanced clustering.

Sinkhorn's algorithm (Cuturi, NIPS 2013, arXiv:1306.0895) in the log domain, with fixed cluster
sizes as in Genevay et al. (2019, arXiv:1910.09036): every point has the same mass to give, every
centroid the same to receive, so no centroid can stay empty.

Shapes: n points, K centroids, d channels.
"""

import torch
from torch import Tensor


def squared_distances(points: Tensor, centroids: Tensor) -> Tensor:
    """Return ‖p - c‖² [n, K] of points [n, d] and centroids [K, d]."""
    lengths = points.square().sum(1, keepdim=True) + centroids.square().sum(1)  # [n, K]
    return torch.addmm(lengths, points, centroids.T, alpha=-2).clamp_min(0)


def transport_plan(cost: Tensor, epsilon: float, num_rounds: int) -> Tensor:
    """Return the plan π [n, K] that minimises ⟨π, cost⟩ - ε H(π) with rows 1/n, columns 1/K.

    A round of Sinkhorn sets the rows' potentials f, then the columns' g. Once f is set, the plan
    is softmax((g - cost) / ε) / n, so that a round is one softmax and a sum, and f is never
    computed. Columns are right after any round, rows in the limit.

    Args:
        cost: [n, K].
        epsilon: Weight of the entropy, in units of the cost.
        num_rounds: Rounds, at least one.
    """
    num_points, num_centroids = cost.shape
    logits = cost / -epsilon
    potentials = cost.new_zeros(num_centroids)  # g / ε
    shares, masses = logits, potentials
    for _ in range(num_rounds):
        shares = (logits + potentials).softmax(1)
        # A centroid so far from all points that its mass underflows comes nearer by a long step.
        masses = shares.mean(0).clamp_min(torch.finfo(cost.dtype).tiny) * num_centroids
        potentials = potentials - masses.log()
    return shares / (masses * num_points)
