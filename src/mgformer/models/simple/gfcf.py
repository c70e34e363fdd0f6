"""GF-CF (Shen et al., CIKM 2021, arXiv:2108.07567): a history as a signal on the item graph.

The filter is the sum of a linear one (two steps on the graph) and an ideal low-pass one (the
leading singular vectors). Items without users have degree 0. The authors' code divides by zero
there; here their D^(±1/2) is 0.

Shapes: U users, I items, F factors; R and its normalized form R̃ are [U, I], V is [I, F].
"""

from typing import Annotated

import numpy as np
import torch
from pydantic import NonNegativeFloat, PositiveInt

from mgformer.graph.bipartite import inverse_sqrt
from mgformer.graph.spectral import feasible_rank, truncated_svd
from mgformer.models.base import Model, ModelConfig
from mgformer.models.space import Float, Int
from mgformer.ranking.scorers import HistoryScorer


class GFCF(Model):
    """scores(u) = r_u R̃ᵀR̃ + α r_u D_i^(-1/2) V Vᵀ D_i^(1/2), V leading right vectors of R̃."""

    class Config(ModelConfig):
        """Options of GF-CF."""

        rank: Annotated[PositiveInt, Int(16, 512, log=True)] = 256
        """Number of singular vectors of the low-pass filter; at most min(users, items) are used."""
        alpha: Annotated[NonNegativeFloat, Float(0.0, 1.0)] = 0.3
        """Weight of the low-pass filter. With 0 only the linear filter is used."""

    config: Config

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
