"""ItemKNN (Sarwar et al., WWW 2001): items are similar if the same users have them.

The score of an item is the sum of its similarities to those of the user's items that are among
its K nearest neighbors. Weighting follows Dacrema et al. (TOIS 2021, arXiv:1911.07698): an item
is a document and its users are the words, so that users with many items count less.

Shapes: U users, I items; R is [U, I], W is [I, I] and row j says what item j recommends.
"""

from typing import Annotated, Literal

import numpy as np
import scipy.sparse as sp
from pydantic import NonNegativeFloat, PositiveInt

from mgformer.graph.bipartite import Graph
from mgformer.graph.sparse import top_of_product
from mgformer.models.base import Model, ModelConfig
from mgformer.models.space import Choice, Float, Int
from mgformer.ranking.scorers import HistoryScorer

SATURATION, LENGTH_WEIGHT = 1.2, 0.75  # k₁ and b of BM25


class ItemKNN(Model):
    """scores(u) = r_u W, W_ji = r_j·r_i / (‖r_j‖‖r_i‖ + h) for the K nearest j of each i."""

    class Config(ModelConfig):
        """Options of ItemKNN."""

        num_neighbors: Annotated[PositiveInt, Int(5, 1000, log=True)] = 100
        """K, nearest neighbors kept for each item."""
        shrink: Annotated[NonNegativeFloat, Float(0.1, 1000.0, log=True)] = 10.0
        """h; larger values lower the similarities of items with few users."""
        weighting: Annotated[
            Literal["none", "tfidf", "bm25"], Choice(("none", "tfidf", "bm25"))
        ] = "none"
        """Weights of the entries of R before items are compared."""

    config: Config

    def scorer(self) -> HistoryScorer:
        items = _item_rows(self.graph, self.config.weighting)
        norms = np.sqrt(np.asarray(items.multiply(items).sum(axis=1)).ravel())
        nearest = top_of_product(
            items,
            items.T.tocsr(),
            self.config.num_neighbors,
            weigh=lambda values, i, j: values / (norms[i] * norms[j] + self.config.shrink),
        )
        return HistoryScorer(self.graph.interactions, sp.csr_array(nearest.T.tocsr()))


def _item_rows(graph: Graph, weighting: str) -> sp.csr_array:
    """Return the [I, U] weighted transpose of R, without entries of weight 0."""
    items = graph.interactions.T.tocsr()
    if weighting == "none":
        return items
    # The 1 in the numerator keeps the logarithm positive for a user of all items.
    rarity = np.log((1 + graph.num_items) / (1 + graph.user_degrees))  # [U]
    weights = rarity[items.indices]
    if weighting == "bm25":
        lengths = graph.item_degrees * (graph.num_items / max(1, items.nnz))  # 1 on average
        damping = SATURATION * (1 - LENGTH_WEIGHT + LENGTH_WEIGHT * lengths)  # [I]
        weights *= np.repeat((SATURATION + 1) / (damping + 1), graph.item_degrees)
    weighted = sp.csr_array((weights.astype(np.float32), items.indices, items.indptr), items.shape)
    weighted.eliminate_zeros()
    return weighted
