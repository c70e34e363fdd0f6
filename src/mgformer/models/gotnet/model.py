"""GOTNet (Chen, Yeh, Wang & Yang, WWW 2022): LightGCN with attention to centroids of the nodes.

A reconstruction. There is no public code, and of the paper only what its abstract says, and what a
patent of the same authors says alike, is certain: nodes are clustered by k-means on their GNN
embeddings; nodes attend to the centroids, which carries messages between distant but similar
nodes; this is combined with the local operator of an existing GNN, which may then be shallow; and
its references lead to Sinkhorn's algorithm. All below is open there, and was decided here:

    clusters    of users and of items apart, K each: soft k-means by entropic transport with equal
                cluster sizes (Genevay et al., 2019, arXiv:1910.09036), without which centroids
                collapse. The cost is the squared distance over its mean, a constant to the
                gradient, so that ε and the weight of the loss do not depend on lengths.
    centroids   parameters, which start as random nodes and are trained by ⟨π, D⟩ with the plan π
                held fixed, which is the exact gradient at the optimum; or a step of k-means from
                the centroids before. No projection before the cost: it would be trained to zero.
                Nodes are not trained by ⟨π, D⟩ (see `attract`).
    attention   Ĥ = softmax(s H Cᵀ / √(d/h)) C, with h heads, within a side; C is a constant to the
                gradient of the ranking loss. There may be learned W_Q, W_K, W_V in front of H, C, C
                (`matrices`): but they serve all nodes at once, so they grow faster than any node
                can, and z is soon little more than its cluster.
    result      Z = H + β Ĥ, or both side by side, with H of LightGCN.
    loss        BPR on Z, L2 on X, and λ_c (⟨π, D⟩ of users + ⟨π, D⟩ of items).

Figures obtained with it are those of this reading, not of the authors' program.

Shapes: N nodes (users, then items), n of one side, d channels, K centroids; q nodes wanted.
"""

import math
from typing import ClassVar, Literal, NamedTuple, cast

import numpy as np
import torch
from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt, model_validator
from torch import Tensor, nn

from mgformer.data.sampling import Batch
from mgformer.graph.bipartite import Graph
from mgformer.models.base import ModelConfig
from mgformer.models.gotnet.transport import squared_distances, transport_plan
from mgformer.models.lightgcn import LightGCN
from mgformer.models.space import Float, Int, Space
from mgformer.nn.kernel_attention import softmax_attention


class GOTNet(LightGCN):
    """score(u, i) = z_u · z_i, with z from the graph and from the centroids."""

    class Config(LightGCN.Config):
        """Options of GOTNet."""

        num_layers: PositiveInt = 2
        """L, steps on the graph."""
        num_centroids: PositiveInt = 32
        """K, of users and of items each; at most as many as there are."""
        clustering: Literal["trained", "kmeans"] = "trained"
        """Centroids are parameters, or follow the nodes by a step of k-means in every batch."""
        epsilon: PositiveFloat = 0.1
        """ε, weight of the entropy of the plan, in units of the mean squared distance."""
        num_rounds: PositiveInt = 10
        """T, rounds of Sinkhorn's algorithm."""
        num_heads: PositiveInt = 1
        """h; every head attends for its share of the channels."""
        sharpness: PositiveFloat = 16.0
        """s, without matrices, which learn it."""
        matrices: bool = False
        """Whether queries, keys and values are learned maps of nodes and centroids."""
        attention_weight: NonNegativeFloat = 0.5
        """β, weight of what centroids say."""
        combine: Literal["sum", "concat"] = "sum"
        """Z = H + β Ĥ, or [H, β Ĥ], which adds the products of the two."""
        transport_weight: NonNegativeFloat = 0.01
        """λ_c, weight of the distance to the centroids."""
        attract: bool = False
        """Whether the distance moves the nodes too, and not only the centroids. It reaches all
        nodes in every step, and Adam makes steps of full length of however small a gradient:
        nodes are then drawn to the centroids faster than the batches can tell them apart."""

        @model_validator(mode="after")
        def _possible(self) -> "GOTNet.Config":
            if self.dim % self.num_heads:
                raise ValueError(
                    f"dim = {self.dim} channels cannot be shared by num_heads = {self.num_heads}"
                    " heads; choose a divisor"
                )
            return self

    space: ClassVar[Space] = {
        **LightGCN.space,
        "num_layers": Int(1, 3),
        "num_centroids": Int(8, 128, log=True),
        "attention_weight": Float(0.1, 1.0),
        "transport_weight": Float(1e-3, 0.1, log=True),
    }

    config: Config

    def __init__(self, config: ModelConfig, graph: Graph, rng: np.random.Generator) -> None:
        super().__init__(config, graph, rng)
        with torch.no_grad():
            h = super().encode()
        self.sides = nn.ModuleList(Side(self.config, part, rng) for part in self._split(h))

    def encode(self, nodes: Tensor | None = None) -> Tensor:
        """Return z of nodes, of all [N, d] if not given."""
        h = super().encode()
        z = self._combined(h, torch.arange(len(h)), self._clusters(h))
        return z if nodes is None else z[nodes]

    def loss(self, batch: Batch, generator: torch.Generator) -> Tensor:
        triple = self.triple(batch, generator)
        h = super().encode()  # of all nodes: they all have a share in the centroids
        clusters = self._clusters(h)
        for side, found in zip(self._sides(), clusters, strict=True):
            side.keep(found)
        ranking = self.ranking_loss(triple, self._combined(h, triple.nodes, clusters))
        return ranking + self.config.transport_weight * sum(found.cost for found in clusters)

    def _clusters(self, h: Tensor) -> list["Clusters"]:
        """Return the clusters of users and of items for h [N, d]."""
        parts = zip(self._sides(), self._split(h), strict=True)
        return [side.cluster(part) for side, part in parts]

    def _combined(self, h: Tensor, nodes: Tensor, clusters: list["Clusters"]) -> Tensor:
        """Return z [q, d] of nodes in order, from h [N, d]."""
        first = int((nodes < self.num_users).sum())
        h = h[nodes]
        parts = zip(self._sides(), (h[:first], h[first:]), clusters, strict=True)
        far = torch.cat([side(part, found.centroids) for side, part, found in parts])
        far = self.config.attention_weight * far
        return h + far if self.config.combine == "sum" else torch.cat([h, far], dim=1)

    def _split(self, h: Tensor) -> tuple[Tensor, Tensor]:
        """Return the rows [n, d] of users and of items."""
        return h[: self.num_users], h[self.num_users :]

    def _sides(self) -> list["Side"]:
        return cast(list[Side], list(self.sides))


