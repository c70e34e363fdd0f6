"""DirectAU (Wang et al., KDD 2022, arXiv:2206.12811): alignment and uniformity, optimised directly.

Pulls the users and items of pairs together and pushes users apart, and items apart, on the unit
sphere; no negatives are drawn. The embeddings are free, or those of LightGCN (He et al., SIGIR
2020, arXiv:2002.02126): the mean of X, ÂX, …, Âᴸ X.

Shapes: N nodes (users, then items), d channels.
"""

import math
from typing import ClassVar, Literal, cast

import numpy as np
import torch
from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt
from torch import Tensor, nn

from mgformer.data.sampling import Batch
from mgformer.graph.bipartite import Graph
from mgformer.graph.products import SparseProduct
from mgformer.models.base import ModelConfig, TrainableModel
from mgformer.nn.losses import align_uniform
from mgformer.ranking.scorers import DotScorer
from mgformer.ranking.scoring import Kind


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
        uniformity_t: PositiveFloat = 2.0
        """t in exp(−t ‖·‖²)."""

    def __init__(self, config: ModelConfig, graph: Graph, rng: np.random.Generator) -> None:
        super().__init__()
        self.config = config = cast(DirectAU.Config, config)
        self.num_users = graph.num_users
        spread = math.sqrt(2 / (graph.num_nodes + config.dim))  # Xavier's, for normal numbers
        drawn = rng.standard_normal((graph.num_nodes, config.dim), dtype=np.float32)
        self.embeddings = nn.Parameter(torch.from_numpy(drawn * np.float32(spread)))
        self.propagate = SparseProduct(graph.adjacency) if config.encoder == "lightgcn" else None

    def encode(self) -> Tensor:
        """Return z [N, d]."""
        if self.propagate is None:
            return self.embeddings
        x: Tensor = self.embeddings
        total = x
        for _ in range(self.config.num_layers):
            x = self.propagate(x)
            total = total + x
        return total / (self.config.num_layers + 1)

    def loss(self, batch: Batch, generator: torch.Generator) -> Tensor:
        nodes = (batch.users, batch.items + self.num_users)
        if self.propagate is None:
            users, items = (
                nn.functional.embedding(n, self.embeddings, sparse=self.sparse_gradients)
                for n in nodes
            )
        else:
            z = self.encode()
            users, items = (z[n] for n in nodes)
        config = self.config
        return align_uniform(
            users, items, config.uniformity_weight, t=config.uniformity_t, sides="mean"
        )

    def scorer(self) -> DotScorer:
        with torch.no_grad():
            z = self.encode()
        return DotScorer(z[: self.num_users].clone(), z[self.num_users :].clone())

    def tables(self) -> list[nn.Parameter]:
        return [self.embeddings] if self.propagate is None else []
