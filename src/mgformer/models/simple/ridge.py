"""Ridge: regresses every item on the items nearest to it, in closed form.

It is EASE with few predictors for each item: sparse, parallel, and linear in the number of items.
`graph/regression.py` has the equations.
"""

from typing import Annotated

from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt

from mgformer.graph.regression import local_ridge
from mgformer.models.base import Model, ModelConfig
from mgformer.models.space import Float, Int
from mgformer.ranking.scorers import HistoryScorer


class Ridge(Model):
    """scores(u) = r_u B, with column j of B from a ridge regression on the N nearest items of j."""

    class Config(ModelConfig):
        """Options of ridge."""

        num_predictors: Annotated[PositiveInt, Int(20, 400, log=True)] = 200
        """N, items that predict an item."""
        l2: Annotated[PositiveFloat, Float(10.0, 1e3, log=True)] = 60.0
        """λ, penalty on the weight of every predictor."""
        dropout: Annotated[NonNegativeFloat, Float(0.0, 1.0)] = 0.5
        """ρ, penalty per user of the predictor. It holds back popular items."""

    config: Config

    def scorer(self) -> HistoryScorer:
        config, r = self.config, self.graph.interactions
        return HistoryScorer(r, local_ridge(r, config.num_predictors, config.l2, config.dropout))
