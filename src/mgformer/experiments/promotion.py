"""Is a newly trained recommender good enough to take the place of the one before?

Both rank the pairs that were held out from the new one. The old one is refreshed first with the
pairs that the new one was trained on: this is what users would get if nothing was replaced. It has
not seen the held-out pairs. Only users that both can rank are compared.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import polars as pl

from mgformer.data.cuts import held_out_for
from mgformer.data.dataset import Dataset
from mgformer.errors import BundleError
from mgformer.experiments.tables import NDCG, paired_tests
from mgformer.progress import quietly
from mgformer.ranking.evaluation import EvaluationConfig, evaluate, evaluate_part
from mgformer.ranking.metrics import SELECTION_K
from mgformer.runs.bundle import Bundle
from mgformer.runs.refresh import refresh


class Comparison(NamedTuple):
    """NDCG@20 of two recommenders on the same users and held-out pairs."""

    users: int
    new: float
    old: float
    p_value: float | None
    """Of a paired t-test over the users; None if it cannot be made."""

    def is_good_enough(self, tolerance: float) -> bool:
        """Whether the new one loses at most this share of the old one's NDCG@20."""
        return self.new >= (1 - tolerance) * self.old


def compare_to(new: Bundle, old: Bundle) -> Comparison:
    """Compare a new recommender with the one before, on what was held out from the new one."""
    if new.history is not None or not len(new.test):
        raise BundleError(
            "the new recommender has no held-out pairs of known users, so it cannot be compared;"
            " train it with a split by time, last items or ratio"
        )
    options = EvaluationConfig(ks=(SELECTION_K,))
    with quietly():
        found = evaluate_part(new.scorer, new, "test", options)
        before = refreshed_for(new, old)
        held_out = held_out_for(new.test, before.users, before.items)
        theirs = evaluate(
            before.scorer,
            held_out.pairs,
            before.known,
            before.item_degrees,
            options,
            missing=held_out.missing,
        )
    if found is None or theirs is None:
        raise BundleError("no held-out pair is of a user that both recommenders know")
    ours_table = pl.DataFrame({"user": new.users.decode(found.users), NDCG: found.values[NDCG]})
    their_table = pl.DataFrame(
        {"user": before.users.decode(theirs.users), NDCG: theirs.values[NDCG]}
    )
    both = ours_table.join(their_table, on="user", suffix="_old", maintain_order="left")
    if not both.height:
        raise BundleError("no held-out pair is of a user that both recommenders know")
    mine = both.select("user", NDCG)
    other = both.select("user", pl.col(f"{NDCG}_old").alias(NDCG))
    p_value = paired_tests([mine], [other], [NDCG])[NDCG].p_value
    ours, theirs_mean = (float(table[NDCG].to_numpy().mean()) for table in (mine, other))
    return Comparison(
        both.height, ours, theirs_mean, float(p_value) if np.isfinite(p_value) else None
    )


def refreshed_for(new: Bundle, old: Bundle) -> Bundle:
    """Return the old recommender with the training pairs of the new one, and with no others."""
    seen = new.train.union(new.valid) if len(new.valid) else new.train
    # Its own held-out pairs may be among those that both are tested on.
    nothing = old.train.no_pairs()
    bare = replace(old, valid=nothing, test=nothing, history=None, missing=None)
    return refresh(bare, Dataset("new pairs", seen))
