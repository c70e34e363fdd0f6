"""RP3β (Paudel et al., TiiS 2017): a random walk of three steps that penalizes popular items.

The walk goes from the user to an item, to one of its users, to one of that user's items. Its
first step has the same probability for all items of a user and is left out. As in Dacrema et al.
(TOIS 2021, arXiv:1911.07698), each row of W keeps its K largest entries and is scaled to sum 1;
then each column keeps its K largest entries.

Shapes: U users, I items; R is [U, I], W is [I, I] and row i says what item i recommends.
"""

from typing import Annotated

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from pydantic import NonNegativeFloat, PositiveInt

from mgformer.graph.sparse import scaled, top_of_product, top_per_row
from mgformer.models.base import Model, ModelConfig
from mgformer.models.space import Float, Int
from mgformer.ranking.scorers import HistoryScorer


class RP3Beta(Model):
    """scores(u) = r_u W, W_ij = d_j^(-β) Σ_v d_i^(-α) d_v^(-α) over users v of both i and j."""

    class Config(ModelConfig):
        """Options of RP3β."""

        num_neighbors: Annotated[PositiveInt, Int(5, 1000, log=True)] = 300
        """K, entries kept in each row and then in each column."""
        alpha: Annotated[NonNegativeFloat, Float(0.0, 2.0)] = 0.7
        """Exponent of the transition probabilities; 1 is the plain random walk."""
        beta: Annotated[NonNegativeFloat, Float(0.0, 2.0)] = 0.4
        """Penalty on popular items; 0 gives the method P3α."""

    config: Config

    def scorer(self) -> HistoryScorer:
        config, r = self.config, self.graph.interactions
        users, items = self.graph.user_degrees, self.graph.item_degrees
        # d_i^(-α) is constant in a row and cancels when rows are scaled to sum 1.
        to_items = scaled(r, _power(users, config.alpha), _power(items, config.beta))
        walk = top_of_product(r.T.tocsr(), to_items, config.num_neighbors)
        totals = np.asarray(walk.sum(axis=1)).ravel()
        walk.data /= np.repeat(totals, np.diff(walk.indptr))
        weights = top_per_row(sp.csr_array(walk.T.tocsr()), config.num_neighbors)
        return HistoryScorer(r, sp.csr_array(weights.T.tocsr()))


def _power(degrees: NDArray[np.int64], exponent: float) -> NDArray[np.float64]:
    """Return degrees^(-exponent), with 1 for degree 0: such a node has no entries to scale."""
    return np.maximum(degrees, 1).astype(np.float64) ** -exponent
