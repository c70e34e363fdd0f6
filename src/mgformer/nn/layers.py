"""Layers of attention among the nodes of a graph, which compute only the rows that are wanted.

A layer is asked first which nodes it needs (`reach`), then for the wanted rows of A x, given x of
the nodes it needs. Node numbers are sorted and without repetition wherever rows go with them.

Shapes: N nodes, m channels, H heads, F features of a head, K neighbours, R landmarks; k nodes
known, q wanted, j keys.
"""

import math
from abc import ABC, abstractmethod

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from mgformer.graph.landmarks import landmark_features
from mgformer.graph.neighbors import nearest_nodes
from mgformer.graph.products import SparseProduct
from mgformer.nn.attention import (
    edge_attention,
    edge_scores,
    kernel_attention,
    linear_attention,
    log_key_features,
    log_query_features,
    sine_mask,
    softmax_attention,
)
from mgformer.nn.features import FEATURE_MAPS

CHUNK = 16_384
"""Nodes whose features are held at a time."""


class Attention(nn.Module, ABC):
    """Attention of nodes to nodes, without a residual."""

    @abstractmethod
    def reach(self, wanted: Tensor, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
        """Return the nodes [k] whose rows are needed for those wanted [q], and the keys [j].

        Keys may be a sample drawn from the generator; without one they are all there are.
        """

    @abstractmethod
    def forward(self, x: Tensor, known: Tensor, keys: Tensor, wanted: Tensor) -> Tensor:
        """Return A x [q, m] for the nodes wanted, from x [k, m] of those known."""


class DegreeAngles(nn.Module):
    """Angles c = πz/4 of the sine mask; z = σ(w · embedding of the degree) lies in (0, 1)."""

    def __init__(self, degrees: NDArray[np.int64], dim: int, rng: np.random.Generator) -> None:
        super().__init__()
        distinct, places = np.unique(degrees, return_inverse=True)
        self.places = nn.Buffer(torch.from_numpy(places), persistent=False)  # [N]
        self.embedding = nn.Parameter(_normal(rng, len(distinct), dim))
        self.projection = nn.Parameter(_normal(rng, dim) / math.sqrt(dim))

    def forward(self, nodes: Tensor) -> Tensor:
        """Return the angles [q] of nodes."""
        z = (self.embedding[self.places[nodes]] @ self.projection).sigmoid()
        return math.pi / 4 * z


class NoAttention(Attention):
    """Nobody attends to anybody: A = 0."""

    def reach(self, wanted: Tensor, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
        return wanted, wanted

    def forward(self, x: Tensor, known: Tensor, keys: Tensor, wanted: Tensor) -> Tensor:
        return x.new_zeros(len(wanted), x.shape[1])


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


class QueryKeyAttention(Attention):
    """Attention with learned queries and keys, and values without a transform: Eq. (5)."""

    def __init__(
        self,
        channels: int,
        num_heads: int,
        start: tuple[int, float] | None,
        angles: DegreeAngles | None,
        num_nodes: int,
        rng: np.random.Generator,
    ) -> None:
        """Begin with random matrices, or with `start`.

        Args:
            channels: m.
            num_heads: H.
            start: (d, scale): W_Q = W_K = scale on the channels from d on, zero on the others;
                None: Xavier's uniform numbers.
            angles: Of the sine mask, if there is one.
            num_nodes: N.
            rng: Source of the matrices.
        """
        super().__init__()
        self.num_heads, self.num_nodes, self.angles = num_heads, num_nodes, angles
        if start is None:
            bound = math.sqrt(6 / (2 * channels))
            drawn = rng.uniform(-bound, bound, size=(2, channels, channels))
            w_query, w_key = torch.from_numpy(drawn).float()
        else:
            first, scale = start
            w_query = w_key = torch.diag(scale * (torch.arange(channels) >= first).float())
        self.w_query, self.w_key = nn.Parameter(w_query.clone()), nn.Parameter(w_key.clone())

    def reach(self, wanted: Tensor, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
        everybody = torch.arange(self.num_nodes)
        return everybody, everybody

    def forward(self, x: Tensor, known: Tensor, keys: Tensor, wanted: Tensor) -> Tensor:
        of_queries = x[torch.searchsorted(known, wanted)]
        of_keys = x if len(keys) == len(known) else x[torch.searchsorted(known, keys)]
        scale = (x.shape[1] // self.num_heads) ** -0.25
        queries, keys_ = (
            (side @ w * scale).chunk(self.num_heads, dim=1)
            for side, w in ((of_queries, self.w_query), (of_keys, self.w_key))
        )
        values = of_keys.chunk(self.num_heads, dim=1)
        heads = [
            self.attend(head, *inputs, keys, wanted)
            for head, inputs in enumerate(zip(queries, keys_, values, strict=True))
        ]
        return torch.cat(heads, dim=1)

    @abstractmethod
    def attend(
        self,
        head: int,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        nodes: Tensor,
        wanted: Tensor,
    ) -> Tensor:
        """Return the attention [q, m/H] of one head; `nodes` are those of the keys."""

    def angles_of(self, nodes: Tensor) -> Tensor | None:
        """Return the angles of the mask, if there is one."""
        return None if self.angles is None else self.angles(nodes)


class ExactAttention(QueryKeyAttention):
    """Softmax over all pairs, O(q·N): for small graphs."""

    def attend(
        self,
        head: int,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        nodes: Tensor,
        wanted: Tensor,
    ) -> Tensor:
        angles, query_angles = self.angles_of(nodes), self.angles_of(wanted)
        return softmax_attention(queries, keys, values, angles, query_angles=query_angles)


class KernelAttention(QueryKeyAttention):
    """Masked kernel attention at linear cost: Eq. (6)-(12)."""

    def __init__(
        self,
        channels: int,
        num_heads: int,
        start: tuple[int, float] | None,
        angles: DegreeAngles | None,
        num_nodes: int,
        rng: np.random.Generator,
        *,
        features: str,
        num_features: int,
        key_sample: int | None,
        edges: sp.csr_array | None,
    ) -> None:
        """Build the layer.

        Args:
            channels: m.
            num_heads: H.
            start: See `QueryKeyAttention`.
            angles: Of the sine mask, if there is one.
            num_nodes: N.
            rng: Source of all that is drawn.
            features: Name of the feature map.
            num_features: F, of each head.
            key_sample: Keys drawn for a training step; None: all nodes.
            edges: [N, N] whose pattern is the mask, if it is the adjacency.
        """
        super().__init__(channels, num_heads, start, angles, num_nodes, rng)
        self.map, self.edges = FEATURE_MAPS[features], edges
        self.key_sample, self.num_features = key_sample, num_features
        # Random features are kept in checkpoints: they may have been drawn anew since the start.
        drawn = (num_heads, num_features, channels // num_heads)
        self.projections = nn.Buffer(torch.zeros(drawn)) if self.map.project else None
        self.draw(rng)

    def draw(self, rng: np.random.Generator) -> None:
        """Draw the random features anew."""
        if self.map.project is not None and self.projections is not None:
            for projection in self.projections:
                projection.copy_(self.map.project(self.num_features, projection.shape[1], rng))

    def reach(self, wanted: Tensor, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
        if self.edges is not None:
            neighbors = torch.from_numpy(self.edges[wanted.numpy()].indices).long()
            known = torch.cat([wanted, neighbors]).unique()
            return known, known
        if self.key_sample is None or generator is None or self.key_sample >= self.num_nodes:
            return super().reach(wanted, generator)
        keys = torch.randint(self.num_nodes, (self.key_sample,), generator=generator).unique()
        return torch.cat([wanted, keys]).unique(), keys

    def attend(
        self,
        head: int,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        nodes: Tensor,
        wanted: Tensor,
    ) -> Tensor:
        angles, query_angles = self.angles_of(nodes), self.angles_of(wanted)
        projection = None if self.projections is None else self.projections[head]
        if self.map.log:
            assert projection is not None
            if self.edges is not None:
                return self._over_edges(queries, keys, values, projection, nodes, wanted)
            chunk = CHUNK if len(keys) > CHUNK else None
            return kernel_attention(
                queries, keys, values, projection, angles, query_angles=query_angles, chunk=chunk
            )
        q_features, k_features = self.map(queries, projection), self.map(keys, projection)
        if angles is not None:
            q_features, k_features = sine_mask(q_features, k_features, angles, query_angles)
        return linear_attention(q_features, k_features, values)

    def _over_edges(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        projection: Tensor,
        nodes: Tensor,
        wanted: Tensor,
    ) -> Tensor:
        """Attend along the edges of the graph only."""
        assert self.edges is not None
        part = self.edges[wanted.numpy()]
        rows = torch.from_numpy(np.repeat(np.arange(len(wanted)), np.diff(part.indptr)))
        columns = torch.searchsorted(nodes, torch.from_numpy(part.indices).long())
        scores = edge_scores(
            log_query_features(queries, projection, None),
            log_key_features(keys, projection, None),
            rows,
            columns,
        )
        return edge_attention(scores, rows, columns, values, len(wanted))


def _normal(rng: np.random.Generator, *shape: int) -> Tensor:
    return torch.from_numpy(rng.standard_normal(shape, dtype=np.float32))
