"""Layers of attention among the nodes of a graph that compute only the rows of some nodes.

`DegreeAngles` is Eq. (10) of the MGFormer paper, and `KernelAttention` Eq. (5) to (12) with the
functions of `nn.kernel_attention`.

To compute rows of some nodes, first ask a layer which nodes they depend on (`reach`). Then call it
with x of these nodes. Lists of nodes that stand for rows are ascending and have no duplicates.

Shapes: N nodes, m channels, H heads, F features of a head; q nodes wanted, k nodes known, j keys.
"""

import math
from abc import ABC, abstractmethod

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mgformer.graph.bipartite import Graph
from mgformer.graph.sparse import csr_matmul, row_numbers
from mgformer.models.mgformer.options import MGFormerConfig
from mgformer.nn import kernel_attention as attention
from mgformer.nn.embeddings import normal_table, rows_at, xavier_matrices
from mgformer.nn.features import FEATURE_MAPS

CHUNK = 16_384
"""Nodes whose features are held at a time."""


class Attention(nn.Module, ABC):
    """Attention A among nodes, without a residual."""

    def __init__(self, num_nodes: int) -> None:
        super().__init__()
        self.num_nodes = num_nodes

    def reach(self, wanted: Tensor, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
        """Return the nodes [k] that the wanted nodes [q] depend on, and the keys [j] among them.

        The layer may draw a sample of keys from the generator. Without a generator it uses all.
        """
        all_nodes = torch.arange(self.num_nodes)
        return all_nodes, all_nodes

    @abstractmethod
    def forward(self, x: Tensor, known: Tensor, keys: Tensor, wanted: Tensor) -> Tensor:
        """Return A x [q, m] of the wanted nodes, from x [k, m] of the known nodes."""


class DegreeAngles(nn.Module):
    """Angles c = πz/4 of the sine mask sin(c_i + c_j), Eq. (10).

    z = σ(w · embedding of the degree) lies in (0, 1) and is learned.
    """

    def __init__(self, degrees: NDArray[np.int64], dim: int, rng: np.random.Generator) -> None:
        super().__init__()
        distinct, places = np.unique(degrees, return_inverse=True)
        self.places = nn.Buffer(torch.from_numpy(places), persistent=False)  # [N]
        self.embedding = normal_table(len(distinct), dim, rng, deviation=1.0)
        drawn = rng.standard_normal(dim, dtype=np.float32)
        self.projection = nn.Parameter(torch.from_numpy(drawn) / math.sqrt(dim))

    def forward(self, nodes: Tensor) -> Tensor:
        """Return the angles [q] of nodes."""
        z = (rows_at(self.embedding, self.places[nodes]) @ self.projection).sigmoid()
        return math.pi / 4 * z


class KernelAttention(Attention):
    """Attention with queries x W_Q, keys x W_K and values x: Eq. (5) to (12).

    Features make its cost linear. With attention = softmax there are none, and it compares all
    pairs in O(q·N), for small graphs or few sampled keys.
    """

    def __init__(
        self,
        config: MGFormerConfig,
        graph: Graph,
        angles: DegreeAngles | None,
        rng: np.random.Generator,
    ) -> None:
        super().__init__(graph.num_nodes)
        self.num_heads, self.key_sample, self.angles = config.num_heads, config.key_sample, angles
        channels = config.dim + config.rank
        width = channels // self.num_heads
        if config.query_init == "xavier":
            w_query, w_key = xavier_matrices(2, channels, rng)
        else:
            # With this scale the factor of a cosine of encodings in the scores is the sharpness.
            scale = math.sqrt(config.sharpness) * width**0.25 / config.encoding_scale
            w_query = w_key = torch.diag(scale * (torch.arange(channels) >= config.dim).float())
        self.w_query, self.w_key = nn.Parameter(w_query.clone()), nn.Parameter(w_key.clone())
        self.map = FEATURE_MAPS[config.features] if config.attention == "kernel" else None
        self.edges = graph.adjacency if config.mask == "adjacency" else None
        drawn = torch.zeros(self.num_heads, config.num_features or width, width)
        # Checkpoints keep the random features, because `draw` may have replaced the first ones.
        self.projections = nn.Buffer(drawn) if self.map and self.map.project else None
        self.draw(rng)

    @property
    def has_summary(self) -> bool:
        """Whether all keys are summarized by positive features, which `insides` can show."""
        return self.map is not None and self.map.log and self.edges is None

    def draw(self, rng: np.random.Generator) -> None:
        """Draw new random features."""
        if self.projections is not None and self.map and self.map.project:
            for projection in self.projections:
                projection.copy_(self.map.project(len(projection), projection.shape[1], rng))

    def reach(self, wanted: Tensor, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
        if self.edges is not None:
            known = torch.cat([wanted, graph_neighbors(self.edges, wanted)]).unique()
            return known, known
        if self.key_sample is None or generator is None or self.key_sample >= self.num_nodes:
            return super().reach(wanted, generator)
        keys = torch.randint(self.num_nodes, (self.key_sample,), generator=generator).unique()
        return torch.cat([wanted, keys]).unique(), keys

    def forward(self, x: Tensor, known: Tensor, keys: Tensor, wanted: Tensor) -> Tensor:
        of_queries = x[torch.searchsorted(known, wanted)]
        of_keys = x if len(keys) == len(known) else x[torch.searchsorted(known, keys)]
        parts = (*self.projected(of_queries, of_keys), of_keys.chunk(self.num_heads, dim=1))
        heads = [
            self._head(head, queries, of_head, values, keys, wanted)
            for head, (queries, of_head, values) in enumerate(zip(*parts, strict=True))
        ]
        return torch.cat(heads, dim=1)

    def projected(self, of_queries: Tensor, of_keys: Tensor) -> list[tuple[Tensor, ...]]:
        """Return queries and keys of each head, [·, m/H], scaled by (m/H)^(-1/4)."""
        scale = (of_keys.shape[1] // self.num_heads) ** -0.25
        return [
            (side @ w * scale).chunk(self.num_heads, dim=1)
            for side, w in ((of_queries, self.w_query), (of_keys, self.w_key))
        ]

    def angles_of(self, nodes: Tensor) -> Tensor | None:
        """Return the angles of the sine mask, or None without a mask."""
        return None if self.angles is None else self.angles(nodes)

    def _head(
        self,
        head: int,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        key_nodes: Tensor,
        query_nodes: Tensor,
    ) -> Tensor:
        """Return the attention [q, m/H] of one head."""
        angles, query_angles = self.angles_of(key_nodes), self.angles_of(query_nodes)
        if self.map is None:
            return attention.softmax_attention(
                queries, keys, values, angles, query_angles=query_angles
            )
        projection = None if self.projections is None else self.projections[head]
        if not self.map.log or projection is None:
            features = self.map(queries, projection), self.map(keys, projection)
            if angles is not None:
                features = attention.sine_mask(*features, angles, query_angles)
            return attention.linear_attention(*features, values)
        if self.edges is None:
            return attention.kernel_attention(
                queries, keys, values, projection, angles, query_angles=query_angles, chunk=CHUNK
            )
        # Along the edges of the graph only: Eq. (8) with M = A.
        part = self.edges[query_nodes.numpy()]
        rows = torch.from_numpy(row_numbers(part)).long()
        columns = torch.searchsorted(key_nodes, torch.from_numpy(part.indices).long())
        scores = attention.edge_scores(
            attention.log_query_features(queries, projection, None),
            attention.log_key_features(keys, projection, None),
            rows,
            columns,
        )
        return attention.edge_attention(scores, rows, columns, values, part.shape[0])


def graph_neighbors(adjacency: sp.csr_array, nodes: Tensor) -> Tensor:
    """Return the neighbors of nodes on the graph, with duplicates."""
    return torch.from_numpy(adjacency[nodes.numpy()].indices).long()


def graph_sums(adjacency: sp.csr_array, x: Tensor, known: Tensor, wanted: Tensor) -> Tensor:
    """Return Â x [q, m] of the wanted nodes, from x [k, m] of the known nodes."""
    rows = adjacency[wanted.numpy()]
    places = np.searchsorted(known.numpy(), rows.indices).astype(np.int32)
    shape = (len(wanted), len(known))
    return csr_matmul(sp.csr_array((rows.data, places, rows.indptr), shape=shape), x)
