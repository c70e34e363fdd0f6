"""Models whose item-item weights keep the K nearest neighbors: ItemKNN and RP3β.

Both follow Dacrema et al. (TOIS 2021, arXiv:1911.07698).

Shapes: U users, I items; R is [U, I], W is [I, I] and row j says what item j recommends.
"""

from typing import Annotated, ClassVar, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from pydantic import NonNegativeFloat, PositiveInt

from mgformer.graph.bipartite import Graph
from mgformer.graph.sparse import scaled, top_of_product, top_per_row
from mgformer.models.base import Model, ModelConfig
from mgformer.models.space import Choice, Float, Int
from mgformer.ranking.scorers import HistoryScorer

SATURATION, LENGTH_WEIGHT = 1.2, 0.75  # k₁ and b of BM25


class ItemKNN(Model):
    """scores(u) = r_u W, W_ji = r_j·r_i / (‖r_j‖‖r_i‖ + h) for the K nearest j of each i.

    Items are similar if the same users have them (Sarwar et al., WWW 2001). With a weighting, an
    item is a document and its users are the words, so that users with many items count less.
    """

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

    weights: ClassVar[str | None] = "co-occurrences add √(w_ui w_uj)"
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
    items = graph.weighted.T.tocsr()
    if weighting == "none":
        return items
    # The 1 in the numerator keeps the logarithm positive for a user of all items.
    rarity = np.log((1 + graph.num_items) / (1 + graph.user_degrees))  # [U]
    weights = rarity[items.indices]
    if weighting == "bm25":
        lengths = graph.item_degrees * (graph.num_items / max(1, items.nnz))  # 1 on average
        damping = SATURATION * (1 - LENGTH_WEIGHT + LENGTH_WEIGHT * lengths)  # [I]
        weights *= np.repeat((SATURATION + 1) / (damping + 1), graph.item_degrees)
    weights *= items.data
    weighted = sp.csr_array((weights.astype(np.float32), items.indices, items.indptr), items.shape)
    weighted.eliminate_zeros()
    return weighted


class RP3Beta(Model):
    """scores(u) = r_u W, W_ij = d_j^(-β) Σ_v d_i^(-α) d_v^(-α) over users v of both i and j.

    W is a random walk that penalizes popular items (Paudel et al., TiiS 2017): from an item to one
    of its users, to one of that user's items. Each row of W keeps its K largest entries and is
    scaled to sum 1; then each column keeps its K largest entries.
    """

    class Config(ModelConfig):
        """Options of RP3β."""

        num_neighbors: Annotated[PositiveInt, Int(5, 1000, log=True)] = 300
        """K, entries kept in each row and then in each column."""
        alpha: Annotated[NonNegativeFloat, Float(0.0, 2.0)] = 0.7
        """Exponent of the transition probabilities; 1 is the plain random walk."""
        beta: Annotated[NonNegativeFloat, Float(0.0, 2.0)] = 0.4
        """Penalty on popular items; 0 gives the method P3α."""

    weights: ClassVar[str | None] = "the walk follows pairs in proportion to their weights"
    config: Config

    def scorer(self) -> HistoryScorer:
        config, graph = self.config, self.graph
        r, steps = graph.interactions, graph.powers(config.alpha)  # entries w^α
        users, items = graph.user_strengths, graph.item_strengths
        # d_i^(-α) is constant in a row and cancels when rows are scaled to sum 1.
        to_items = scaled(steps, _power(users, config.alpha), _power(items, config.beta))
        walk = top_of_product(steps.T.tocsr(), to_items, config.num_neighbors)
        totals = np.asarray(walk.sum(axis=1)).ravel()
        walk.data /= np.repeat(totals, np.diff(walk.indptr))
        weights = top_per_row(sp.csr_array(walk.T.tocsr()), config.num_neighbors)
        return HistoryScorer(r, sp.csr_array(weights.T.tocsr()))


def _power(
    degrees: NDArray[np.int64] | NDArray[np.float64], exponent: float
) -> NDArray[np.float64]:
    """Return degrees^(-exponent), with 1 for degree 0: such a node has no entries to scale."""
    return np.where(degrees > 0, degrees, 1).astype(np.float64) ** -exponent
