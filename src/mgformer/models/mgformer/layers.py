"""Layers of attention among the nodes of a graph, which compute only the rows that are wanted.

A layer is asked first which nodes it needs (`reach`), then for the wanted rows of A x, given x of
the nodes it needs. Node numbers are sorted and without repetition wherever rows go with them.

Shapes: N nodes, m channels, H heads, F features of a head; k nodes known, q wanted, j keys.
"""

import math
from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mgformer.nn.features import FEATURE_MAPS
from mgformer.nn.kernel_attention import (
    edge_attention,
    edge_scores,
    kernel_attention,
    linear_attention,
    log_key_features,
    log_query_features,
    sine_mask,
    softmax_attention,
)

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

    def matrix(self) -> sp.csr_array | None:
        """Return A [N, N], if it is sparse and training does not change it."""
        return None


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


class Heads(NamedTuple):
    """What the forms of attention with queries and keys have in common."""

    channels: int
    """m, shared out evenly among the heads."""
    num_heads: int
    num_nodes: int
    start: tuple[int, float] | None
    """(d, scale): W_Q = W_K = scale on the channels from d on, zero on the others, at the start;
    None: Xavier's uniform numbers."""
    angles: DegreeAngles | None
    """Of the sine mask, if there is one."""
    key_sample: int | None = None
    """Keys drawn for a training step; None: all nodes."""


class HeadInputs(NamedTuple):
    """What one head attends with."""

    queries: Tensor  # [q, m/H]
    keys: Tensor  # [n, m/H]
    values: Tensor  # [n, m/H]
    key_nodes: Tensor  # [n]
    query_nodes: Tensor  # [q]


class QueryKeyAttention(Attention):
    """Attention with learned queries and keys, and values without a transform: Eq. (5)."""

    def __init__(self, heads: Heads, rng: np.random.Generator) -> None:
        super().__init__()
        channels, self.num_heads, self.num_nodes, start, self.angles, self.key_sample = heads
        if start is None:
            bound = math.sqrt(6 / (2 * channels))
            drawn = rng.uniform(-bound, bound, size=(2, channels, channels))
            w_query, w_key = torch.from_numpy(drawn).float()
        else:
            first, scale = start
            w_query = w_key = torch.diag(scale * (torch.arange(channels) >= first).float())
        self.w_query, self.w_key = nn.Parameter(w_query.clone()), nn.Parameter(w_key.clone())

    def reach(self, wanted: Tensor, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
        if self.key_sample is None or generator is None or self.key_sample >= self.num_nodes:
            everybody = torch.arange(self.num_nodes)
            return everybody, everybody
        keys = torch.randint(self.num_nodes, (self.key_sample,), generator=generator).unique()
        return torch.cat([wanted, keys]).unique(), keys

    def forward(self, x: Tensor, known: Tensor, keys: Tensor, wanted: Tensor) -> Tensor:
        of_queries = x[torch.searchsorted(known, wanted)]
        of_keys = x if len(keys) == len(known) else x[torch.searchsorted(known, keys)]
        queries, keys_ = self.projected(of_queries, of_keys)
        values = of_keys.chunk(self.num_heads, dim=1)
        heads = [
            self.attend(head, HeadInputs(*inputs, keys, wanted))
            for head, inputs in enumerate(zip(queries, keys_, values, strict=True))
        ]
        return torch.cat(heads, dim=1)

    def projected(self, of_queries: Tensor, of_keys: Tensor) -> list[tuple[Tensor, ...]]:
        """Return the queries and the keys of each head, [·, m/H], from rows of m channels."""
        scale = (of_keys.shape[1] // self.num_heads) ** -0.25
        return [
            (side @ w * scale).chunk(self.num_heads, dim=1)
            for side, w in ((of_queries, self.w_query), (of_keys, self.w_key))
        ]

    @abstractmethod
    def attend(self, head: int, inputs: HeadInputs) -> Tensor:
        """Return the attention [q, m/H] of one head."""

    def angles_of(self, nodes: Tensor) -> Tensor | None:
        """Return the angles of the mask, if there is one."""
        return None if self.angles is None else self.angles(nodes)


class ExactAttention(QueryKeyAttention):
    """Softmax over all pairs, O(q·N): for small graphs, or with few keys drawn."""

    def attend(self, head: int, inputs: HeadInputs) -> Tensor:
        angles, query_angles = map(self.angles_of, inputs[3:])
        return softmax_attention(*inputs[:3], angles, query_angles=query_angles)


class KernelAttention(QueryKeyAttention):
    """Masked kernel attention at linear cost: Eq. (6)-(12)."""

    def __init__(
        self,
        heads: Heads,
        rng: np.random.Generator,
        *,
        features: str,
        num_features: int,
        edges: sp.csr_array | None,
    ) -> None:
        """Build the layer.

        Args:
            heads: Channels, heads, nodes and their start.
            rng: Source of all that is drawn.
            features: Name of the feature map.
            num_features: F, of each head.
            edges: [N, N] whose pattern is the mask, if it is the adjacency.
        """
        super().__init__(heads, rng)
        self.map, self.edges = FEATURE_MAPS[features], edges
        self.num_features = num_features
        # Random features are kept in checkpoints: they may have been drawn anew since the start.
        drawn = (heads.num_heads, num_features, heads.channels // heads.num_heads)
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
        return super().reach(wanted, generator)

    def attend(self, head: int, inputs: HeadInputs) -> Tensor:
        queries, keys, values = inputs[:3]
        angles, query_angles = map(self.angles_of, inputs[3:])
        projection = None if self.projections is None else self.projections[head]
        if self.map.log:
            assert projection is not None
            if self.edges is not None:
                return self._over_edges(inputs, projection, self.edges)
            chunk = CHUNK if len(keys) > CHUNK else None
            return kernel_attention(
                queries, keys, values, projection, angles, query_angles=query_angles, chunk=chunk
            )
        q_features, k_features = self.map(queries, projection), self.map(keys, projection)
        if angles is not None:
            q_features, k_features = sine_mask(q_features, k_features, angles, query_angles)
        return linear_attention(q_features, k_features, values)

    def _over_edges(self, inputs: HeadInputs, projection: Tensor, edges: sp.csr_array) -> Tensor:
        """Attend along the edges of the graph only."""
        part = edges[inputs.query_nodes.numpy()]
        num_queries = len(inputs.query_nodes)
        rows = torch.from_numpy(np.repeat(np.arange(num_queries), np.diff(part.indptr)))
        columns = torch.searchsorted(inputs.key_nodes, torch.from_numpy(part.indices).long())
        scores = edge_scores(
            log_query_features(inputs.queries, projection, None),
            log_key_features(inputs.keys, projection, None),
            rows,
            columns,
        )
        return edge_attention(scores, rows, columns, inputs.values, num_queries)


def _normal(rng: np.random.Generator, *shape: int) -> Tensor:
    return torch.from_numpy(rng.standard_normal(shape, dtype=np.float32))
