"""GOTNet (Chen, Yeh, Wang & Yang, WWW 2022): LightGCN with attention to centroids of the nodes.

This is a reconstruction: the authors published no code. Its results are those of this reading of
the paper. Certain is only what the abstract and a patent of the same authors say: k-means clusters
the nodes by their GNN embeddings; nodes attend to the centroids, which carries messages between
distant but similar nodes; this is combined with the local operator of an existing GNN, which may
then be shallow. The references point to Sinkhorn's algorithm. We decided the rest:

    clusters    K of users and K of items, by soft k-means: entropic transport with equal cluster
                sizes (Genevay et al., 2019, arXiv:1910.09036). Without equal sizes the centroids
                collapse. The cost is the squared distance divided by its mean, a constant to the
                gradient, so that ε and the weight of the loss do not depend on lengths.
    centroids   parameters that start as random nodes and are trained by ⟨π, D⟩ with the plan π
                held fixed, which is the exact gradient at the optimum; or a step of k-means from
                the last centroids. There is no projection before the cost: training would make
                it zero. ⟨π, D⟩ does not train the nodes (see `attract`).
    attention   Ĥ = softmax(s H Cᵀ / √(d/h)) C, with h heads, for users and items separately. C is
                a constant to the gradient of the ranking loss. With `matrices`, W_Q, W_K, W_V are
                learned. They serve all nodes at once and grow faster than any embedding, so that
                z soon says little more than the cluster of a node.
    result      Z = H + β Ĥ, or both side by side, with H of LightGCN.
    loss        BPR on Z, L2 on X, and λ_c (⟨π, D⟩ of users + ⟨π, D⟩ of items).

Shapes: N nodes (users, then items), n of one side, d channels, K centroids; q nodes of a batch.
"""

from collections.abc import Iterable, Sequence
from typing import Annotated, ClassVar, Literal

import numpy as np
import torch
from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt, model_validator
from torch import Tensor, nn

from mgformer.data.sampling import Batch
from mgformer.graph.bipartite import Graph
from mgformer.models.base import ModelConfig, heads_must_divide
from mgformer.models.lightgcn import LightGCN
from mgformer.models.space import Float, Int
from mgformer.nn.embeddings import rows_at, xavier_matrices
from mgformer.nn.kernel_attention import softmax_attention


class GOTNet(LightGCN):
    """score(u, i) = z_u · z_i, with z from the graph and from the centroids."""

    bf16: ClassVar[bool] = True

    class Config(LightGCN.Config):
        """Options of GOTNet."""

        num_layers: Annotated[PositiveInt, Int(1, 3)] = 2
        """L, layers of propagation."""
        num_centroids: Annotated[PositiveInt, Int(8, 128, log=True)] = 32
        """K, centroids of users and of items each; at most as many as there are users or items."""
        clustering: Literal["trained", "kmeans"] = "trained"
        """trained: centroids are parameters; kmeans: a step of k-means moves them in each batch."""
        epsilon: PositiveFloat = 0.1
        """ε, weight of the entropy of the plan, relative to the mean squared distance."""
        num_rounds: PositiveInt = 10
        """T, rounds of Sinkhorn's algorithm."""
        num_heads: PositiveInt = 1
        """h, heads of attention; they split the channels evenly."""
        sharpness: PositiveFloat = 16.0
        """s, scale of the attention scores. It has no effect with `matrices`, which learn it."""
        matrices: bool = False
        """Whether queries, keys and values are learned maps of nodes and centroids."""
        attention_weight: Annotated[NonNegativeFloat, Float(0.1, 1.0)] = 0.5
        """β, weight of attention to the centroids."""
        combine: Literal["sum", "concat"] = "sum"
        """sum: Z = H + β Ĥ; concat: Z = [H, β Ĥ]."""
        transport_weight: Annotated[NonNegativeFloat, Float(1e-3, 0.1, log=True)] = 0.01
        """λ_c, weight of the distance between nodes and centroids."""
        attract: bool = False
        """Whether that distance moves the nodes too, not only the centroids. It reaches all nodes
        in every step, and Adam turns even a small gradient into a full step: nodes then move to
        the centroids faster than the batches can separate them."""

        @model_validator(mode="after")
        def _heads_divide_channels(self) -> "GOTNet.Config":
            heads_must_divide("dim", self.dim, self.num_heads)
            return self

    config: Config

    def __init__(self, config: ModelConfig, graph: Graph, rng: np.random.Generator) -> None:
        super().__init__(config, graph, rng)
        with torch.no_grad():
            h = super().encode()
        parts = h[: self.num_users], h[self.num_users :]
        self._sides = [Side(self.config, part, rng) for part in parts]
        self.sides = nn.ModuleList(self._sides)

    def encode(self, nodes: Tensor | None = None) -> Tensor:
        h = super().encode()
        centroids, _ = self._clusters(h)
        everybody = torch.arange(len(h), device=h.device)
        z = self._combined(h, everybody, self.num_users, centroids)
        return z if nodes is None else rows_at(z, nodes)

    def loss(self, batch: Batch, generator: torch.Generator) -> Tensor:
        triple = self.triple(batch, generator)
        h = super().encode()  # of all nodes: all of them are clustered
        centroids, costs = self._clusters(h)
        if self.config.clustering == "kmeans":
            for side, of_side in zip(self._sides, centroids, strict=True):
                side.centroids = of_side  # the next step starts from these
        ranking = self.ranking_loss(
            triple, self._combined(h, triple.nodes, triple.num_users, centroids)
        )
        return ranking + self.config.transport_weight * sum(costs)

    def _clusters(self, h: Tensor) -> Iterable[tuple[Tensor, ...]]:
        """Return the centroids of users and of items for h [N, d], and their costs."""
        parts = h[: self.num_users], h[self.num_users :]
        found = [side.cluster(part) for side, part in zip(self._sides, parts, strict=True)]
        return zip(*found, strict=True)

    def _combined(
        self, h: Tensor, nodes: Tensor, num_users: int, centroids: Sequence[Tensor]
    ) -> Tensor:
        """Return z [q, d] of nodes, of which the first are users, from h [N, d]."""
        h = rows_at(h, nodes)
        parts = zip(self._sides, (h[:num_users], h[num_users:]), centroids, strict=True)
        attended = torch.cat([side(part, of_side) for side, part, of_side in parts])
        attended = self.config.attention_weight * attended
        return h + attended if self.config.combine == "sum" else torch.cat([h, attended], dim=1)


