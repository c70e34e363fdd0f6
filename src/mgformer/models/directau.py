"""DirectAU (Wang et al., KDD 2022, arXiv:2206.12811): optimizes alignment and uniformity directly.

The loss pulls the user and the item of a pair together on the unit sphere, and pushes users apart
and items apart. No negatives are drawn. The embeddings are free, or those of LightGCN (He et al.,
SIGIR 2020, arXiv:2002.02126): the mean of X, ÂX, …, Âᴸ X.

Shapes: N nodes (users, then items), d channels.
"""

from typing import Annotated, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field, NonNegativeFloat, PositiveInt
from torch import Tensor, nn
from torch.nn import functional

from mgformer.data.sampling import Batch
from mgformer.graph.bipartite import Graph
from mgformer.graph.sparse import SparseProduct
from mgformer.models.base import EmbeddingDim, ModelConfig, TrainableModel
from mgformer.models.space import Float, Int
from mgformer.nn.embeddings import OwnProduct, mean_of_layers, normal_table, places_of, rows_at
from mgformer.nn.losses import align_uniform
from mgformer.ranking.score import Kind
from mgformer.ranking.scorers import DotScorer
from mgformer.world import World


class DirectAU(TrainableModel):
    """score(u, i) = z_u · z_i, with z from the encoder."""

    # The loss trains directions only, so cosines suit it better than the authors' dot product.
    score_kinds: ClassVar[tuple[Kind, ...]] = ("prior", "degree")

    class Config(ModelConfig):
        """Options of DirectAU."""

        dim: EmbeddingDim = 64
        """d, channels of the embeddings."""
        encoder: Literal["mf", "lightgcn"] = "lightgcn"
        """mf: a free embedding for every node; lightgcn: embeddings averaged over the graph."""
        num_layers: Annotated[PositiveInt, Int(1, 4, when={"encoder": "lightgcn"})] = 2
        """L, layers of `lightgcn`."""
        uniformity_weight: Annotated[NonNegativeFloat, Float(0.1, 10.0, log=True)] = 0.5
        """Weight of uniformity; γ in the paper."""
        uniformity_t: float = Field(2.0, gt=0, le=20)
        """t in exp(−t ‖·‖²)."""

    config: Config

    def __init__(self, config: ModelConfig, graph: Graph, rng: np.random.Generator) -> None:
        super().__init__(config, graph, rng)
        self.embeddings = normal_table(self.num_nodes, self.config.dim, rng)
        self.propagation: SparseProduct | OwnProduct | None = None
        if self.config.encoder == "lightgcn":
            self.propagation = SparseProduct(graph.adjacency, symmetric=True)

    def encode(self, nodes: Tensor | None = None) -> Tensor:
        """Return z [q, d] of nodes, or [N, d] of all nodes; with shards, of own rows."""
        if self.propagation is not None:
            layers = [self.propagation] * self.config.num_layers
            return mean_of_layers(layers, self.embeddings, nodes)
        if nodes is None:
            return self.embeddings.clone()
        return functional.embedding(nodes, self.embeddings, sparse=self.sparse_gradients)

    def loss(self, batch: Batch, generator: torch.Generator) -> Tensor:
        config, shares = self.config, self.shares(batch)
        sides = batch.users, batch.items + self.num_users
        if shares is not None:
            z_users, z_items = shares[0].encoded(torch.stack(sides, dim=1), self.encode).unbind(1)
        else:
            nodes, (users, items) = places_of(*sides)
            z = self.encode(nodes)
            z_users, z_items = rows_at(z, users), rows_at(z, items)
        return align_uniform(
            z_users,
            z_items,
            config.uniformity_weight,
            t=config.uniformity_t,
            sides="mean",
            shares=shares,
        )

    def shard(self, world: World) -> None:
        shards = self.keep_own(world, "embeddings")
        if isinstance(self.propagation, SparseProduct):
            self.propagation = OwnProduct(self.propagation.matrix, shards)

    def scorer(self) -> DotScorer:
        with torch.no_grad():
            return self.dot_scorer(self.encode())

    @classmethod
    def takes_rows(cls, config: ModelConfig) -> bool:
        assert isinstance(config, cls.Config)
        return config.encoder == "mf"

    def tables(self) -> list[nn.Parameter]:
        return [self.embeddings] if self.propagation is None else []
