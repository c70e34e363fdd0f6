"""Rank items for users and for histories, and answer queries. Every list is made here.

Ranking takes users and items by number, and what a list may contain (`ListOptions`) by id. Trained
users are scored by the model. Cold users, who have no pair in the training set, are scored by their
items (see `Scorer.fold_in`), by what their attributes predict if they have no items, and else by
popularity. Unknown users, who have the number -1, get popular items. Queries that are answered
together share one pass over the items.

Shapes: n users, I items.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from mgformer.data.attributes import Attributes
from mgformer.data.chronology import recency
from mgformer.data.ids import ExternalId, Ids
from mgformer.data.where import read_where
from mgformer.errors import ConfigError, MgformerError, UnknownIdError
from mgformer.ranking.scorers import DotScorer, HistoryScorer
from mgformer.ranking.topk import TopK
from mgformer.recommend.answer import Answer, Reason, Recommendation, Source
from mgformer.recommend.query import ListOptions, Query, SomeIds, as_ids
from mgformer.recommend.reranking import best_items
from mgformer.recommend.shown import rows_of, shown_attributes
from mgformer.runs.bundle import Bundle

WITHOUT_ITEMS: tuple[Source, ...] = ("attributes", "popularity")
"""Sources of lists that no item of the user explains."""
MOST_REASONS = 3
MOST_EXPLAINED = 50
"""Number of recommendations of a list, from the first on, that come with reasons."""


class History(NamedTuple):
    """The items of one user, by number."""

    trained: NDArray[np.int32]
    """Items of the training set, the latest last: the model scores by these."""
    owned: NDArray[np.int32]
    """All items that have a number: `exclude_seen` leaves these out."""
    unknown: tuple[ExternalId, ...] = ()
    """Ids of the given history that are not in the training set."""
    user: ExternalId | None = None
    """The user, if one is named."""
    unknown_user: bool = False
    """Whether the user is not in the training data."""


def rank_users(
    bundle: Bundle, users: NDArray[np.int32], options: ListOptions
) -> tuple[TopK, list[Source]]:
    """Return the best items of users, and where the scores of each come from."""
    if not bundle.record.histories and isinstance(bundle.scorer, HistoryScorer):
        raise ConfigError(
            f"{bundle.record.model} scores users by their items, and this recommender was saved"
            " without histories; give the items of the user as a history"
        )
    if (users < 0).any():
        return _rank_unknown(bundle, users, options)
    choice = _choice(bundle, options, bundle.known)
    found = best_items(bundle, bundle.scorer, users, options, choice)
    folded = bundle.is_folded[users].tolist()
    sources: list[Source] = ["history" if by_items else "model" for by_items in folded]
    by_attributes = bundle.is_predicted[users]
    for place in np.flatnonzero(by_attributes):
        sources[place] = "attributes"
    without = bundle.train.indptr[users + 1] == bundle.train.indptr[users]
    cold = np.flatnonzero(without & ~by_attributes)
    if len(cold) and bundle.record.histories:
        trained, owned = (
            sp.csr_array(m[users[cold]]) for m in (bundle.trained_items, bundle.known)
        )
        others, other_sources = _rank_rows(bundle, trained, owned, options)
        found.items[cold], found.scores[cold] = others
        for place, source in zip(cold, other_sources, strict=True):
            sources[place] = source
    return found, sources


def _rank_unknown(
    bundle: Bundle, users: NDArray[np.int32], options: ListOptions
) -> tuple[TopK, list[Source]]:
    """Rank for users of whom some are unknown; these are users without items."""
    own, rest = np.flatnonzero(users >= 0), np.flatnonzero(users < 0)
    nothing = np.zeros(0, dtype=np.int32)
    nobody = [History(nothing, nothing)] * len(rest)
    found, sources = rank_histories(bundle, nobody, options)
    if not len(own):
        return found, sources
    known, known_sources = rank_users(bundle, users[own], options)
    # The lists of both have the same length: all users choose from the same items.
    order = np.argsort(np.concatenate([own, rest]), kind="stable")
    both = (np.concatenate(pair)[order] for pair in zip(known, found, strict=True))
    every = [*known_sources, *sources]
    return TopK(*both), [every[place] for place in order]


def rank_histories(
    bundle: Bundle, histories: Iterable[History], options: ListOptions
) -> tuple[TopK, list[Source]]:
    """Return the best items of users who are known by their items only; nothing is trained."""
    trained, owned = zip(*((one.trained, one.owned) for one in histories), strict=True)
    rows = as_rows(bundle, trained, bundle.record.kappa)
    return _rank_rows(bundle, rows, as_rows(bundle, owned), options)


def _rank_rows(
    bundle: Bundle, trained: sp.csr_array, owned: sp.csr_array, options: ListOptions
) -> tuple[TopK, list[Source]]:
    """Rank for users by the [n, I] items they are scored by, and the [n, I] items they have."""
    choice = _choice(bundle, options, owned)
    rows, is_known = np.arange(trained.shape[0]), np.diff(trained.indptr) > 0
    found = best_items(bundle, bundle.scorer.fold_in(trained), rows, options, choice)
    if not is_known.all():
        rest = rows[~is_known]
        popularity = DotScorer(torch.ones(len(rows), 1), bundle.popularity[:, None])
        others = best_items(bundle, popularity, rest, options, choice)
        found.items[rest], found.scores[rest] = others
    return found, ["history" if known else "popularity" for known in is_known]


def _choice(bundle: Bundle, options: ListOptions, owned: sp.csr_array) -> dict[str, Any]:
    """Return candidates, excluded items and items that users have, as `top_k` takes them."""
    candidates = None
    if options.candidates is not None:
        candidates = numbers_of("item", bundle.items, options.candidates)
    exclude = bundle.items.encode(as_ids(options.exclude)) if options.exclude else np.zeros(0)
    seen = owned if options.exclude_seen else None
    allowed = None if options.where is None else bundle.filters.mask(read_where(options.where))
    chosen = {"candidates": candidates, "exclude": exclude[exclude >= 0], "seen": seen}
    return {**chosen, "allowed": allowed}


def read_history(
    bundle: Bundle, history: SomeIds, user: ExternalId | None = None, *, fallback: bool = False
) -> History:
    """Return the items of a history and, if a user is named, the items of this user.

    With `fallback`, an unknown user has the items of the history only.
    """
    ids = as_ids(history)
    numbers = bundle.items.encode(ids)
    is_trained = (numbers >= 0) & (bundle.item_degrees[numbers] > 0)
    unknown = tuple(item for item, known in zip(ids, is_trained, strict=True) if not known)
    owned = numbers[numbers >= 0]
    is_unknown = user is not None and fallback and bundle.users.encode([user])[0] < 0
    if user is not None and not is_unknown:
        (number,) = numbers_of("user", bundle.users, user)
        user = bundle.users.values[int(number)]
        owned = np.concatenate([items_of(bundle, number), owned])
    # An item that occurs several times counts where it occurs last.
    latest = np.unique(owned[::-1], return_index=True)[1]
    owned = owned[::-1][np.sort(latest)][::-1]
    return History(owned[bundle.item_degrees[owned] > 0], owned, unknown, user, is_unknown)


def items_of(bundle: Bundle, user: int | np.integer) -> NDArray[np.int32]:
    """Return the items that a user has: the latest last, if their order is known."""
    pairs = bundle.all_pairs
    own = slice(pairs.indptr[user], pairs.indptr[user + 1])
    items = pairs.indices[own]
    return items if pairs.order is None else items[np.argsort(pairs.order[own], kind="stable")]


def counts_of(history: NDArray[np.int32], kappa: float | None) -> NDArray[np.float32]:
    """Return how much each item of a history counts, whose latest item comes last."""
    places = np.arange(1, len(history) + 1, dtype=np.float32)
    return recency(places / np.float32(max(len(history), 1)), kappa or 0.0)


def as_rows(
    bundle: Bundle, histories: Sequence[NDArray[np.int32]], kappa: float | None = None
) -> sp.csr_array:
    """Return items of n users as the rows of a matrix [n, I]; with κ, older items count less."""
    items = np.concatenate(histories)
    ends = np.cumsum([0, *map(len, histories)], dtype=np.int32)
    shape = (len(histories), bundle.train.num_items)
    counts = np.concatenate([counts_of(history, kappa) for history in histories])
    rows = sp.csr_array((counts, items, ends), shape=shape)
    rows.sort_indices()
    return rows


def numbers_of(kind: str, known: Ids, ids: SomeIds) -> NDArray[np.int32]:
    """Return the numbers of users or items; an unknown id is an error that suggests others."""
    asked = ids if isinstance(ids, pl.Series) else as_ids(ids)
    numbers = known.encode(asked)
    unknown = np.flatnonzero(numbers < 0)
    if len(unknown):
        more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
        raise unknown_id(kind, known, asked[int(unknown[0])], more)
    return numbers


def user_numbers(bundle: Bundle, users: SomeIds, options: ListOptions) -> NDArray[np.int32]:
    """Return the numbers of users: -1 for unknown users, who are an error without `fallback`."""
    if options.fallback:
        return bundle.users.encode(users if isinstance(users, pl.Series) else as_ids(users))
    return numbers_of("user", bundle.users, users)


def user_column(bundle: Bundle, numbers: NDArray[np.int32], users: SomeIds) -> pl.Series:
    """Return the ids of users for a table: as in the data, or as text if a user has no such id."""
    if (numbers >= 0).all():
        return bundle.users.decode(numbers)
    text = pl.Series([str(user) for user in as_ids(users)], dtype=pl.String)
    ids = text.cast(bundle.users.values.dtype, strict=False)
    return text if ids.null_count() else ids


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
    if bundle.about_items.names is not None:
        columns["name"] = bundle.about_items.names[items]
    return pl.DataFrame(columns)


def to_frame(
    bundle: Bundle, users: pl.Series, found: TopK, attributes: bool | Sequence[str] = False
) -> pl.DataFrame:
    """Return lists as one table, best first: user, rank, item, name (if any), score, attributes."""
    shown = shown_attributes(bundle.about_items, attributes)
    kept = found.items >= 0
    rows, ranks = np.nonzero(kept)
    return pl.DataFrame(
        {
            "user": users.gather(rows),
            "rank": pl.Series(ranks + 1, dtype=pl.Int32),
            **with_names(bundle, found.items[kept]).to_dict(),
            "score": found.scores[kept],
            **{name: own.values for name, own in shown.gather(found.items[kept]).items()},
        }
    )


def answer_all(bundle: Bundle, queries: Sequence[Query]) -> list[Answer | MgformerError]:
    """Answer queries together. A query that is wrong gets its error; the others are answered."""
    results: dict[int, Answer | MgformerError] = {}
    groups: dict[tuple[object, ...], list[int]] = {}
    for place, query in enumerate(queries):
        shared = query.exclude_seen, query.candidates, query.exclude, query.where, query.attributes
        wishes = query.diversity, tuple(sorted((query.at_most or {}).items()))
        kind = query.history is None, *shared, *wishes, query.k if query.diversity else 0
        groups.setdefault(kind, []).append(place)
    for (are_users, *_), places in groups.items():
        group = [queries[place] for place in places]
        answer = _answer_users if are_users else _answer_histories
        try:
            found = answer(bundle, group, max(group, key=lambda query: query.k))
        except MgformerError as error:  # in the options, which all of the group share
            found = [error] * len(group)
        results.update(zip(places, found, strict=True))
    return [_explained(bundle, query, results[place]) for place, query in enumerate(queries)]


def answer_users(
    bundle: Bundle,
    users: Sequence[ExternalId] | pl.Series,
    numbers: NDArray[np.int32],
    options: ListOptions,
    ks: Sequence[int] | None = None,
) -> list[Answer]:
    """Answer for users by number. If `ks` is given, each list is cut to its own length."""
    shown = shown_attributes(bundle.about_items, options.attributes)
    found, sources = rank_users(bundle, numbers, options)
    ks = ks or [options.k] * len(numbers)
    known = bundle.users.values
    return [
        Answer(known[number], k, source, _items(bundle, found, row, k, shown))
        if number >= 0
        else Answer(users[row], k, source, _items(bundle, found, row, k, shown), unknown_user=True)
        for row, (number, k, source) in enumerate(zip(numbers.tolist(), ks, sources, strict=True))
    ]


def _answer_users(
    bundle: Bundle, queries: Sequence[Query], longest: Query
) -> list[Answer | MgformerError]:
    users = [query.user for query in queries if query.user is not None]
    numbers = bundle.users.encode(users)
    places = [n for n, query in enumerate(queries) if query.fallback or numbers[n] >= 0]
    ks = [queries[n].k for n in places]
    found = answer_users(bundle, [users[n] for n in places], numbers[places], longest, ks)
    answers = dict(zip(places, found, strict=True))
    return [
        answers[n] if n in answers else unknown_id("user", bundle.users, user)
        for n, user in enumerate(users)
    ]


def _answer_histories(
    bundle: Bundle, queries: Sequence[Query], longest: Query
) -> list[Answer | MgformerError]:
    shown = shown_attributes(bundle.about_items, longest.attributes)
    results: list[Any] = []
    for query in queries:
        try:
            own = read_history(bundle, query.history or (), query.user, fallback=query.fallback)
            results.append(own)
        except MgformerError as error:
            results.append(error)
    places = [place for place, own in enumerate(results) if isinstance(own, History)]
    if places:
        found, sources = rank_histories(bundle, [results[place] for place in places], longest)
        for row, (place, source) in enumerate(zip(places, sources, strict=True)):
            k, own = queries[place].k, results[place]
            items = _items(bundle, found, row, k, shown)
            results[place] = Answer(own.user, k, source, items, own.unknown, own.unknown_user)
    return results


def _items(
    bundle: Bundle, found: TopK, row: int, k: int, shown: Attributes
) -> list[Recommendation]:
    """Return the first k items of a row, with the attributes that are shown."""
    # For lists of usual length, single lookups take less time than one call of `gather`.
    items, scores = found.items[row, :k].tolist(), found.scores[row, :k].tolist()
    listed = [
        Recommendation(bundle.items.values[item], bundle.name_of(item), score)
        for item, score in zip(items, scores, strict=True)
        if item >= 0
    ]
    if not shown:
        return listed
    rows = rows_of(shown, found.items[row, : len(listed)])
    return [replace(one, attributes=own) for one, own in zip(listed, rows, strict=True)]


def _explained(
    bundle: Bundle, query: Query, answer: Answer | MgformerError
) -> Answer | MgformerError:
    """Add the items that contribute most to each recommendation, if the query asks for them."""
    if not query.explain or isinstance(answer, MgformerError) or answer.source in WITHOUT_ITEMS:
        return answer
    own_history = read_history(bundle, query.history or (), query.user, fallback=query.fallback)
    history = own_history.trained
    own = history.tolist()
    explained = answer.items[:MOST_EXPLAINED]
    numbers = bundle.items.encode([item.item for item in explained])
    counts = counts_of(history, bundle.record.kappa)
    weights = bundle.scorer.contributions(history, numbers, counts)
    items = []
    for item, column in zip(explained, weights.T, strict=True):
        largest = np.argsort(-column, kind="stable")[:MOST_REASONS]
        because = tuple(
            Reason(bundle.items.values[own[n]], bundle.name_of(own[n]), float(column[n]))
            for n in largest
            if column[n] > 0
        )
        items.append(replace(item, because=because))
    return replace(answer, items=[*items, *answer.items[MOST_EXPLAINED:]])
