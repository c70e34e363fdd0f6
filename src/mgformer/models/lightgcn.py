"""LightGCN (He et al., SIGIR 2020, arXiv:2002.02126): embeddings averaged over the graph.

Z = (X + ÂX + … + Âᴸ X) / (L + 1), trained so that seen items score above unseen ones. Only X is
regularised, as in the authors' code.

Shapes: N nodes (users, then items), d channels; B pairs, C negatives for each.
"""

from typing import ClassVar, NamedTuple, cast

import numpy as np
import torch
from pydantic import NonNegativeFloat, PositiveInt
from torch import Tensor

from mgformer.data.sampling import Batch, UnseenItems
from mgformer.graph.bipartite import Graph
from mgformer.models.base import ModelConfig, TrainableModel
from mgformer.models.space import Choice, Float, Int, Space
from mgformer.nn.losses import bpr, info_nce, l2_of_rows
from mgformer.nn.propagation import Propagation, places_of
from mgformer.nn.tables import drawn_table
from mgformer.ranking.scorers import DotScorer

SPREAD = 0.1
"""Deviation of the embeddings before training, as in the authors' code."""


class Triple(NamedTuple):
    """A batch with negatives, as nodes, and as places in the list of its different nodes."""

    nodes: Tensor  # [q], in order
    users: Tensor  # [B], places in `nodes`
    items: Tensor  # [B]
    others: Tensor  # [B, C]


class LightGCN(TrainableModel):
    """score(u, i) = z_u · z_i. The models that add a term to its loss inherit from it."""

    spread: float | None = SPREAD

    class Config(ModelConfig):
        """Options of LightGCN."""

        dim: PositiveInt = 64
        """d, channels of the embeddings."""
        num_layers: PositiveInt = 3
        """L, steps on the graph."""
        num_negatives: PositiveInt = 1
        """Unseen items drawn for every pair."""
        l2: NonNegativeFloat = 1e-4
        """Weight of half the squared norms of the rows of X of a pair."""

    space: ClassVar[Space] = {
        "dim": Choice((32, 64, 128)),
        "num_layers": Int(1, 4),
        "l2": Float(1e-6, 1e-2, log=True),
    }

    def __init__(self, config: ModelConfig, graph: Graph, rng: np.random.Generator) -> None:
        super().__init__()
        self.config = config = cast(LightGCN.Config, config)
        self.num_users = graph.num_users
        self.unseen = UnseenItems(graph.interactions)
        self.embeddings = drawn_table(graph.num_nodes, config.dim, rng, self.spread)  # X
        self.propagation = Propagation(graph.adjacency)

    def encode(self, nodes: Tensor | None = None) -> Tensor:
        """Return z of nodes, of all [N, d] if not given."""
        return self.propagation.mean(self.embeddings, self.config.num_layers, nodes)

    def loss(self, batch: Batch, generator: torch.Generator) -> Tensor:
        triple = self.triple(batch, generator)
        return self.ranking_loss(triple, self.encode(triple.nodes))

    def triple(self, batch: Batch, generator: torch.Generator) -> Triple:
        """Return the batch with negatives drawn."""
        negatives = self.unseen.draw(batch.users, self.config.num_negatives, generator)
        nodes, places = places_of(
            batch.users, batch.items + self.num_users, negatives + self.num_users
        )
        return Triple(nodes, *places)

    def ranking_loss(self, triple: Triple, z: Tensor) -> Tensor:
        """Return BPR on z [q, d] of the nodes of a batch, and L2 on their rows of X."""
        places = (triple.users, triple.items, triple.others)
        x = self.embeddings[triple.nodes]
        ranking = bpr(*(z[p] for p in places))
        return ranking + self.config.l2 * l2_of_rows(*(x[p] for p in places))

    def scorer(self) -> DotScorer:
        with torch.no_grad():
            z = self.encode()
        return DotScorer(z[: self.num_users].clone(), z[self.num_users :].clone())


def contrast_within(triple: Triple, one: Tensor, other: Tensor, temperature: float) -> Tensor:
    """Return InfoNCE of two views [q, d] among the batch's different users, and its items."""
    total = torch.zeros((), dtype=one.dtype)
    for places in (triple.users, triple.items):
        rows = places.unique()
        total = total + info_nce(one[rows], other[rows], temperature)
    return total
