"""RP3β (Paudel et al., TiiS 2017): three steps of a random walk, popular items penalised.

The walk goes from the user to an item, to one of its users, to one of that user's items; its
first step is the same for all of a user's items and is left out. As in Dacrema et al. (TOIS 2021,
arXiv:1911.07698), rows of W are cut to K, scaled to sum 1, and then columns are cut to K.

Shapes: U users, I items; R is [U, I], W is [I, I] and row i says what item i recommends.
"""

from typing import ClassVar, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from pydantic import NonNegativeFloat, PositiveInt

from mgformer.graph.bipartite import Graph
from mgformer.graph.sparse import product_blocks, top_per_row
from mgformer.models.base import Model, ModelConfig
from mgformer.models.space import Float, Int, Space
from mgformer.ranking.scorers import HistoryScorer


class RP3Beta(Model):
    """scores(u) = r_u W, W_ij = d_j^(-β) Σ_v d_i^(-α) d_v^(-α) over users v of both i and j."""

    class Config(ModelConfig):
        """Options of RP3β."""

        num_neighbors: PositiveInt = 300
        """Entries kept in each row, and then in each column."""
        alpha: NonNegativeFloat = 0.7
        """Exponent of the transition probabilities; 1 is the plain walk."""
        beta: NonNegativeFloat = 0.4
        """Penalty on popular items; 0 is P3α."""

    space: ClassVar[Space] = {
        "num_neighbors": Int(5, 1000, log=True),
        "alpha": Float(0.0, 2.0),
        "beta": Float(0.0, 2.0),
    }

    def __init__(self, config: ModelConfig, graph: Graph, rng: np.random.Generator) -> None:
        self.config = cast(RP3Beta.Config, config)
        self.graph = graph

    def scorer(self) -> HistoryScorer:
        config, r = self.config, self.graph.interactions
        users, items = self.graph.user_degrees, self.graph.item_degrees
        # d_i^(-α) is the same along a row and cancels when rows are scaled to sum 1.
        to_users = r.T.tocsr()
        to_items = _scaled(r, _power(users, config.alpha), _power(items, config.beta))
        kept = []
        for rows, block in product_blocks(to_users, to_items, "item neighbours"):
            sources = np.repeat(np.arange(rows.start, rows.stop), np.diff(block.indptr))
            block.data[sources == block.indices] = 0
            kept.append(top_per_row(block, config.num_neighbors))
        walk = sp.csr_array(sp.vstack(kept, format="csr"))
        totals = np.asarray(walk.sum(axis=1)).ravel()
        walk.data /= np.repeat(totals, np.diff(walk.indptr))
        weights = top_per_row(sp.csr_array(walk.T.tocsr()), config.num_neighbors)
        return HistoryScorer(r, sp.csr_array(weights.T.tocsr()))


def _power(degrees: NDArray[np.int64], exponent: float) -> NDArray[np.float64]:
    """Return degrees^(-exponent); what stands for degree 0 multiplies nothing."""
    return np.maximum(degrees, 1).astype(np.float64) ** -exponent


def _scaled(
    matrix: sp.csr_array, rows: NDArray[np.float64], columns: NDArray[np.float64]
) -> sp.csr_array:
    """Return diag(rows) matrix diag(columns) in float32."""
    values = np.repeat(rows, np.diff(matrix.indptr)) * columns[matrix.indices]
    return sp.csr_array((values.astype(np.float32), matrix.indices, matrix.indptr), matrix.shape)
