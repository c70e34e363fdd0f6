"""Forget users: a trained recommender without their ids, their pairs and their vectors.

Popularity and trend are counted again from the pairs that are left. What the model has learned from
a user stays in the vectors of items and of other users, and in item-item weights: only training
again removes it (`refit`).

Shapes: U users, I items, N nodes (users, then items).
"""

from dataclasses import replace

import numpy as np
import polars as pl
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from mgformer.data.chronology import Chronology
from mgformer.data.ids import Ids
from mgformer.data.interactions import Interactions
from mgformer.errors import ConfigError
from mgformer.ranking.score import Ingredients
from mgformer.ranking.scorers import DotScorer, HistoryScorer, Scorer, SumScorer
from mgformer.runs.bundle import Bundle
from mgformer.runs.cold import as_learned, with_predictions
from mgformer.runs.record import Forgotten, Record, commit_of_code
from mgformer.runs.refresh import counts_users, learned_vectors
from mgformer.runs.renumber import tables_among
from mgformer.version import __version__

NOT_TESTED = "; then users were forgotten, which is not tested"


def forget(bundle: Bundle, users: NDArray[np.integer]) -> Bundle:
    """Return the recommender without some users, who are given by number. Nothing is trained."""
    keep = np.ones(len(bundle.users), dtype=bool)
    keep[users] = False
    if not keep.any():
        raise ConfigError(
            "these are all users of the recommender, and one without users is of no use; delete the"
            " folder"
        )
    ids = Ids(bundle.users.values.filter(keep))
    train, valid, test = (
        without(part, keep, ids) for part in (bundle.train, bundle.valid, bundle.test)
    )
    is_folded = bundle.is_folded[keep]
    per_user = bundle.per_user
    if per_user is not None:
        per_user = per_user.filter(~pl.col("user").is_in(bundle.users.decode(users).implode()))
    after = replace(
        bundle,
        train=train,
        valid=valid,
        test=test,
        history=None if bundle.history is None else without(bundle.history, keep, ids),
        per_user=per_user,
        weights=tables_among(
            bundle.weights,
            (len(bundle.users), len(bundle.items)),
            np.flatnonzero(keep),
            np.arange(len(bundle.items)),
        ),
        folded_users=np.flatnonzero(is_folded),
        missing=None if bundle.missing is None else bundle.missing[keep],
        about_users=bundle.about_users.gather(np.flatnonzero(keep)),
    )
    rest = replace(after, scorer=_scorer(as_learned(bundle), after, keep), own_vectors=None)
    done = with_predictions(rest)
    changes = {"cold": done.record.cold}
    return replace(done, record=_record(bundle, after, users).model_copy(update=changes))


def without(pairs: Interactions, keep: NDArray[np.bool_], users: Ids) -> Interactions:
    """Return the pairs of the users [U] to keep, whose ids are `users`."""
    rest = pairs.subset(keep[pairs.rows])
    counts = np.diff(rest.indptr)[keep]
    return replace(rest, users=users, indptr=np.concatenate([[0], np.cumsum(counts)]))


def _scorer(before: Bundle, after: Bundle, keep: NDArray[np.bool_]) -> Scorer:
    """Leave out the rows of users, and compose the score again where it counts pairs."""
    scorer, weights = before.scorer, before.record.chosen.weights
    chronology = Chronology(after.train) if weights.eta and len(after.train) else None
    ingredients = Ingredients(torch.from_numpy(after.item_degrees), None, chronology)
    weights = weights._replace(kappa=None)  # histories are aged already
    if isinstance(scorer, HistoryScorer):
        rest = _history(before, scorer, keep)
        return ingredients.compose(rest, weights).scorer if chronology else rest
    guide, vectors = None, scorer
    if isinstance(scorer, SumScorer):
        guide, vectors = _history(before, scorer.history, keep), scorer.vectors
    assert isinstance(vectors, DotScorer)
    kept = torch.from_numpy(keep)
    # Without pairs there is nothing to count again.
    counts = bool(len(before.train)) and (weights.kind not in ("dot", "cosine") or weights.eta)
    if not counts:
        vectors = replace(vectors, users=vectors.users[kept])
        return vectors if guide is None else SumScorer(vectors, guide)
    if counts_users(before):
        degrees = torch.from_numpy(after.train.popularity).to(vectors.items.dtype)[:, None]
        learned = replace(vectors, items=degrees)
    else:
        learned = learned_vectors(before, vectors, weights)
    learned = replace(learned, users=learned.users[kept])
    # The weights of the guide are multiplied by δ already.
    ingredients = ingredients._replace(guide=guide)
    return ingredients.compose(learned, weights._replace(delta=1.0)).scorer


def _history(before: Bundle, scorer: HistoryScorer, keep: NDArray[np.bool_]) -> HistoryScorer:
    """Leave out histories, and the rows of users in the matrix T of a low-pass filter."""
    through = scorer.through
    if through is not None:
        # Its rows are users as they were numbered in the training: those with pairs, in order.
        trained = (np.diff(before.train.indptr) > 0) & ~before.is_folded
        rows = np.flatnonzero(np.diff(through.indptr))
        if len(rows) != trained.sum():
            raise ConfigError(
                f"{before.record.model} keeps a matrix whose rows cannot be matched with users;"
                " train again without these users"
            )
        through = sp.csr_array(through[rows[keep[trained]]])
    return replace(scorer, histories=sp.csr_array(scorer.histories[keep]), through=through)


def _record(before: Bundle, after: Bundle, users: NDArray[np.integer]) -> Record:
    record, earlier = before.record, before.record.forgotten
    num_users = len(before.users) - len(after.users)
    num_pairs = len(before.all_pairs) - len(after.all_pairs)
    done = Forgotten(
        users=num_users + (earlier.users if earlier else 0),
        pairs=num_pairs + (earlier.pairs if earlier else 0),
        library=__version__,
        commit=commit_of_code(),
    )
    refreshed = record.refreshed
    if refreshed is not None:
        # A refresh mixes trained pairs with new ones: count all pairs of trained users as trained.
        trained = np.diff(before.train.indptr)[users][~before.is_folded[users]].sum()
        changes = {
            "pairs": len(after.all_pairs),
            "trained_pairs": max(0, refreshed.trained_pairs - int(trained)),
        }
        refreshed = refreshed.model_copy(update=changes)
    return record.model_copy(
        update={
            "forgotten": done,
            "refreshed": refreshed,
            "fingerprint": after.all_pairs.fingerprint,
            "protocol": record.protocol + ("" if earlier else NOT_TESTED),
        }
    )
