"""Rank items for users and for histories. Every list of the package is made here.

Users and items are given by number, what a list may contain (`ListOptions`) by id. Trained users
are scored by the model. Cold users, who have no pair in the training set, are scored by their items
(see `Scorer.fold_in`), and by popularity if the model knows none of these.

Shapes: n users, I items.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from mgformer.data.ids import ExternalId, Ids
from mgformer.errors import UnknownIdError
from mgformer.ranking.scorers import DotScorer
from mgformer.ranking.topk import TopK, top_k
from mgformer.recommend.answer import Source
from mgformer.recommend.query import ListOptions, SomeIds, as_ids
from mgformer.runs.bundle import Bundle


class History(NamedTuple):
    """The items of one user, by number."""

    trained: NDArray[np.int32]
    """Items of the training set: the model scores by these."""
    owned: NDArray[np.int32]
    """All items that have a number: `exclude_seen` leaves these out."""
    unknown: tuple[ExternalId, ...] = ()
    """Ids of the given history that are not in the training set."""
    user: ExternalId | None = None
    """The user, if one is named."""


def rank_users(
    bundle: Bundle, users: NDArray[np.int32], options: ListOptions
) -> tuple[TopK, list[Source]]:
    """Return the best items of users, and where the scores of each come from."""
    seen = bundle.known if options.exclude_seen else None
    found = top_k(bundle.scorer, users, options.k, seen=seen, **_choice(bundle, options))
    sources: list[Source] = ["model"] * len(users)
    cold = np.flatnonzero(bundle.train.indptr[users + 1] == bundle.train.indptr[users])
    if len(cold):
        trained, owned = (
            sp.csr_array(m[users[cold]]) for m in (bundle.trained_items, bundle.known)
        )
        (found.items[cold], found.scores[cold]), others = _rank_rows(
            bundle, trained, owned, options
        )
        for place, source in zip(cold, others, strict=True):
            sources[place] = source
    return found, sources


def rank_histories(
    bundle: Bundle, histories: Iterable[History], options: ListOptions
) -> tuple[TopK, list[Source]]:
    """Return the best items of users who are known by their items only; nothing is trained."""
    trained, owned = zip(*((one.trained, one.owned) for one in histories), strict=True)
    return _rank_rows(bundle, as_rows(bundle, trained), as_rows(bundle, owned), options)


def _rank_rows(
    bundle: Bundle, trained: sp.csr_array, owned: sp.csr_array, options: ListOptions
) -> tuple[TopK, list[Source]]:
    """Rank for users by the [n, I] items they are scored by, and the [n, I] items they have."""
    rows, seen = np.arange(trained.shape[0]), owned if options.exclude_seen else None
    choice = _choice(bundle, options)
    found = top_k(bundle.scorer.fold_in(trained), rows, options.k, seen=seen, **choice)
    is_known = np.diff(trained.indptr) > 0
    if not is_known.all():
        rest = rows[~is_known]
        degrees = torch.from_numpy(bundle.item_degrees).float()[:, None]
        popularity = DotScorer(torch.ones(len(rows), 1), degrees)
        found.items[rest], found.scores[rest] = top_k(
            popularity, rest, options.k, seen=seen, **choice
        )
    return found, ["history" if known else "popularity" for known in is_known]


def _choice(bundle: Bundle, options: ListOptions) -> dict[str, Any]:
    """Return the candidates and the excluded items by number, as `top_k` takes them."""
    candidates = None
    if options.candidates is not None:
        candidates = numbers_of("item", bundle.items, options.candidates)
    exclude = bundle.items.encode(as_ids(options.exclude)) if options.exclude else np.zeros(0)
    return {"candidates": candidates, "exclude": exclude[exclude >= 0]}


def read_history(bundle: Bundle, history: SomeIds, user: ExternalId | None = None) -> History:
    """Return the items of a history and, if a user is named, the items of this user."""
    ids = as_ids(history)
    numbers = bundle.items.encode(ids)
    is_trained = (numbers >= 0) & (bundle.item_degrees[numbers] > 0)
    unknown = tuple(item for item, known in zip(ids, is_trained, strict=True) if not known)
    owned = numbers[numbers >= 0]
    if user is not None:
        (number,) = numbers_of("user", bundle.users, user)
        user = bundle.users.values[int(number)]
        owned = np.concatenate([owned, items_of(bundle, number)])
    owned = np.unique(owned)
    return History(owned[bundle.item_degrees[owned] > 0], owned, unknown, user)


def items_of(bundle: Bundle, user: int | np.integer) -> NDArray[np.int32]:
    """Return the items that a user has."""
    known = bundle.known
    items: NDArray[np.int32] = known.indices[known.indptr[user] : known.indptr[user + 1]]
    return items


def as_rows(bundle: Bundle, histories: Sequence[NDArray[np.int32]]) -> sp.csr_array:
    """Return items of n users as the rows of a matrix [n, I]."""
    items = np.concatenate(histories)
    ends = np.cumsum([0, *map(len, histories)], dtype=np.int32)
    shape = (len(histories), bundle.train.num_items)
    return sp.csr_array((np.ones(len(items), np.float32), items, ends), shape=shape)


def numbers_of(kind: str, known: Ids, ids: SomeIds) -> NDArray[np.int32]:
    """Return the numbers of users or items; an unknown id is an error that suggests others."""
    asked = ids if isinstance(ids, pl.Series) else as_ids(ids)
    numbers = known.encode(asked)
    unknown = np.flatnonzero(numbers < 0)
    if len(unknown):
        more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
        raise unknown_id(kind, known, asked[int(unknown[0])], more)
    return numbers


def unknown_id(kind: str, known: Ids, asked: ExternalId, more: str = "") -> UnknownIdError:
    """Return the error for an id that is not in the training data."""
    return UnknownIdError(
        f"unknown {kind} {str(asked)!r}{more}: not among the {len(known):,} {kind}s"
        " of the training data",
        lambda: known.closest(asked),
    )


def with_names(bundle: Bundle, items: NDArray[np.integer]) -> pl.DataFrame:
    """Return the columns item and, if items have names, name."""
    columns = {"item": bundle.items.decode(items)}
    if bundle.item_names is not None:
        columns["name"] = bundle.item_names[items]
    return pl.DataFrame(columns)


def to_frame(bundle: Bundle, users: pl.Series, found: TopK) -> pl.DataFrame:
    """Return lists as one table, best first: user, rank, item, name (if any) and score."""
    kept = found.items >= 0
    rows, ranks = np.nonzero(kept)
    return pl.DataFrame(
        {
            "user": users.gather(rows),
            "rank": pl.Series(ranks + 1, dtype=pl.Int32),
            **with_names(bundle, found.items[kept]).to_dict(),
            "score": found.scores[kept],
        }
    )
