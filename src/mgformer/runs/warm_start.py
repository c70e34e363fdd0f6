"""Warm start: train further from a trained recommender, on its data and on new data.

The new run trains on the pairs of the old run and on the new ones. Users and items of the old run
start from their trained embeddings. New users and items start as in any run. Pairs that the old run
was trained on are never held out in the new run, so figures come from pairs that neither run saw.

Shapes: N nodes (users, then items), d channels.
"""

import logging
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor

from mgformer.data.attributes import joined
from mgformer.data.dataset import Dataset
from mgformer.data.ids import Ids
from mgformer.data.interactions import Interactions
from mgformer.data.splits import Split
from mgformer.errors import ConfigError, DataError
from mgformer.models.base import TrainableModel
from mgformer.runs.bundle import Bundle
from mgformer.runs.histories import check_histories

log = logging.getLogger("mgformer")


def check_trained(before: Bundle) -> None:
    """Refuse to continue from a model that was not trained step by step."""
    if not before.weights:
        raise ConfigError(
            "the run to continue from has no weights:"
            f" {before.record.model} is not trained step by step, an old version saved it, or a"
            " refresh added users"
        )


def together(before: Bundle, new: Dataset) -> Dataset:
    """Return the pairs of an old run and of new data as one dataset."""
    check_histories(before, "train --from")
    check_joinable(before, new)
    pairs, table = before.all_pairs, new.interactions
    sides = {
        "user": pl.concat([pairs.users.decode(pairs.rows), table.users.decode(table.rows)]),
        "item": pl.concat([pairs.items.decode(pairs.indices), table.items.decode(table.indices)]),
        **{name: pl.Series(values) for name, values in joined_order(pairs, table).items()},
    }
    weights = joined_weights(pairs, table)
    if weights is not None:
        sides["weight"] = pl.Series(weights)
    interactions = Interactions.from_frame(pl.DataFrame(sides))
    old_items, old_users = (before.items, before.about_items), (before.users, before.about_users)
    new_items = (new.interactions.items, new.about_items)
    new_users = (new.interactions.users, new.about_users)
    return Dataset(
        new.name,
        interactions,
        about_items=joined([old_items, new_items], interactions.items),
        about_users=joined([old_users, new_users], interactions.users),
    )


def check_joinable(before: Bundle, new: Dataset) -> None:
    """Refuse new data whose pairs cannot be joined with those of an old run."""
    if new.parts is not None:
        raise ConfigError(
            f"{new.name}: has train and test parts, which cannot be joined with those of the old"
            " run; give one file of interactions"
        )
    for side, old_ids, new_ids in (
        ("user", before.users, new.interactions.users),
        ("item", before.items, new.interactions.items),
    ):
        if old_ids.are_text != new_ids.are_text:
            kinds = ["text" if ids.are_text else "whole numbers" for ids in (old_ids, new_ids)]
            raise DataError(
                f"{side} ids are {kinds[0]} in the old run but {kinds[1]} in {new.name}; use the"
                " same kind of ids"
            )


def joined_order(old: Interactions, new: Interactions) -> dict[str, NDArray[Any]]:
    """Return `time` or `place` of old pairs and then of new pairs; empty if no order is known.

    If the old pairs have places only, the new pairs come after all of them.
    """
    if old.times is not None:
        return {} if new.times is None else {"time": np.concatenate([old.times, new.times])}
    if old.places is None:
        return {}
    order = np.zeros(len(new)) if new.order is None else new.order
    places = np.unique(order, return_inverse=True)[1] + old.places.max(initial=-1) + 1
    return {"place": np.concatenate([old.places, places])}


def joined_weights(old: Interactions, new: Interactions) -> NDArray[np.float32] | None:
    """Return the weights of old pairs and then of new pairs, or None if neither have weights.

    If only one side has weights, each pair of the other counts 1.
    """
    if old.weights is None and new.weights is None:
        return None
    sides = (np.ones(len(p), np.float32) if p.weights is None else p.weights for p in (old, new))
    return np.concatenate([*sides])


def without_leak(split: Split, before: Bundle) -> Split:
    """Move pairs that the old run was trained on into train: they cannot test anything."""
    if split.history is not None:
        raise ConfigError(
            "split.kind=users holds out whole users, but the old run may have been trained on them;"
            " choose another split, or leave out --from"
        )
    users, items = (
        old.encode(new.values).astype(np.int64)
        for old, new in ((before.users, split.train.users), (before.items, split.train.items))
    )
    width = len(before.items)
    trained = before.train.rows.astype(np.int64) * width + before.train.indices
    train, rest = split.train, []
    for part in (split.valid, split.test):
        rows, columns = users[part.rows], items[part.indices]
        known = (rows >= 0) & (columns >= 0) & np.isin(rows * width + columns, trained)
        train = train.union(part.subset(known))
        rest.append(part.subset(~known))
    return replace(split, train=train, valid=rest[0], test=rest[1])


def adopt(model: TrainableModel, before: Bundle, users: Ids, items: Ids) -> None:
    """Copy the weights of the old run into a model that has not been trained.

    A table with a row per node is copied row by row. Other parameters are copied if they have the
    same shape.
    """
    old_rows, new_rows = _matching(before, users, items)
    num_old = len(before.users) + len(before.items)
    num_new = len(users) + len(items)
    kept = 0
    state = model.state_dict()
    for name, old in before.weights.items():
        if name not in state:
            continue
        target: Tensor = state[name]
        if len(old) == num_old and len(target) == num_new and old.shape[1:] == target.shape[1:]:
            target[torch.from_numpy(new_rows)] = old[torch.from_numpy(old_rows)].to(target.dtype)
            kept += 1
        elif old.shape == target.shape:
            target.copy_(old)
            kept += 1
    if not kept:
        raise ConfigError(
            "no weights of the run to continue from fit the model; use the same model options"
        )
    model.load_state_dict(state)
    log.info("continuing with the weights of %d of %d users and items", len(new_rows), num_new)


def _matching(
    before: Bundle, users: Ids, items: Ids
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the node numbers of users and items that the old run has learned, in both runs."""
    old_rows, new_rows = [], []
    # Users and items without pairs were not learned: they start as in any run.
    of_users, of_items = np.diff(before.train.indptr) > 0, before.item_degrees > 0
    for old, new, learned, old_first, new_first in (
        (before.users, users, of_users, 0, 0),
        (before.items, items, of_items, len(before.users), len(users)),
    ):
        places = old.encode(new.values).astype(np.int64)
        known = np.flatnonzero((places >= 0) & learned[places])
        old_rows.append(places[known] + old_first)
        new_rows.append(known + new_first)
    return np.concatenate(old_rows), np.concatenate(new_rows)