class Side(nn.Module):
    """The centroids of users, or of items, and the attention to them."""

    def __init__(self, config: GOTNet.Config, h: Tensor, rng: np.random.Generator) -> None:
        """Start with random rows of h [n, d] as centroids."""
        super().__init__()
        self.config = config
        chosen = rng.choice(len(h), min(config.num_centroids, len(h)), replace=False)
        start = h[torch.from_numpy(chosen)]
        trained = config.clustering == "trained"
        self.centroids: Tensor = nn.Parameter(start) if trained else nn.Buffer(start)  # C [K, d]
        self.matrices = None
        if config.matrices:
            self.matrices = nn.Parameter(xavier_matrices(3, config.dim, rng))  # W_Q, W_K, W_V

    def cluster(self, h: Tensor) -> tuple[Tensor, Tensor]:
        """Cluster all nodes [n, d] of the side: return centroids C [K, d] and ⟨π, D⟩."""
        points = h if self.config.attract else h.detach()
        cost = squared_distances(points, self.centroids)  # [n, K]
        scale = cost.detach().mean().clamp_min(torch.finfo(cost.dtype).tiny)
        cost = cost / scale
        plan = transport_plan(cost.detach(), self.config.epsilon, self.config.num_rounds)
        if self.config.clustering == "trained":
            return self.centroids, (plan * cost).sum()
        return len(self.centroids) * plan.T @ h.detach(), (plan * cost).sum()

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


def squared_distances(points: Tensor, centroids: Tensor) -> Tensor:
    """Return ‖p - c‖² [n, K] of points [n, d] and centroids [K, d]."""
    lengths = points.square().sum(1, keepdim=True) + centroids.square().sum(1)  # [n, K]
    return torch.addmm(lengths, points, centroids.T, alpha=-2).clamp_min(0)


def transport_plan(cost: Tensor, epsilon: float, num_rounds: int) -> Tensor:
    """Return the plan π [n, K] that minimizes ⟨π, cost⟩ - ε H(π) with rows 1/n, columns 1/K.

    Every point gives the same mass and every centroid receives the same mass, so no centroid stays
    empty. This is Sinkhorn's algorithm (Cuturi, NIPS 2013, arXiv:1306.0895) in the log domain. A
    round sets the potentials f of the rows, then g of the columns. Once f is set, the plan is
    softmax((g - cost) / ε) / n; so a round is one softmax and one sum, and f is never computed.
    Columns are exact after any round, rows in the limit.
    """
    num_points, num_centroids = cost.shape
    logits = cost / -epsilon
    potentials = cost.new_zeros(num_centroids)  # g / ε
    shares, masses = logits, potentials
    for _ in range(num_rounds):
        shares = (logits + potentials).softmax(1)
        # The mass of a centroid far from all points may underflow; the bound moves it closer.
        masses = shares.mean(0).clamp_min(torch.finfo(cost.dtype).tiny) * num_centroids
        potentials = potentials - masses.log()
    return shares / (masses * num_points)
