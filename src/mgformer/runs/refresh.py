"""Refresh: add new pairs to a trained recommender without training.

Popularity, trend and histories follow the new pairs. What the model has learned stays: the vectors
of trained users and of items, and item-item weights. New users are scored by their items. Items
that the model does not know cannot be added: pairs with them are left out.

Shapes: U users, I items, D channels.
"""

import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor

from mgformer.data.chronology import Chronology
from mgformer.data.dataset import Dataset, open_dataset, read_dataset
from mgformer.data.ids import number
from mgformer.data.interactions import Interactions
from mgformer.errors import DataError
from mgformer.ranking.score import Ingredients, Weights
from mgformer.ranking.scorers import (
    DotScorer,
    HistoryScorer,
    Scorer,
    SumScorer,
    vectors_of,
    with_vectors,
)
from mgformer.runs.bundle import Bundle
from mgformer.runs.cold import as_learned, with_predicted_items, with_predicted_users
from mgformer.runs.config import build_data_config
from mgformer.runs.histories import check_histories
from mgformer.runs.record import Refreshed, commit_of_code
from mgformer.runs.warm_start import check_joinable, joined_order, joined_weights
from mgformer.version import __version__

if TYPE_CHECKING:
    import pandas as pd

log = logging.getLogger("mgformer")

NOT_TESTED = "; then refreshed with new pairs, which is not tested"
NO_FILES: Mapping[str, Any] = {"items": None, "users": None, "kinds": {}, "private": ()}
"""Options of files about items and users, which a refresh does not read."""
OTHER_UNIT = 100
"""Times that are larger or smaller by this factor seem to have another unit."""


class Joined(NamedTuple):
    """The pairs of a recommender and new pairs, with the ids of both."""

    pairs: Interactions
    numbers: NDArray[np.int32]
    """[U] the new number of each user of the recommender."""
    num_skipped: int
    """New pairs that are left out, because their items are unknown."""


def read_new(
    bundle: Bundle,
    source: "str | Path | pl.DataFrame | pd.DataFrame | tuple[Any, ...]",
    options: Mapping[str, Any] | None = None,
) -> Dataset:
    """Read new interactions with the options by which the data of the run were read.

    Args:
        bundle: The recommender to refresh.
        source: A file, a folder, a catalog name, a data frame, or arrays (users, items, …).
        options: Options of the section [data] that differ from those of the run.
    """
    # The k-core of a few new pairs would be empty, and the recommender knows its items.
    own = {**bundle.record.config.get("data", {}), "k_core": 0, **NO_FILES}
    if bundle.train.times is None and bundle.train.places is not None:
        own["order"] = "file"
    described = build_data_config({**own, **(options or {})}, "options")
    if isinstance(source, str | Path):
        return open_dataset(source, described)
    return read_dataset(source, described)


def refresh(bundle: Bundle, new: Dataset) -> Bundle:
    """Return the recommender with new pairs; nothing is trained.

    All pairs become training pairs: nothing is held out any more. Pairs with items that the bundle
    has but the model has not learned go to `history`: they are known, but nobody is scored by them.

    Weights of the model have a row per user. They are kept if no users are added. Otherwise they
    are left out, because nothing was learned about the new users.
    """
    began = time.perf_counter()
    check_histories(bundle, "refresh")
    check_joinable(bundle, new)
    pairs, numbers, num_skipped = join(bundle, new)
    is_learned = _learned_items(bundle)[pairs.indices]
    train = pairs.subset(is_learned)
    trained = np.zeros(pairs.num_users, dtype=bool)
    trained[numbers] = (np.diff(bundle.train.indptr) > 0) & ~bundle.is_folded
    num_new_users = pairs.num_users - len(bundle.users)
    if num_new_users and bundle.weights:
        log.warning(
            "the weights of the model are left out because they have no rows for new users:"
            " `train --from` cannot continue from the refreshed recommender"
        )
    after = replace(
        bundle,
        train=train,
        valid=train.no_pairs(),
        test=train.no_pairs(),
        history=None if is_learned.all() else pairs.subset(~is_learned),
        weights={} if num_new_users else bundle.weights,
        folded_users=np.flatnonzero(~trained & (np.diff(pairs.indptr) > 0)),
        own_vectors=None,
        about_users=bundle.about_users.for_ids(bundle.users, pairs.users),
    )
    # The blend with predictions follows the new counts: it starts from what was learned.
    composed = replace(after, scorer=_scorer(as_learned(bundle), after, numbers))
    after = with_predicted_users(_folded(with_predicted_items(composed)))
    before = bundle.record.refreshed
    done = Refreshed(
        pairs=len(pairs),
        trained_pairs=before.trained_pairs if before else len(bundle.train),
        new_pairs=len(pairs) - len(bundle.all_pairs),
        new_users=num_new_users,
        skipped_items_pairs=num_skipped,
        seconds=round(time.perf_counter() - began, 3),
        library=__version__,
        commit=commit_of_code(),
    )
    protocol = bundle.record.protocol + ("" if before else NOT_TESTED)
    record = after.record.model_copy(update={"protocol": protocol, "refreshed": done})
    return replace(after, record=record)


