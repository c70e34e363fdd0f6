"""LightGCN (He et al., SIGIR 2020, arXiv:2002.02126): embeddings averaged over the graph.

Z = (X + ÂX + … + Âᴸ X) / (L + 1), trained to rank seen items above unseen ones. Only X is
regularized, as in the authors' code.

Shapes: N nodes (users, then items), d channels; B pairs, C negatives for each; q nodes of a batch.
"""

from typing import Annotated, ClassVar, NamedTuple

import numpy as np
import torch
from pydantic import NonNegativeFloat, PositiveInt
from torch import Tensor

from mgformer.data.sampling import Batch, UnseenItems
from mgformer.device import first_of_each, on_host
from mgformer.graph.bipartite import Graph
from mgformer.graph.sparse import SparseProduct
from mgformer.models.base import EmbeddingDim, ModelConfig, TrainableModel
from mgformer.models.space import Float, Int
from mgformer.nn.embeddings import OwnProduct, mean_of_layers, normal_table, places_of, rows_at
from mgformer.nn.losses import bpr, info_nce, l2_of_rows
from mgformer.ranking.scorers import DotScorer
from mgformer.world import Shards, World


class Triple(NamedTuple):
    """A batch with negatives: its distinct nodes, and the place of each entry among them."""

    nodes: Tensor  # [q], ascending; on a device in the order of the other fields
    users: Tensor  # [B], places in `nodes`
    items: Tensor  # [B]
    others: Tensor  # [B, C]
    num_users: int  # nodes that are users; they come first


class LightGCN(TrainableModel):
    """score(u, i) = z_u · z_i. Models that add a term to its loss inherit from it."""

    deviation: ClassVar[float | None] = 0.1
    """Standard deviation of X before training, as in the authors' code; None: Xavier's."""

    class Config(ModelConfig):
        """Options of LightGCN."""

        dim: EmbeddingDim = 64
        """d, channels of the embeddings."""
        num_layers: Annotated[PositiveInt, Int(1, 4)] = 3
        """L, layers of propagation."""
        num_negatives: PositiveInt = 1
        """Unseen items drawn for each pair."""
        l2: Annotated[NonNegativeFloat, Float(1e-6, 1e-2, log=True)] = 1e-4
        """Weight of half the squared norms of the rows of X of a pair."""

    config: Config

    def __init__(self, config: ModelConfig, graph: Graph, rng: np.random.Generator) -> None:
        super().__init__(config, graph, rng)
        self.unseen = UnseenItems(graph.interactions)
        self.embeddings = normal_table(self.num_nodes, self.config.dim, rng, self.deviation)  # X
        self.propagation: SparseProduct | OwnProduct = SparseProduct(
            graph.adjacency, symmetric=True
        )

    def encode(self, nodes: Tensor | None = None) -> Tensor:
        """Return z [q, d] of nodes, or [N, d] of all nodes; with shards, of own rows."""
        return mean_of_layers([self.propagation] * self.config.num_layers, self.embeddings, nodes)

    def loss(self, batch: Batch, generator: torch.Generator) -> Tensor:
        if self.shards is not None:
            return self._share_of_loss(batch, generator, self.shards)
        triple = self.triple(batch, generator)
        return self.ranking_loss(triple, self.encode(triple.nodes))

    def triple(self, batch: Batch, generator: torch.Generator) -> Triple:
        """Draw negatives for a batch."""
        negatives = self.unseen.draw(batch.users, self.config.num_negatives, generator)
        nodes, places = places_of(
            batch.users, batch.items + self.num_users, negatives + self.num_users
        )
        num_users = int((nodes < self.num_users).sum()) if on_host(nodes) else len(batch.users)
        users, items, others = places
        return Triple(nodes, users, items, others, num_users)

    def ranking_loss(self, triple: Triple, z: Tensor) -> Tensor:
        """Return BPR on z [q, d] of the nodes of a batch, plus L2 on their rows of X."""
        places = (triple.users, triple.items, triple.others)
        x = rows_at(self.embeddings, triple.nodes)
        ranking = bpr(*(rows_at(z, p) for p in places))
        return ranking + self.config.l2 * l2_of_rows(*(rows_at(x, p) for p in places))

    def _share_of_loss(self, batch: Batch, generator: torch.Generator, shards: Shards) -> Tensor:
        """Return the share of this process in the loss: processes draw the same negatives."""
        negatives = self.unseen.draw(batch.users, self.config.num_negatives, generator)
        nodes = torch.stack([batch.users, batch.items + self.num_users], dim=1)
        nodes = torch.cat([nodes, negatives + self.num_users], dim=1)  # [B, 2 + C]
        z = shards.encoded(nodes, self.encode)
        size = len(batch.users)
        ranking = bpr(z[:, 0], z[:, 1], z[:, 2:], batch=size)
        x = rows_at(self.embeddings, shards.places(nodes.flatten())[1])
        return ranking + self.config.l2 * l2_of_rows(x, batch=size)

    def shard(self, world: World) -> None:
        if type(self).loss is not LightGCN.loss:  # a model that adds to it
            super().shard(world)
        shards = self.keep_own(world, "embeddings")
        assert isinstance(self.propagation, SparseProduct)
        self.propagation = OwnProduct(self.propagation.matrix, shards)

    def scorer(self) -> DotScorer:
        with torch.no_grad():
            return self.dot_scorer(self.encode())


def contrast_within(triple: Triple, one: Tensor, other: Tensor, temperature: float) -> Tensor:
    """Return InfoNCE of two views [q, d] among the users of a batch, plus among its items."""
    total = one.new_zeros(())
    for places in (triple.users, triple.items):
        rows, counted = places, None
        if on_host(places):
            rows = places.unique()
        else:  # rows stay as many as pairs, and repeated ones do not count
            counted = first_of_each(triple.nodes[places])
        views = rows_at(one, rows), rows_at(other, rows)
        total = total + info_nce(*views, temperature, counted=counted)
    return total
