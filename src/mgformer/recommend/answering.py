"""Answer queries. Queries that are answered together share one pass over the items."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from mgformer.errors import MgformerError
from mgformer.ranking.topk import TopK
from mgformer.recommend.answer import Answer, Reason, Recommendation
from mgformer.recommend.lists import (
    History,
    rank_histories,
    rank_users,
    read_history,
    unknown_id,
)
from mgformer.recommend.query import ListOptions, Query
from mgformer.runs.bundle import Bundle

MOST_REASONS = 3
MOST_EXPLAINED = 50
"""Number of recommendations of a list, from the first on, that come with reasons."""


def answer_all(bundle: Bundle, queries: Sequence[Query]) -> list[Answer | MgformerError]:
    """Answer queries together. A query that is wrong gets its error; the others are answered."""
    results: dict[int, Answer | MgformerError] = {}
    groups: dict[tuple[object, ...], list[int]] = {}
    for place, query in enumerate(queries):
        kind = query.history is None, query.exclude_seen, query.candidates, query.exclude
        groups.setdefault(kind, []).append(place)
    for (are_users, *_), places in groups.items():
        group = [queries[place] for place in places]
        answer = _answer_users if are_users else _answer_histories
        try:
            found = answer(bundle, group)
        except MgformerError as error:  # in the options, which all of the group share
            found = [error] * len(group)
        results.update(zip(places, found, strict=True))
    return [_explained(bundle, query, results[place]) for place, query in enumerate(queries)]


def answer_users(
    bundle: Bundle, users: NDArray[np.int32], options: ListOptions, ks: Sequence[int] | None = None
) -> list[Answer]:
    """Answer for users by number. If `ks` is given, each list is cut to its own length."""
    found, sources = rank_users(bundle, users, options)
    ks = ks or [options.k] * len(users)
    return [
        Answer(bundle.users.values[user], k, source, _items(bundle, found, row, k))
        for row, (user, k, source) in enumerate(zip(users.tolist(), ks, sources, strict=True))
    ]


def _answer_users(bundle: Bundle, queries: Sequence[Query]) -> list[Answer | MgformerError]:
    users = [query.user for query in queries if query.user is not None]
    numbers = bundle.users.encode(users)
    known = [query.k for query, number in zip(queries, numbers, strict=True) if number >= 0]
    longest = max(queries, key=lambda query: query.k)
    answers = iter(answer_users(bundle, numbers[numbers >= 0], longest, known))
    return [
        next(answers) if number >= 0 else unknown_id("user", bundle.users, user)
        for user, number in zip(users, numbers, strict=True)
    ]


def _answer_histories(bundle: Bundle, queries: Sequence[Query]) -> list[Answer | MgformerError]:
    results: dict[int, Answer | MgformerError] = {}
    histories: dict[int, History] = {}
    for place, query in enumerate(queries):
        try:
            histories[place] = read_history(bundle, query.history or (), query.user)
        except MgformerError as error:
            results[place] = error
    if histories:
        longest = max(queries, key=lambda query: query.k)
        found, sources = rank_histories(bundle, histories.values(), longest)
        for row, (place, own) in enumerate(histories.items()):
            k = queries[place].k
            items = _items(bundle, found, row, k)
            results[place] = Answer(own.user, k, sources[row], items, own.unknown)
    return [results[place] for place in range(len(queries))]


def _items(bundle: Bundle, found: TopK, row: int, k: int) -> list[Recommendation]:
    """Return the first k items of a row."""
    # For lists of usual length, single lookups take less time than one call of `gather`.
    return [
        Recommendation(bundle.items.values[item], bundle.name_of(item), score)
        for item, score in zip(
            found.items[row, :k].tolist(), found.scores[row, :k].tolist(), strict=True
        )
        if item >= 0
    ]


def _explained(
    bundle: Bundle, query: Query, answer: Answer | MgformerError
) -> Answer | MgformerError:
    """Add the items that contribute most to each recommendation, if the query asks for them."""
    if not query.explain or isinstance(answer, MgformerError) or answer.source == "popularity":
        return answer
    own = read_history(bundle, query.history or (), query.user).trained.tolist()
    explained = answer.items[:MOST_EXPLAINED]
    numbers = bundle.items.encode([item.item for item in explained])
    weights = bundle.scorer.contributions(np.array(own, np.int32), numbers)
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
