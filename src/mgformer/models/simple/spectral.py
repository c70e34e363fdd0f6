"""Models that project a history on the leading singular vectors: PureSVD and GF-CF.

Shapes: U users, I items, F factors; R and its normalized form R̃ are [U, I], V is [I, F].
"""

from typing import Annotated, ClassVar

import numpy as np
import torch
from pydantic import NonNegativeFloat, PositiveInt

from mgformer.graph.bipartite import inverse_sqrt
from mgformer.graph.spectral import feasible_rank, truncated_svd
from mgformer.models.base import Model, ModelConfig
from mgformer.models.space import Choice, Float, Int
from mgformer.ranking.scorers import HistoryScorer


class PureSVD(Model):
    """scores(u) = r_u V Vᵀ, with V the leading right singular vectors of R.

    This is the best low-rank approximation of R (Cremonesi et al., RecSys 2010).
    """

    class Config(ModelConfig):
        """Options of PureSVD."""

        rank: Annotated[PositiveInt, Int(4, 512, log=True)] = 64
        """Number of singular vectors; at most min(users, items) are used."""
        normalized: Annotated[bool, Choice((False, True))] = False
        """Take the singular vectors of D_u^(-1/2) R D_i^(-1/2) instead of those of R."""

    weights: ClassVar[str | None] = "co-occurrences add √(w_ui w_uj)"
    config: Config

    def scorer(self) -> HistoryScorer:
        graph = self.graph
        matrix = graph.weighted_normalized if self.config.normalized else graph.weighted
        rank = feasible_rank(self.config.rank, matrix)
        right = truncated_svd(matrix, rank, self.rng).right
        return HistoryScorer(self.graph.interactions, left=right, right=right)


class GFCF(Model):
    """scores(u) = r_u R̃ᵀR̃ + α r_u D_i^(-1/2) V Vᵀ D_i^(1/2), V leading right vectors of R̃.

    A history is a signal on the item graph (Shen et al., CIKM 2021, arXiv:2108.07567). The first
    filter is linear, two steps on the graph; the second is an ideal low-pass filter. The authors'
    code divides by zero for items without users; here their D^(±1/2) is 0.
    """

    class Config(ModelConfig):
        """Options of GF-CF."""

        rank: Annotated[PositiveInt, Int(16, 512, log=True)] = 256
        """Number of singular vectors of the low-pass filter; at most min(users, items) are used."""
        alpha: Annotated[NonNegativeFloat, Float(0.0, 1.0)] = 0.3
        """Weight of the low-pass filter. With 0 only the linear filter is used."""

    weights: ClassVar[str | None] = "edges of the graph have these weights, degrees are their sums"
    config: Config

    def scorer(self) -> HistoryScorer:
        histories, normalized = self.graph.interactions, self.graph.weighted_normalized
        if self.config.alpha == 0:
            return HistoryScorer(histories, through=normalized)
        rank = feasible_rank(self.config.rank, normalized)
        vectors = truncated_svd(normalized, rank, self.rng).right
        degrees = self.graph.item_strengths
        shrink = torch.from_numpy(inverse_sqrt(degrees)).float()[:, None]
        grow = torch.from_numpy(np.sqrt(degrees)).float()[:, None]
        left, right = shrink * vectors, self.config.alpha * grow * vectors
        return HistoryScorer(histories, through=normalized, left=left, right=right)