def join(bundle: Bundle, new: Dataset) -> Joined:
    """Join new pairs with all pairs of a recommender; duplicates keep the latest time."""
    old, table = bundle.all_pairs, new.interactions
    if old.times is not None:
        if table.times is None:
            raise DataError(
                f"{new.name}: got no times, expected times because the recommender was trained with"
                " times; add a time column, or name it with --set data.time=NAME"
            )
        _warn_of_another_unit(old.times, table.times, new.name)
    items = bundle.items.encode(table.items.values)
    is_known = items[table.indices] >= 0
    num_skipped = int((~is_known).sum())
    if num_skipped == len(table):
        raise DataError(
            f"{new.name}: got {len(table):,} pairs, none with an item that the recommender knows;"
            " check the ids, or train with the new items: mgformer train --from"
        )
    if num_skipped:
        log.warning(
            "%s: %d of %d pairs are left out because the model has not learned their items; train"
            " again to recommend new items",
            new.name,
            num_skipped,
            len(table),
        )
    table = table.subset(is_known)
    having = table.users.values.filter(np.diff(table.indptr) > 0)
    users, numbers = number(pl.concat([bundle.users.values, having]))
    numbers = numbers[: len(bundle.users)]
    order = joined_order(old, table)
    pairs = Interactions.from_numbers(
        users,
        bundle.items,
        np.concatenate([numbers[old.rows], users.encode(table.users.values)[table.rows]]),
        np.concatenate([old.indices, items[table.indices]]),
        times=order.get("time"),
        places=order.get("place"),
        weights=joined_weights(old, table),
    )
    return Joined(pairs, numbers, num_skipped)


def _warn_of_another_unit(old: NDArray[Any], new: NDArray[Any], name: str) -> None:
    known, got = float(np.abs(old).max(initial=0)), float(np.abs(new).max(initial=0))
    if min(known, got) > 0 and max(known, got) > OTHER_UNIT * min(known, got):
        log.warning(
            "%s: times go up to %.4g, those of the recommender up to %.4g; are they in the same"
            " unit?",
            name,
            got,
            known,
        )


def _scorer(before: Bundle, after: Bundle, numbers: NDArray[np.int32]) -> Scorer:
    """Compose the score again, from what the model has learned and the pairs of `after`.

    Args:
        before: The recommender as it was.
        after: The recommender with the new pairs.
        numbers: The new number of each user of `before`.
    """
    scorer, weights = before.scorer, before.record.chosen.weights
    chronology = Chronology(after.train) if weights.eta or weights.kappa else None
    ingredients = Ingredients(torch.from_numpy(after.item_degrees), None, chronology)
    if isinstance(scorer, HistoryScorer):
        return ingredients.compose(scorer.fold_in(after.train.matrix), weights).scorer
    if isinstance(scorer, SumScorer):
        # The weights of its guide are multiplied by δ already.
        guide = scorer.history.fold_in(after.train.matrix)
        ingredients, weights = ingredients._replace(guide=guide), weights._replace(delta=1.0)
        scorer = scorer.vectors
    assert isinstance(scorer, DotScorer)
    if counts_users(before):
        counts = torch.from_numpy(after.train.popularity).to(scorer.items.dtype)[:, None]
        popularity = replace(scorer, users=torch.ones(len(after.users), 1), items=counts)
        return ingredients.compose(popularity, weights).scorer
    # Users who were folded in before are folded in again: they may have more items now.
    kept = ~before.is_folded
    learned = learned_vectors(before, scorer, weights)
    learned = replace(learned, users=learned.users[torch.from_numpy(kept)])
    composed = ingredients.compose(learned, weights).scorer
    vectors = composed.vectors if isinstance(composed, SumScorer) else composed
    assert isinstance(vectors, DotScorer)
    users = vectors.users.new_zeros(len(after.users), vectors.users.shape[1])
    users[torch.from_numpy(numbers[kept]).long()] = vectors.users
    return with_vectors(composed, replace(vectors, users=users))


def _folded(bundle: Bundle) -> Bundle:
    """Return the recommender with vectors of its folded users, if it has vectors."""
    vectors = vectors_of(bundle.scorer)
    if vectors is None or counts_users(bundle) or not len(bundle.folded_users):
        return bundle
    users = vectors.users.clone()
    folded = vectors.fold_in(bundle.trained_items[bundle.folded_users]).users
    users[torch.from_numpy(bundle.folded_users)] = folded.to(users.dtype)
    return replace(bundle, scorer=with_vectors(bundle.scorer, replace(vectors, users=users)))


def _learned_items(bundle: Bundle) -> NDArray[np.bool_]:
    """Return which items [I] the model has learned; popularity only counts, so it knows all."""
    return (bundle.item_degrees > 0) | counts_users(bundle)


def counts_users(bundle: Bundle) -> bool:
    """Return whether the scores are those of popularity: users of an item, times its trend."""
    scorer, weights = bundle.scorer, bundle.record.chosen.weights
    if not isinstance(scorer, DotScorer) or weights.kind or scorer.items.shape[1] != 1:
        return False
    known = bundle.train.popularity if bundle.stored_degrees is None else bundle.stored_degrees
    counts = torch.from_numpy(known) * _trend_factors(bundle, weights)
    return torch.allclose(scorer.items[:, 0].float(), counts.float())


def learned_vectors(bundle: Bundle, scorer: DotScorer, weights: Weights) -> DotScorer:
    """Return the vectors without what the score has added to them."""
    if weights.kind is None:
        return replace(scorer, items=scorer.items / _trend_factors(bundle, weights)[:, None])
    if weights.kind == "dot" and not weights.eta:
        return scorer
    users, items = (side[:, : scorer.num_varying] for side in (scorer.users, scorer.items))
    if weights.kind == "degree":
        # Lengths are factors of popularity and trend, and they may be very small.
        lengths = items.double().norm(dim=1, keepdim=True)
        items = (items / torch.where(lengths > 0, lengths, 1.0)).to(items.dtype)
    return replace(scorer, users=users, items=items, unit=False, constant=0)


def _trend_factors(bundle: Bundle, weights: Weights) -> Tensor:
    """Return the factors [I] by which the trend has multiplied scores."""
    if not weights.eta:
        return torch.ones(len(bundle.items))
    return torch.from_numpy(Chronology(bundle.train).trend).pow(weights.eta)