class Clusters(NamedTuple):
    """What nodes attend to, and how far they are from it."""

    centroids: Tensor  # C [K, d]
    cost: Tensor  # ⟨π, D⟩, scalar


class Side(nn.Module):
    """The centroids of users, or of items, and the attention to them."""

    def __init__(self, config: GOTNet.Config, h: Tensor, rng: np.random.Generator) -> None:
        """Begin with nodes of h [n, d] as centroids."""
        super().__init__()
        self.config = config
        chosen = rng.choice(len(h), min(config.num_centroids, len(h)), replace=False)
        start = h[torch.from_numpy(chosen)]
        trained = config.clustering == "trained"
        self.centroids: Tensor = nn.Parameter(start) if trained else nn.Buffer(start)  # C [K, d]
        self.matrices = None
        if config.matrices:
            bound = math.sqrt(6 / (2 * config.dim))  # Xavier's
            drawn = rng.uniform(-bound, bound, size=(3, config.dim, config.dim))
            self.matrices = nn.Parameter(torch.from_numpy(drawn).float())  # W_Q, W_K, W_V

    def cluster(self, h: Tensor) -> Clusters:
        """Return the clusters of all nodes [n, d] of the side, for the centroids as they are."""
        points = h if self.config.attract else h.detach()
        cost = squared_distances(points, self.centroids)  # [n, K]
        scale = cost.detach().mean().clamp_min(torch.finfo(cost.dtype).tiny)
        cost = cost / scale
        plan = transport_plan(cost.detach(), self.config.epsilon, self.config.num_rounds)
        if self.config.clustering == "trained":
            return Clusters(self.centroids, (plan * cost).sum())
        return Clusters(len(self.centroids) * plan.T @ h.detach(), (plan * cost).sum())

    def keep(self, clusters: Clusters) -> None:
        """Begin the next step of k-means where this one ended."""
        if self.config.clustering == "kmeans":
            self.centroids = clusters.centroids

    def forward(self, h: Tensor, centroids: Tensor) -> Tensor:
        """Return Ĥ [q, d] of nodes [q, d]."""
        num_heads, centroids = self.config.num_heads, centroids.detach()
        scale = (h.shape[1] // num_heads) ** -0.5
        if self.matrices is None:
            parts = (h * (scale * self.config.sharpness), centroids, centroids)
        else:
            w_query, w_key, w_value = self.matrices
            parts = (h @ w_query * scale, centroids @ w_key, centroids @ w_value)
        heads = zip(*(part.chunk(num_heads, dim=1) for part in parts), strict=True)
        return torch.cat([softmax_attention(*head) for head in heads], dim=1)
