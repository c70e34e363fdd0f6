"""GF-CF (Shen et al., CIKM 2021, arXiv:2108.07567): filter a history as a signal on the item graph.

A linear filter (two steps on the graph) plus an ideal low-pass filter (the leading spectrum).
Items without users have degree 0; their D^(±1/2) is 0, where the authors' code divides by zero.

Shapes: U users, I items, F factors; R and its normalised form R̃ are [U, I], V is [I, F].
"""

from typing import ClassVar, cast

import numpy as np
import torch
from pydantic import NonNegativeFloat, PositiveInt

from mgformer.graph.bipartite import Graph, inverse_sqrt
from mgformer.graph.spectral import feasible_rank, truncated_svd
from mgformer.models.base import Model, ModelConfig
from mgformer.models.space import Float, Int, Space
from mgformer.ranking.scorers import HistoryScorer


class GFCF(Model):
    """scores(u) = r_u R̃ᵀR̃ + α r_u D_i^(-1/2) V Vᵀ D_i^(1/2), V leading right vectors of R̃."""

    class Config(ModelConfig):
        """Options of GF-CF."""

        rank: PositiveInt = 256
        """Singular vectors of the low-pass filter; lowered to min(users, items) on smaller data."""
        alpha: NonNegativeFloat = 0.3
        """Weight of the low-pass filter; 0 leaves the linear one alone."""

    space: ClassVar[Space] = {"rank": Int(16, 512, log=True), "alpha": Float(0.0, 1.0)}

    def __init__(self, config: ModelConfig, graph: Graph, rng: np.random.Generator) -> None:
        self.config = cast(GFCF.Config, config)
        self.graph = graph
        self.rng = rng

    def scorer(self) -> HistoryScorer:
        histories, normalized = self.graph.interactions, self.graph.normalized
        if self.config.alpha == 0:
            return HistoryScorer(histories, through=normalized)
        rank = feasible_rank(self.config.rank, normalized)
        vectors = truncated_svd(normalized, rank, self.rng).right
        degrees = self.graph.item_degrees
        shrink = torch.from_numpy(inverse_sqrt(degrees)).float()[:, None]
        grow = torch.from_numpy(np.sqrt(degrees)).float()[:, None]
        return HistoryScorer(
            histories,
            through=normalized,
            left=shrink * vectors,
            right=self.config.alpha * grow * vectors,
        )
