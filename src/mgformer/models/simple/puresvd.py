"""PureSVD (Cremonesi et al., RecSys 2010): projects a history on the leading item factors.

It scores unseen items by the best low-rank approximation of the interaction matrix.

Shapes: U users, I items, F factors; R is [U, I], V is [I, F].
"""

from typing import Annotated

from pydantic import PositiveInt

from mgformer.graph.spectral import feasible_rank, truncated_svd
from mgformer.models.base import Model, ModelConfig
from mgformer.models.space import Choice, Int
from mgformer.ranking.scorers import HistoryScorer


class PureSVD(Model):
    """scores(u) = r_u V Vᵀ, with V the leading right singular vectors of R."""

    class Config(ModelConfig):
        """Options of PureSVD."""

        rank: Annotated[PositiveInt, Int(4, 512, log=True)] = 64
        """Number of singular vectors; at most min(users, items) are used."""
        normalized: Annotated[bool, Choice((False, True))] = False
        """Take the singular vectors of D_u^(-1/2) R D_i^(-1/2) instead of those of R."""

    config: Config

    def scorer(self) -> HistoryScorer:
        matrix = self.graph.normalized if self.config.normalized else self.graph.interactions
        rank = feasible_rank(self.config.rank, matrix)
        right = truncated_svd(matrix, rank, self.rng).right
        return HistoryScorer(self.graph.interactions, left=right, right=right)
