"""BPRMF (Rendle et al., UAI 2009, arXiv:1205.2618): ranks seen items above unseen ones.

Every user and every item has a free embedding. There are no biases, as in all comparisons of
graph models.

Shapes: N nodes (users, then items), d channels; B pairs, C negatives for each.
"""

from typing import Annotated

import numpy as np
import torch
from pydantic import NonNegativeFloat, PositiveInt
from torch import Tensor, nn

from mgformer.data.sampling import Batch, UnseenItems
from mgformer.graph.bipartite import Graph
from mgformer.models.base import EmbeddingDim, ModelConfig, TrainableModel
from mgformer.models.space import Float, Int
from mgformer.nn.embeddings import normal_table
from mgformer.nn.losses import bpr, l2_of_rows
from mgformer.ranking.scorers import DotScorer
from mgformer.world import World


class BPRMF(TrainableModel):
    """score(u, i) = p_u · q_i."""

    class Config(ModelConfig):
        """Options of BPRMF."""

        dim: EmbeddingDim = 64
        """d, channels of the embeddings."""
        num_negatives: Annotated[PositiveInt, Int(1, 64, log=True)] = 1
        """Unseen items drawn for each pair. More negatives often help a lot."""
        l2: Annotated[NonNegativeFloat, Float(1e-6, 1e-2, log=True)] = 1e-4
        """Weight of half the squared norms of the embeddings of a pair."""

    config: Config

    def __init__(self, config: ModelConfig, graph: Graph, rng: np.random.Generator) -> None:
        super().__init__(config, graph, rng)
        self.unseen = UnseenItems(graph.interactions)
        self.embeddings = normal_table(self.num_nodes, self.config.dim, rng)  # [N, d]

    def loss(self, batch: Batch, generator: torch.Generator) -> Tensor:
        negatives = self.unseen.draw(batch.users, self.config.num_negatives, generator)
        users, items, others = (
            self.lookup(self.embeddings, nodes)
            for nodes in (batch.users, batch.items + self.num_users, negatives + self.num_users)
        )
        batch_size = None if self.shards is None else len(batch.users)
        penalty = l2_of_rows(users, items, others, batch=batch_size)
        return bpr(users, items, others, batch=batch_size) + self.config.l2 * penalty

    def shard(self, world: World) -> None:
        self.keep_own(world, "embeddings")

    def scorer(self) -> DotScorer:
        return self.dot_scorer(self.embeddings.detach().clone())

    def tables(self) -> list[nn.Parameter]:
        return [self.embeddings]
