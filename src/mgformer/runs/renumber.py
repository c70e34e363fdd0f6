"""A recommender with other users or items: the rows and columns of what stays find their new place.

Ids are numbered in ascending order, so new ids move the numbers of others. What has no old place
gets zeros. The order of those that stay does not change.

Shapes: U users, I items, N nodes (users, then items).
"""

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from mgformer.data.ids import Ids
from mgformer.data.interactions import Interactions
from mgformer.ranking.scorers import DotScorer, HistoryScorer, Scorer, SumScorer

log = logging.getLogger("mgformer")
Places = NDArray[np.int64]
"""The old number of each new user or item; -1 for what is new."""


def places_in(old: Ids, new: Ids) -> Places:
    """Return the old number of each new id."""
    return old.encode(new.values).astype(np.int64)


def pairs_among(pairs: Interactions, users: Ids, items: Ids) -> Interactions:
    """Return pairs whose ids are among more users and items."""
    rows = pairs.users.encode(users.values)
    counts = np.where(rows >= 0, np.diff(pairs.indptr)[rows], 0)
    numbers = items.encode(pairs.items.values)
    return replace(
        pairs,
        users=users,
        items=items,
        indptr=np.concatenate([[0], np.cumsum(counts)]),
        indices=numbers[pairs.indices],
    )


def scorer_among(scorer: Scorer, users: Places, items: Places) -> Scorer:
    """Return the scorer with its rows and columns at new places."""
    if isinstance(scorer, SumScorer):
        vectors, history = (
            scorer_among(one, users, items) for one in (scorer.vectors, scorer.history)
        )
        assert isinstance(vectors, DotScorer)
        assert isinstance(history, HistoryScorer)
        return SumScorer(vectors, history)
    if isinstance(scorer, HistoryScorer):
        return _history(scorer, users, items)
    assert isinstance(scorer, DotScorer)
    return replace(scorer, users=rows_at(scorer.users, users), items=rows_at(scorer.items, items))


def _history(scorer: HistoryScorer, users: Places, items: Places) -> HistoryScorer:
    changes: dict[str, Any] = {"histories": _sparse(scorer.histories, users, items)}
    if isinstance(scorer.weights, Tensor):
        changes["weights"] = rows_at(rows_at(scorer.weights, items).T, items).T.contiguous()
    elif scorer.weights is not None:
        changes["weights"] = _sparse(scorer.weights, items, items)
    if scorer.through is not None:
        every = np.arange(scorer.through.shape[0])
        changes["through"] = _sparse(scorer.through, every, items)
    for name in ("left", "right", "item_factors"):
        if (table := getattr(scorer, name)) is not None:
            changes[name] = rows_at(table, items)
    return replace(scorer, **changes)


def rows_at(table: Tensor, places: Places) -> Tensor:
    """Return the rows of a table at these places, zeros at -1."""
    found = table[torch.from_numpy(np.maximum(places, 0))]
    found[torch.from_numpy(places < 0)] = 0
    return found


def _sparse(matrix: sp.csr_array, rows: Places, columns: Places) -> sp.csr_array:
    """Return a matrix with rows and columns at new places; all of its columns must stay."""
    numbers = np.flatnonzero(columns >= 0)  # the old columns keep their order
    index = matrix.indices.dtype
    counts = np.where(rows >= 0, np.diff(matrix.indptr)[rows], 0)
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(matrix.indptr.dtype)
    shape = (len(rows), len(columns))
    return sp.csr_array((matrix.data, numbers[matrix.indices].astype(index), indptr), shape=shape)


def tables_among(
    weights: Mapping[str, Tensor], old: tuple[int, int], users: Places, items: Places
) -> Mapping[str, Tensor]:
    """Return the parameters of a model whose tables have a row per user, or per node.

    Args:
        weights: The parameters.
        old: How many users and items they are for.
        users: The old number of each user.
        items: The old number of each item.
    """
    num_users, num_items = old
    if num_users == num_items and any(_length(table) == num_users for table in weights.values()):
        log.warning(
            "the weights of the model are left out because it cannot be told which of them belong"
            " to users: `train --from` cannot continue from this recommender"
        )
        return {}
    nodes = np.concatenate([users, np.where(items >= 0, items + num_users, -1)])
    places = {num_users: users, num_users + num_items: nodes}
    return {
        name: rows_at(table, places[_length(table)]) if _length(table) in places else table
        for name, table in weights.items()
    }


def _length(table: Tensor) -> int:
    return len(table) if table.ndim else 0
