"""Structural encodings of nodes, Eq. (3) of the MGFormer paper, and attention computed from them.

Encodings or edges fix which nodes a node attends to, and with what weight, before training begins.
Training learns the values, and the sine mask if there is one. Without a mask a layer is one fixed
sparse matrix, and `FixedLayers` multiplies by it for the rows of a batch only.

Shapes: N nodes, r channels of the encodings, m channels of x, H heads, K neighbors, R landmarks;
q nodes wanted, k nodes known.
"""

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from mgformer.graph.bipartite import Graph
from mgformer.graph.nearest import nearest_nodes
from mgformer.graph.sparse import BLOCK_ENTRIES, SparseProduct, block_slices, csr_matmul
from mgformer.graph.spectral import truncated_svd
from mgformer.models.mgformer.layers import Attention, DegreeAngles
from mgformer.models.mgformer.options import MGFormerConfig
from mgformer.progress import phase

KMEANS_ROUNDS = 6
"""Rounds of k-means: the centers of landmarks must be well spread, not optimal."""


def encodings_of(graph: Graph, rank: int, rng: np.random.Generator, *, normalized: bool) -> Tensor:
    """Return [U√Σ; V√Σ] [N, rank], users before items: Eq. (3).

    R or, if `normalized`, D_u^(-1/2) R D_i^(-1/2) is decomposed. If it has fewer singular vectors
    than `rank`, the last columns are zero.
    """
    matrix = graph.normalized if normalized else graph.interactions
    svd = truncated_svd(matrix, min(rank, *matrix.shape), rng)
    encodings = torch.cat([svd.left, svd.right]) * svd.values.sqrt()
    # Rounding errors in the rows of isolated nodes would become directions when normalized.
    encodings *= torch.from_numpy(graph.degrees > 0)[:, None]
    return functional.pad(encodings, (0, rank - encodings.shape[1]))


