"""Landmarks: centres of the nodes' encodings, and how close every node is to the nearest of them.

Shapes: N nodes, r channels of the encodings, R landmarks, a of them active for a node.
"""

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor
from torch.nn import functional

from mgformer.graph.sparse import block_slices
from mgformer.progress import phase

ITERATIONS = 6
"""Rounds of k-means: centres need only be well spread, not optimal."""


def landmark_features(
    encodings: Tensor, num_landmarks: int, active: int, sharpness: float, rng: np.random.Generator
) -> sp.csr_array:
    """Return Φ [N, R]: softmax of sharpness × cosine over the `active` nearest landmarks of a node.

    Rows of nodes without an encoding are zero; all others sum to one.
    """
    encodings = functional.normalize(encodings)
    known = encodings.norm(dim=1) > 0
    centers = _spherical_kmeans(encodings[known], num_landmarks, rng)
    active = min(active, len(centers))
    places = torch.empty(len(encodings), active, dtype=torch.int32)
    weights = torch.empty(len(encodings), active)
    for rows in block_slices(len(encodings), max(1, len(centers))):
        nearest = (encodings[rows] @ centers.T).topk(active)
        places[rows] = nearest.indices.int()
        weights[rows] = (sharpness * nearest.values).softmax(1)
    weights *= known[:, None]
    indptr = np.arange(0, weights.numel() + 1, max(active, 1), dtype=np.int32)
    if not active:
        return sp.csr_array((len(encodings), 0), dtype=np.float32)
    return sp.csr_array(
        (weights.flatten().numpy(), places.flatten().numpy(), indptr),
        shape=(len(encodings), len(centers)),
    )


def _spherical_kmeans(rows: Tensor, num_centers: int, rng: np.random.Generator) -> Tensor:
    """Return unit centres [R, r] of unit rows; one for each row, if there are no more rows."""
    if len(rows) <= num_centers:
        return rows
    centers = rows[torch.from_numpy(rng.choice(len(rows), num_centers, replace=False))]
    with phase("landmarks", ITERATIONS) as advance:
        for _ in range(ITERATIONS):
            nearest = torch.cat(
                [
                    (rows[part] @ centers.T).argmax(1)
                    for part in block_slices(len(rows), num_centers)
                ]
            )
            sums = torch.zeros_like(centers).index_add(0, nearest, rows)
            empty = torch.bincount(nearest, minlength=num_centers) == 0
            # A centre that nobody is near to starts again at a random row.
            again = rng.choice(len(rows), int(empty.sum()), replace=False)
            sums[empty] = rows[torch.from_numpy(again)]
            centers = functional.normalize(sums)
            advance(1)
    return centers
