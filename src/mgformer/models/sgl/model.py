"""SGL (Wu et al., SIGIR 2021, arXiv:2010.10783): LightGCN that agrees with itself on thin graphs.

Two views of the graph are drawn for every epoch. A node's embedding in the first is to be told
apart among those of all users, or of all items, in the second, as in the authors' SGL-Torch; or
among those of the batch.

Shapes: N nodes (users, then items), d channels; q nodes of a batch.
"""

from typing import ClassVar, Literal

import numpy as np
import torch
from pydantic import Field, NonNegativeFloat, PositiveFloat
from torch import Tensor

from mgformer.data.sampling import Batch
from mgformer.graph.bipartite import Graph
from mgformer.models.base import ModelConfig
from mgformer.models.lightgcn import LightGCN, Triple, contrast_within
from mgformer.models.sgl.thinning import Thinning
from mgformer.models.space import Float, Space
from mgformer.nn.losses import info_nce
from mgformer.nn.propagation import Propagation, mean_of_layers

View = list[Propagation]
"""The steps on the graph, first to last."""


class SGL(LightGCN):
    """score(u, i) = z_u · z_i, with z of LightGCN on the whole graph."""

    spread = None

    class Config(LightGCN.Config):
        """Options of SGL."""

        view: Literal["edges", "nodes", "walk"] = "edges"
        """What a view leaves out: pairs, nodes with their pairs, or other pairs for every layer."""
        dropped: float = Field(0.1, ge=0, lt=1)
        """ρ, the share that is left out."""
        contrast_weight: NonNegativeFloat = 0.1
        """λ₁, weight of the agreement of the views."""
        temperature: PositiveFloat = 0.2
        """τ."""
        candidates: Literal["all", "batch"] = "all"
        """Among whom a node is to be told apart: all users or items, as in the authors' code, or
        those of the batch, as in SELFRec's, at a cost that does not grow with the graph."""

    space: ClassVar[Space] = {
        **LightGCN.space,
        "dropped": Float(0.0, 0.5),
        "contrast_weight": Float(5e-3, 1.0, log=True),
        "temperature": Float(0.1, 1.0, log=True),
    }

    config: Config

    def __init__(self, config: ModelConfig, graph: Graph, rng: np.random.Generator) -> None:
        super().__init__(config, graph, rng)
        self.thinning = Thinning(graph)
        self.on_epoch(rng)

    def on_epoch(self, rng: np.random.Generator) -> None:
        self.views = [self._draw(rng) for _ in range(2)]

    def _draw(self, rng: np.random.Generator) -> View:
        by_nodes, walk = self.config.view == "nodes", self.config.view == "walk"
        draw = self.thinning.without_nodes if by_nodes else self.thinning.without_pairs
        graphs = self.config.num_layers if walk else 1
        drawn = [Propagation(draw(self.config.dropped, rng)) for _ in range(graphs)]
        return drawn if walk else drawn * self.config.num_layers

    def loss(self, batch: Batch, generator: torch.Generator) -> Tensor:
        triple = self.triple(batch, generator)
        ranking = self.ranking_loss(triple, self.encode(triple.nodes))
        return ranking + self.config.contrast_weight * self.contrast(triple)

    def contrast(self, triple: Triple) -> Tensor:
        """Return InfoNCE of the two views, of the batch's users and of its items."""
        first, second = self.views
        temperature = self.config.temperature
        one = mean_of_layers(first, self.embeddings, triple.nodes)  # [q, d]
        if self.config.candidates == "batch":
            other = mean_of_layers(second, self.embeddings, triple.nodes)
            return contrast_within(triple, one, other, temperature)
        other = mean_of_layers(second, self.embeddings)  # [N, d]
        sides = other[: self.num_users], other[self.num_users :]
        return sum(
            (
                info_nce(one[places], other[triple.nodes[places]], temperature, candidates=side)
                for places, side in zip((triple.users, triple.items), sides, strict=True)
            ),
            start=torch.zeros(()),
        )