class NeighborAttention(Attention):
    """Softmax attention over the K nearest nodes by encoding, with cosines as logits."""

    def __init__(
        self, config: MGFormerConfig, encodings: Tensor, angles: DegreeAngles | None
    ) -> None:
        super().__init__(len(encodings))
        num_heads = config.num_heads
        nodes, similarities = nearest_nodes(encodings, config.num_neighbors)
        # Nodes without an encoding have no neighbors; missing neighbors get weight 0.
        far = (encodings.square().sum(1) == 0)[:, None] | ~similarities.isfinite()
        self.neighbors = nn.Buffer(nodes, persistent=False)  # [N, K]
        self.similarities = nn.Buffer(similarities.masked_fill(far, 0), persistent=False)
        self.near = nn.Buffer((~far).float(), persistent=False)
        # Each head is sharper than the one before.
        spread = torch.linspace(-0.5, 0.5, num_heads) if num_heads > 1 else torch.zeros(1)
        self.sharpness = nn.Buffer(config.sharpness * 4.0**spread, persistent=False)  # [H]
        self.angles = angles

    def reach(self, wanted: Tensor, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
        known = torch.cat([wanted, self.neighbors[wanted].flatten()]).unique()
        return known, known

    def forward(self, x: Tensor, known: Tensor, keys: Tensor, wanted: Tensor) -> Tensor:
        nodes = self.neighbors[wanted]  # [q, K]
        weights = self.weights(wanted)  # [q, H, K]
        num_heads = len(self.sharpness)
        # Each head sums its own channels: view x as a table of k·H rows of m/H channels.
        table = x.reshape(len(known) * num_heads, -1)
        places = torch.searchsorted(known, nodes)[:, None] * num_heads
        places = places + torch.arange(num_heads)[:, None]  # [q, H, K]
        summed = functional.embedding_bag(
            places.flatten(0, 1), table, per_sample_weights=weights.flatten(0, 1), mode="sum"
        )
        return summed.reshape(len(wanted), -1)

    def matrix(self) -> sp.csr_array | None:
        """Return A [N, N] if it is one matrix that training does not change, else None."""
        if self.angles is not None or len(self.sharpness) > 1:
            return None
        weights = self.weights(torch.arange(self.num_nodes))[:, 0]  # [N, K]
        return _csr_of_rows(weights, self.neighbors, self.num_nodes)

    def weights(self, wanted: Tensor) -> Tensor:
        """Return the weights [q, H, K] of the neighbors of nodes."""
        logits = self.sharpness[:, None] * self.similarities[wanted][:, None]  # [q, H, K]
        if self.angles is not None:
            sines = (self.angles(wanted)[:, None] + self.angles(self.neighbors[wanted])).sin()
            logits = logits + sines.log()[:, None]
        return logits.softmax(-1) * self.near[wanted][:, None]


class LandmarkAttention(Attention):
    """Kernel attention with κ(i, j) = Σ_r φ_ir φ_jr / Σ_l φ_lr and φ of `landmark_features`.

    This is Eq. (6) with features φ_r / √(Σ_l φ_lr). Each landmark averages the nodes around it, and
    each node averages its nearest landmarks. Rows of κ sum to one.
    """

    def __init__(self, config: MGFormerConfig, encodings: Tensor, rng: np.random.Generator) -> None:
        super().__init__(len(encodings))
        self.features = landmark_features(
            encodings, config.num_landmarks, config.active_landmarks, config.sharpness, rng
        )
        mass = np.maximum(self.features.sum(0), np.finfo(np.float32).tiny)  # [R]
        shares = self.features.multiply(1 / mass[None]).tocsr().astype(np.float32)
        self.summarize = SparseProduct(sp.csr_array(shares.T))  # [R, N]

    def forward(self, x: Tensor, known: Tensor, keys: Tensor, wanted: Tensor) -> Tensor:
        means = self.summarize(x)  # [R, m]
        return SparseProduct(self.features[wanted.numpy()])(means)


def landmark_features(
    encodings: Tensor,
    num_landmarks: int,
    active: int,
    sharpness: float,
    rng: np.random.Generator,
    *,
    block_entries: int = BLOCK_ENTRIES,
) -> sp.csr_array:
    """Return Φ [N, R]: softmax of sharpness × cosine over the `active` nearest landmarks of a node.

    Landmarks are k-means centers of the encodings. Rows of Φ sum to one; rows of nodes without an
    encoding are zero.
    """
    encodings = functional.normalize(encodings)
    known = encodings.norm(dim=1) > 0
    centers = _spherical_kmeans(encodings[known], num_landmarks, rng, block_entries)
    active = min(active, len(centers))
    if not active:
        return sp.csr_array((len(encodings), 0), dtype=np.float32)
    places = torch.empty(len(encodings), active, dtype=torch.int32)
    weights = torch.empty(len(encodings), active)
    for rows in block_slices(len(encodings), len(centers), block_entries):
        nearest = (encodings[rows] @ centers.T).topk(active)
        places[rows] = nearest.indices.int()
        weights[rows] = (sharpness * nearest.values).softmax(1)
    weights *= known[:, None]
    return _csr_of_rows(weights, places, len(centers))


def _csr_of_rows(weights: Tensor, columns: Tensor, num_columns: int) -> sp.csr_array:
    """Return a matrix [N, num_columns] from the weights [N, K] and columns [N, K] of its rows."""
    num_rows, count = weights.shape
    starts = np.arange(0, num_rows * count + 1, count, dtype=np.int32)
    parts = (weights.flatten().numpy(), columns.flatten().numpy().astype(np.int32), starts)
    return sp.csr_array(parts, shape=(num_rows, num_columns))


def _spherical_kmeans(
    rows: Tensor, num_centers: int, rng: np.random.Generator, block_entries: int
) -> Tensor:
    """Return unit centers [R, r] of unit rows, or the rows if there are at most R."""
    if len(rows) <= num_centers:
        return rows
    centers = rows[torch.from_numpy(rng.choice(len(rows), num_centers, replace=False))]
    blocks = list(block_slices(len(rows), num_centers, block_entries))
    with phase("landmarks", KMEANS_ROUNDS) as advance:
        for _ in range(KMEANS_ROUNDS):
            nearest = torch.cat([(rows[block] @ centers.T).argmax(1) for block in blocks])
            sums = torch.zeros_like(centers).index_add(0, nearest, rows)
            empty = torch.bincount(nearest, minlength=num_centers) == 0
            # A center without rows starts again at a random row.
            again = rng.choice(len(rows), int(empty.sum()), replace=False)
            sums[empty] = rows[torch.from_numpy(again)]
            centers = functional.normalize(sums)
            advance(1)
    return centers


class FixedLayers:
    """L layers with the same fixed weights: h = Mᴸ x with a sparse M [N, N]."""

    def __init__(self, matrix: sp.csr_array, num_layers: int) -> None:
        self.matrix, self.num_layers = matrix, num_layers

    def everywhere(self, x: Tensor) -> Tensor:
        """Return Mᴸ x [N, m]."""
        for _ in range(self.num_layers):
            x = csr_matmul(self.matrix, x)
        return x

    def rows(self, table: Tensor, nodes: Tensor, *, sparse: bool = False) -> Tensor:
        """Return (Mᴸ table)[nodes] [q, m] with gradients; nodes may repeat.

        If `sparse`, the gradient of the table holds only the rows that were used.
        """
        steps, wanted = [self.matrix[nodes.numpy()]], nodes.numpy()
        for _ in range(self.num_layers - 1):
            wanted, steps[-1] = _compressed(steps[-1])
            steps.append(self.matrix[wanted])
        if sparse:
            wanted, steps[-1] = _compressed(steps[-1])
            table = functional.embedding(torch.from_numpy(wanted), table, sparse=True)
        for step in reversed(steps):
            table = SparseProduct(step)(table)
        return table


def _compressed(matrix: sp.csr_array) -> tuple[NDArray[np.int32], sp.csr_array]:
    """Return the columns with entries, and the matrix of these columns only."""
    columns, places = np.unique(matrix.indices, return_inverse=True)
    shape = (matrix.shape[0], len(columns))
    places = places.astype(np.int32)
    return columns, sp.csr_array((matrix.data, places, matrix.indptr), shape=shape)
