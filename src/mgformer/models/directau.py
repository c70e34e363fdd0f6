"""DirectAU (Wang et al., KDD 2022, arXiv:2206.12811): alignment and uniformity, optimised directly.

Pulls the users and items of pairs together and pushes users apart, and items apart, on the unit
sphere; no negatives are drawn. The embeddings are free, or those of LightGCN (He et al., SIGIR
2020, arXiv:2002.02126): the mean of X, ÂX, …, Âᴸ X.

Shapes: N nodes (users, then items), d channels.
"""

from typing import ClassVar, Literal, cast

import numpy as np
import torch
from pydantic import Field, NonNegativeFloat, PositiveInt
from torch import Tensor, nn

from mgformer.data.sampling import Batch
from mgformer.graph.bipartite import Graph
from mgformer.models.base import ModelConfig, TrainableModel
from mgformer.models.space import Choice, Float, Int, Space
from mgformer.nn.losses import align_uniform
from mgformer.nn.propagation import Propagation, places_of
from mgformer.nn.tables import drawn_table
from mgformer.ranking.score import Kind
from mgformer.ranking.scorers import DotScorer


class DirectAU(TrainableModel):
    """score(u, i) = z_u · z_i, with z from the encoder."""

    # The authors rank by the raw product; directions are what the loss trains (scoring.py).
    score_kinds: ClassVar[tuple[Kind, ...]] = ("prior", "degree")

    class Config(ModelConfig):
        """Options of DirectAU."""

        dim: PositiveInt = 64
        """d, channels of the embeddings."""
        encoder: Literal["mf", "lightgcn"] = "lightgcn"
        """mf: a free embedding for every node; lightgcn: averaged over the graph."""
        num_layers: PositiveInt = 2
        """L, steps on the graph, with `lightgcn`."""
        uniformity_weight: NonNegativeFloat = 0.5
        """γ of the paper."""
        uniformity_t: float = Field(2.0, gt=0, le=20)
        """t in exp(−t ‖·‖²)."""

    space: ClassVar[Space] = {
        "dim": Choice((32, 64, 128)),
        "num_layers": Int(1, 4, when={"encoder": "lightgcn"}),
        "uniformity_weight": Float(0.1, 10.0, log=True),
    }

    def __init__(self, config: ModelConfig, graph: Graph, rng: np.random.Generator) -> None:
        super().__init__()
        self.config = config = cast(DirectAU.Config, config)
        self.num_users = graph.num_users
        self.embeddings = drawn_table(graph.num_nodes, config.dim, rng)
        self.propagation = Propagation(graph.adjacency) if config.encoder == "lightgcn" else None

    def encode(self, nodes: Tensor | None = None) -> Tensor:
        """Return z of nodes, of all [N, d] if not given."""
        if self.propagation is not None:
            return self.propagation.mean(self.embeddings, self.config.num_layers, nodes)
        if nodes is None:
            return self.embeddings
        return nn.functional.embedding(nodes, self.embeddings, sparse=self.sparse_gradients)

    def loss(self, batch: Batch, generator: torch.Generator) -> Tensor:
        nodes, (users, items) = places_of(batch.users, batch.items + self.num_users)
        z = self.encode(nodes)
        config = self.config
        return align_uniform(
            z[users], z[items], config.uniformity_weight, t=config.uniformity_t, sides="mean"
        )

    def scorer(self) -> DotScorer:
        with torch.no_grad():
            z = self.encode().detach()  # which is the table itself with `mf`
        return DotScorer(z[: self.num_users].clone(), z[self.num_users :].clone())

    def tables(self) -> list[nn.Parameter]:
        return [self.embeddings] if self.propagation is None else []
