"""ItemKNN (Sarwar et al., WWW 2001): items are alike when the same users took them.

An item is recommended by those of the user's items that are among its nearest neighbours.
Weighting follows Dacrema et al. (TOIS 2021, arXiv:1911.07698): an item is a document and its users
are the words, so that users of many items say little.

Shapes: U users, I items; R is [U, I], W is [I, I] and row j says what item j recommends.
"""

from typing import ClassVar, Literal, cast

import numpy as np
import scipy.sparse as sp
from pydantic import NonNegativeFloat, PositiveInt

from mgformer.graph.bipartite import Graph
from mgformer.graph.sparse import product_blocks, top_per_row
from mgformer.models.base import Model, ModelConfig
from mgformer.models.space import Choice, Float, Int, Space
from mgformer.ranking.scorers import HistoryScorer

SATURATION, LENGTH_WEIGHT = 1.2, 0.75  # k₁ and b of BM25


class ItemKNN(Model):
    """scores(u) = r_u W, W_ji = r_j·r_i / (‖r_j‖‖r_i‖ + h) for the K nearest j of each i."""

    class Config(ModelConfig):
        """Options of ItemKNN."""

        num_neighbors: PositiveInt = 100
        """Neighbours kept for each item that may be recommended."""
        shrink: NonNegativeFloat = 10.0
        """h, which draws similarities of items with few users to 0."""
        weighting: Literal["none", "tfidf", "bm25"] = "none"
        """How the entries of R are weighted before they are compared."""

    space: ClassVar[Space] = {
        "num_neighbors": Int(5, 1000, log=True),
        "shrink": Float(0.1, 1000.0, log=True),
        "weighting": Choice(("none", "tfidf", "bm25")),
    }

    def __init__(self, config: ModelConfig, graph: Graph, rng: np.random.Generator) -> None:
        self.config = cast(ItemKNN.Config, config)
        self.graph = graph

    def scorer(self) -> HistoryScorer:
        items = _item_rows(self.graph, self.config.weighting)
        norms = np.sqrt(np.asarray(items.multiply(items).sum(axis=1)).ravel())
        kept = []
        for rows, block in product_blocks(items, items.T.tocsr(), "item neighbours"):
            targets = np.repeat(np.arange(rows.start, rows.stop), np.diff(block.indptr))
            block.data /= norms[targets] * norms[block.indices] + self.config.shrink
            block.data[targets == block.indices] = 0
            kept.append(top_per_row(block, self.config.num_neighbors))
        weights = sp.csr_array(sp.vstack(kept, format="csr").T.tocsr())
        return HistoryScorer(self.graph.interactions, weights)


def _item_rows(graph: Graph, weighting: str) -> sp.csr_array:
    """Return the [I, U] weighted transpose of R, without entries that weigh nothing."""
    items = graph.interactions.T.tocsr()
    if weighting == "none":
        return items
    # One more in the numerator keeps the logarithm from going negative for a user of all items.
    rarity = np.log((1 + graph.num_items) / (1 + graph.user_degrees))  # [U]
    weights = rarity[items.indices]
    if weighting == "bm25":
        lengths = graph.item_degrees * (graph.num_items / max(1, items.nnz))  # in average items
        damping = SATURATION * (1 - LENGTH_WEIGHT + LENGTH_WEIGHT * lengths)  # [I]
        weights *= np.repeat((SATURATION + 1) / (damping + 1), graph.item_degrees)
    weighted = sp.csr_array((weights.astype(np.float32), items.indices, items.indptr), items.shape)
    weighted.eliminate_zeros()
    return weighted
