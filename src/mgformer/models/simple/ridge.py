"""Ridge: regresses every item on the items nearest to it, in closed form.

It is EASE with few predictors for each item: sparse, parallel, and linear in the number of items.
`graph/regression.py` has the equations. Where the order is known, short segments of histories can
count beside whole ones: `graph/segments.py`.

The best penalty λ differs from dataset to dataset by a factor of ten and more. If it is not given,
it is chosen on the training data alone: a tenth of the items of some users is held out, and the λ
whose weights rank these items best is taken. Solving for several λ shares most of the work.
"""

import logging
from typing import Annotated, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt

from mgformer.graph.regression import local_ridge, local_ridges
from mgformer.graph.segments import with_segments
from mgformer.graph.sparse import BLOCK_ENTRIES, kept_entries
from mgformer.models.base import Footprint, Model, ModelConfig, Size
from mgformer.models.space import Float, Int
from mgformer.progress import quietly
from mgformer.ranking.metrics import SELECTION_K, ndcg
from mgformer.ranking.scorers import HistoryScorer
from mgformer.ranking.topk import top_k

PENALTIES = (15.0, 60.0, 240.0, 960.0)
"""Values of λ to choose from."""
USUAL_PENALTY = 60.0
"""λ if no user has two items."""
MOST_USERS = 4096
"""Users whose items are held out to choose λ."""
MOST_ITEMS = 50_000
"""Items that are predicted to choose λ. In a larger catalog they are drawn at random, so that the
choice does not cost more than the regression itself."""
log = logging.getLogger("mgformer")


class Ridge(Model):
    """scores(u) = r_u B, with column j of B from a ridge regression on the N nearest items of j."""

    class Config(ModelConfig):
        """Options of ridge."""

        num_predictors: Annotated[PositiveInt, Int(20, 400, log=True)] = 200
        """N, items that predict an item."""
        l2: Annotated[PositiveFloat | None, Float(10.0, 1e3, log=True)] = None
        """λ, penalty on the weight of every predictor. It is chosen on a part of the training
        data if not given."""
        dropout: Annotated[NonNegativeFloat, Float(0.0, 1.0)] = 0.5
        """ρ, penalty per user of the predictor. It holds back popular items."""
        segment_weight: Annotated[NonNegativeFloat, Float(0.0, 1.0)] = 0.0
        """How much a segment of four successive items counts beside a whole history. It is used
        where the score uses time."""

    weights: ClassVar[str | None] = "co-occurrences add √(w_ui w_uj): weights are confidence"
    config: Config

    @classmethod
    def footprint(cls, config: ModelConfig, size: Size) -> Footprint:
        assert isinstance(config, cls.Config)
        num_predictors = min(config.num_predictors, size.num_items - 1)
        weights = size.num_items * num_predictors
        # Numbers and columns of the co-occurrences and of B, the weights between the two,
        # and the products of a block with their columns, rows and order.
        block = 24 * min(BLOCK_ENTRIES, num_predictors * size.num_pairs)
        # Each pair stands in two segments, and its place and its segments are worked out first.
        segments = 64 * size.num_pairs if config.segment_weight else 0
        preparing = (8 + 4 + 8) * weights + block + segments
        return Footprint(preparing=preparing, held=8 * weights)

    def scorer(self) -> HistoryScorer:
        config, r, positions = self.config, self.graph.weighted, self.graph.positions
        l2 = config.l2
        if l2 is None:
            l2 = best_penalty(r, config, self.rng, positions)
            log.info("ridge: l2 = %g ranks held-out training items best", l2)
        histories = with_segments(r, positions, config.segment_weight)
        weights = local_ridge(histories, config.num_predictors, l2, config.dropout)
        return HistoryScorer(self.graph.interactions, weights)


def best_penalty(
    r: sp.csr_array,
    config: Ridge.Config,
    rng: np.random.Generator,
    positions: NDArray[np.float32] | None = None,
) -> float:
    """Return the λ that ranks held-out training pairs best, by NDCG; weights do not count there."""
    wanted, num_items = None, r.shape[1]
    if num_items > MOST_ITEMS:
        wanted = np.zeros(num_items, dtype=bool)
        wanted[rng.choice(num_items, MOST_ITEMS, replace=False)] = True
    taken = hold_out(r, rng)
    known, held_out = kept_entries(r, ~taken), kept_entries(r, taken)
    if wanted is not None:
        held_out = kept_entries(held_out, wanted[held_out.indices])
    counts = np.diff(held_out.indptr)
    users = np.flatnonzero(counts)
    if not len(users):
        return USUAL_PENALTY
    rows, found = np.arange(len(users))[:, None], {}
    relevant = sp.csr_array(held_out[users])
    of_known = None if positions is None else positions[~taken]
    histories = with_segments(known, of_known, config.segment_weight)
    weights = local_ridges(
        histories, config.num_predictors, PENALTIES, config.dropout, wanted=wanted
    )
    with quietly():
        for l2, one in zip(PENALTIES, weights, strict=True):
            scorer = HistoryScorer(known.sign(), one)
            best = top_k(scorer, users, SELECTION_K, seen=known).items
            hits = (relevant[rows, best].toarray() > 0) & (best >= 0)
            found[l2] = float(ndcg(hits, counts[users], SELECTION_K).mean())
    return max(found, key=lambda l2: found[l2])


def hold_out(r: sp.csr_array, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Choose pairs [E] to hold out: a tenth of the items of some users, at least one of each."""
    counts = np.diff(r.indptr)
    taken = np.zeros(r.nnz, dtype=bool)
    for user in rng.permutation(np.flatnonzero(counts > 1))[:MOST_USERS]:
        size = max(1, counts[user] // 10)
        taken[r.indptr[user] + rng.choice(counts[user], size, replace=False)] = True
    return taken
