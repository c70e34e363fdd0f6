"""Attention that the structure of the graph decides: which nodes, and with what weight.

Its weights come from the encodings, or from the edges, before training begins; only a mask of
degrees may be learned. What is learned otherwise are the values. Without a mask a layer is then one
sparse matrix, fixed: `FixedLayers` multiplies by it, for the rows of a batch only.

Shapes: N nodes, m channels, H heads, K neighbours, R landmarks; k nodes known, q wanted.
"""

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from mgformer.graph.nearest import nearest_nodes
from mgformer.graph.sparse import SparseProduct, csr_matmul
from mgformer.models.mgformer.landmarks import landmark_features
from mgformer.models.mgformer.layers import Attention, DegreeAngles


class NeighborAttention(Attention):
    """Softmax attention over the K nodes nearest by encoding, with weights from the encodings."""

    def __init__(
        self,
        encodings: Tensor,
        num_neighbors: int,
        sharpness: float,
        num_heads: int,
        angles: DegreeAngles | None,
    ) -> None:
        super().__init__()
        nodes, similarities = nearest_nodes(encodings, num_neighbors)
        # A node without an encoding is near to nobody, and near to it is nobody.
        far = (encodings.square().sum(1) == 0)[:, None] | ~similarities.isfinite()
        self.neighbors = nn.Buffer(nodes, persistent=False)  # [N, K]
        self.similarities = nn.Buffer(similarities.masked_fill(far, 0), persistent=False)
        self.near = nn.Buffer((~far).float(), persistent=False)
        # Heads look at different ranges: each is sharper than the one before.
        spread = torch.linspace(-0.5, 0.5, num_heads) if num_heads > 1 else torch.zeros(1)
        self.sharpness = nn.Buffer(sharpness * 4.0**spread, persistent=False)  # [H]
        self.angles = angles

    def reach(self, wanted: Tensor, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
        known = torch.cat([wanted, self.neighbors[wanted].flatten()]).unique()
        return known, known

    def forward(self, x: Tensor, known: Tensor, keys: Tensor, wanted: Tensor) -> Tensor:
        nodes = self.neighbors[wanted]  # [q, K]
        weights = self.weights(wanted)  # [q, H, K]
        num_heads = len(self.sharpness)
        # Each head sums its share of the channels: a table of k·H rows of m/H channels.
        table = x.reshape(len(known) * num_heads, -1)
        places = torch.searchsorted(known, nodes)[:, None] * num_heads
        places = places + torch.arange(num_heads)[:, None]  # [q, H, K]
        summed = functional.embedding_bag(
            places.flatten(0, 1), table, per_sample_weights=weights.flatten(0, 1), mode="sum"
        )
        return summed.reshape(len(wanted), -1)

    def matrix(self) -> sp.csr_array | None:
        if self.angles is not None or len(self.sharpness) > 1:
            return None
        num_nodes, count = self.neighbors.shape
        weights = self.weights(torch.arange(num_nodes)).flatten().numpy()
        places = self.neighbors.flatten().numpy().astype(np.int32)
        ends = np.arange(0, num_nodes * count + 1, count, dtype=np.int32)
        return sp.csr_array((weights, places, ends), shape=(num_nodes, num_nodes))

    def weights(self, wanted: Tensor) -> Tensor:
        """Return the weights [q, H, K] of the neighbours of nodes."""
        logits = self.sharpness[:, None] * self.similarities[wanted][:, None]  # [q, H, K]
        if self.angles is not None:
            sines = (self.angles(wanted)[:, None] + self.angles(self.neighbors[wanted])).sin()
            logits = logits + sines.log()[:, None]
        return logits.softmax(-1) * self.near[wanted][:, None]


class LandmarkAttention(Attention):
    """Kernel attention with κ(i, j) = Σ_r φ_ir φ_jr / Σ_l φ_lr, φ from landmarks: rows sum to one.

    This is Eq. (6) with features φ_r / √mass_r: a landmark keeps the mean of the nodes around it,
    and a node reads the means of the landmarks near to it.
    """

    def __init__(
        self,
        encodings: Tensor,
        num_landmarks: int,
        active: int,
        sharpness: float,
        rng: np.random.Generator,
    ) -> None:
        super().__init__()
        self.num_nodes = len(encodings)
        self.features = landmark_features(encodings, num_landmarks, active, sharpness, rng)
        mass = np.maximum(self.features.sum(0), np.finfo(np.float32).tiny)  # [R]
        shares = self.features.multiply(1 / mass[None]).tocsr().astype(np.float32)
        self.summarize = SparseProduct(sp.csr_array(shares.T))  # [R, N]

    def reach(self, wanted: Tensor, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
        everybody = torch.arange(self.num_nodes)
        return everybody, everybody

    def forward(self, x: Tensor, known: Tensor, keys: Tensor, wanted: Tensor) -> Tensor:
        means = self.summarize(x)  # [R, m]
        return SparseProduct(self.features[wanted.numpy()])(means)


class NoAttention(Attention):
    """Nobody attends to anybody: A = 0."""

    def __init__(self, num_nodes: int) -> None:
        super().__init__()
        self.num_nodes = num_nodes

    def reach(self, wanted: Tensor, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
        return wanted, wanted

    def forward(self, x: Tensor, known: Tensor, keys: Tensor, wanted: Tensor) -> Tensor:
        return x.new_zeros(len(wanted), x.shape[1])

    def matrix(self) -> sp.csr_array:
        return sp.csr_array((self.num_nodes, self.num_nodes), dtype=np.float32)


class GraphAverage(nn.Module):
    """Â x: what a node's neighbours on the graph have, with the weights of their edges."""

    def __init__(self, adjacency: sp.csr_array) -> None:
        super().__init__()
        self.adjacency = adjacency  # [N, N]

    def reach(self, wanted: Tensor) -> Tensor:
        """Return the neighbours of the nodes wanted."""
        return torch.from_numpy(self.adjacency[wanted.numpy()].indices).long()

    def forward(self, x: Tensor, known: Tensor, wanted: Tensor) -> Tensor:
        """Return Â x [q, m] for the nodes wanted, from x [k, m] of those known."""
        edges = self.adjacency[wanted.numpy()]
        return functional.embedding_bag(
            torch.searchsorted(known, torch.from_numpy(edges.indices).long()),
            x,
            torch.from_numpy(edges.indptr).long(),
            mode="sum",
            per_sample_weights=torch.from_numpy(edges.data).to(x.dtype),
            include_last_offset=True,
        )


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
        """Return (Mᴸ table)[nodes] [q, m], with gradients.

        Args:
            table: [N, m].
            nodes: Nodes wanted, which may repeat.
            sparse: Whether the gradient holds only the rows of the table that were touched.
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
    """Return the columns that have entries, and the matrix of those columns."""
    columns, places = np.unique(matrix.indices, return_inverse=True)
    shape = (matrix.shape[0], len(columns))
    places = places.astype(np.int32)
    return columns, sp.csr_array((matrix.data, places, matrix.indptr), shape=shape)
