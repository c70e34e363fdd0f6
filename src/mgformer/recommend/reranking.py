"""The lists of a ranking, as rules and wishes for diversity change them.

Items that are hidden are left out before the ranking. Boosted items are ranked apart, which is
exact, because a factor does not change the order among items that share it. Pinned items come
first. Then the list is filled from the best item on: an item is left out if the list has enough
items of one of its values. The ranking is read as deep as that needs.

Diversity picks each item by its score and by how much it resembles the items before it (maximal
marginal relevance): (1 − d) · score − d · largest similarity, with scores of 0 to 1. It chooses
among the `POOL` · k best items.

Shapes: n users, I items, P items of a pool.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from mgformer.errors import ConfigError
from mgformer.ranking.scorers import Scorer, vectors_of
from mgformer.ranking.topk import TopK, top_k
from mgformer.recommend.query import ListOptions
from mgformer.runs.bundle import Bundle
from mgformer.runs.rules import check_countable

POOL = 5
"""Items to choose from, for each item of a diverse list."""
Pair = tuple[int, float]
"""An item and its score."""


def best_items(
    bundle: Bundle,
    scorer: Scorer,
    users: NDArray[np.integer],
    options: ListOptions,
    choice: Mapping[str, Any],
) -> TopK:
    """Return the lists of users by number, with the arguments of `top_k`."""
    caps = _caps(bundle, options)
    if bundle.ruled.is_empty and not caps and not options.diversity:
        return _ranked(bundle, scorer, users, options.k, **choice)
    width = min(options.k, scorer.num_items)
    allowed = ~bundle.ruled.hidden
    if choice["allowed"] is not None:
        allowed &= choice["allowed"]
    choice = {**choice, "allowed": allowed}
    pinned = _pinned(bundle, scorer, users, choice)
    rest = {**choice, "exclude": np.concatenate([choice["exclude"], bundle.ruled.pinned])}
    deep = min(width * (POOL if options.diversity else 1), scorer.num_items)
    if caps:
        deep = min(2 * deep, scorer.num_items)
    items = np.full((len(users), width), -1, dtype=np.int32)
    scores = np.full((len(users), width), -np.inf, dtype=np.float32)
    left = np.arange(len(users))
    while len(left):
        found = _boosted(bundle, scorer, users[left], deep, rest)
        unfinished = []
        for row, user in enumerate(left.tolist()):
            first = _pairs(pinned, user)
            every = first + _pairs(found, row)
            if options.diversity:
                num_pinned = len(first)
                every = _diverse(bundle, every, num_pinned, width, options.diversity, caps)
            else:
                every = _capped(bundle, every, width, caps)
            if len(every) < width and deep < scorer.num_items and found.items[row, -1] >= 0:
                unfinished.append(user)
                continue
            for place, (item, score) in enumerate(every):
                items[user, place], scores[user, place] = item, score
        left, deep = np.array(unfinished, dtype=np.int64), min(4 * deep, scorer.num_items)
    return TopK(items, scores)


def _ranked(
    bundle: Bundle, scorer: Scorer, users: NDArray[np.integer], k: int, **choice: Any
) -> TopK:
    """Return the best items by an index, if the bundle has one, or of all items."""
    rank = top_k if bundle.index is None else bundle.index.top_k
    return rank(scorer, users, k, **choice)


def _caps(bundle: Bundle, options: ListOptions) -> dict[str, int]:
    """Return attribute → number of items that may share a value: the lower of rule and wish."""
    caps = dict(bundle.ruled.at_most)
    for name, count in (options.at_most or {}).items():
        check_countable(bundle.filters, name, "at_most", private=False)
        caps[name] = min(count, caps.get(name, count))
    return caps


def _pinned(
    bundle: Bundle, scorer: Scorer, users: NDArray[np.integer], choice: Mapping[str, Any]
) -> TopK:
    """Return the pinned items that users may get, in the order of the rules."""
    pinned = bundle.ruled.pinned
    if choice["candidates"] is not None:
        pinned = pinned[np.isin(pinned, choice["candidates"])]
    if not len(pinned):
        nothing = np.zeros((len(users), 0))
        return TopK(nothing.astype(np.int32), nothing.astype(np.float32))
    found = top_k(scorer, users, len(pinned), **{**choice, "candidates": pinned})
    order = np.full(scorer.num_items + 1, len(pinned))  # the last stands for -1
    order[pinned] = np.arange(len(pinned))
    places = np.argsort(order[found.items], axis=1, kind="stable")
    items, scores = (np.take_along_axis(part, places, axis=1) for part in found)
    return TopK(items.astype(np.int32), scores.astype(np.float32))


def _boosted(
    bundle: Bundle,
    scorer: Scorer,
    users: NDArray[np.integer],
    k: int,
    choice: Mapping[str, Any],
) -> TopK:
    """Return the best items by boosted scores; ties go to the smaller number."""
    groups = bundle.ruled.groups
    if len(groups) == 1 and groups[0][0] == 1.0:
        return _padded(_ranked(bundle, scorer, users, k, **choice), k)
    parts = []
    for factor, mask in groups:
        allowed = {**choice, "allowed": choice["allowed"] & mask}
        found = _padded(_ranked(bundle, scorer, users, k, **allowed), k)
        boosted = np.where(found.scores >= 0, found.scores * factor, found.scores / factor)
        parts.append((found.items, boosted.astype(np.float32)))
    items, scores = (np.concatenate(both, axis=1) for both in zip(*parts, strict=True))
    numbers = np.where(items < 0, np.iinfo(np.int32).max, items)
    order = np.lexsort((numbers, -scores), axis=1)[:, :k]
    items, scores = (np.take_along_axis(part, order, axis=1) for part in (items, scores))
    return TopK(items.astype(np.int32), scores.astype(np.float32))


def _pairs(found: TopK, row: int) -> list[Pair]:
    """Return the items of a row with their scores."""
    both = zip(found.items[row].tolist(), found.scores[row].tolist(), strict=True)
    return [pair for pair in both if pair[0] >= 0]


def _padded(found: TopK, k: int) -> TopK:
    missing = ((0, 0), (0, k - found.items.shape[1]))
    return TopK(
        np.pad(found.items, missing, constant_values=-1),
        np.pad(found.scores, missing, constant_values=-np.inf),
    )


def _values(
    bundle: Bundle, items: list[int], caps: Mapping[str, int]
) -> list[list[tuple[str, Any]]]:
    """Return the values of each item that count towards a cap."""
    found: list[list[tuple[str, Any]]] = [[] for _ in items]
    for name in caps:
        own = bundle.about_items[name]
        for values, value in zip(found, own.gather(items).values.to_list(), strict=True):
            several = value if own.kind == "categories" else [value]
            values.extend((name, one) for one in several or () if one is not None)
    return found


class _Counter:
    """Counts the values of the items of a list."""

    def __init__(self, caps: Mapping[str, int]) -> None:
        self._caps, self._counts = caps, dict[tuple[str, Any], int]()

    def has_room(self, values: list[tuple[str, Any]]) -> bool:
        return all(self._counts.get(value, 0) < self._caps[value[0]] for value in values)

    def add(self, values: list[tuple[str, Any]]) -> None:
        for value in values:
            self._counts[value] = self._counts.get(value, 0) + 1


def _capped(bundle: Bundle, ranked: list[Pair], k: int, caps: Mapping[str, int]) -> list[Pair]:
    """Return the first k items that keep to the caps."""
    if not caps:
        return ranked[:k]
    counter, kept = _Counter(caps), []
    for pair, values in zip(ranked, _values(bundle, [i for i, _ in ranked], caps), strict=True):
        if counter.has_room(values):
            counter.add(values)
            kept.append(pair)
            if len(kept) == k:
                break
    return kept


def _diverse(
    bundle: Bundle,
    pool: list[Pair],
    num_pinned: int,
    k: int,
    diversity: float,
    caps: Mapping[str, int],
) -> list[Pair]:
    """Return k items of a pool by maximal marginal relevance; pinned items stay first."""
    if not pool:
        return []
    items = [item for item, _ in pool]
    own = np.array([score for _, score in pool], dtype=np.float64)
    span = own.max() - own.min()
    relevance = (own - own.min()) / span if span > 0 else np.ones(len(own))
    alike = similarities(bundle, items)
    values, counter = _values(bundle, items, caps), _Counter(caps)
    largest, kept = np.zeros(len(items)), list[int]()
    free = np.ones(len(items), dtype=bool)
    while free.any() and len(kept) < k:
        if len(kept) < num_pinned and free[:num_pinned].any():
            best = int(np.flatnonzero(free)[0])
        else:
            worth = (1 - diversity) * relevance - diversity * largest
            best = int(np.where(free, worth, -np.inf).argmax())
        free[best] = False
        if counter.has_room(values[best]):
            counter.add(values[best])
            kept.append(best)
            largest = np.maximum(largest, alike[best])
    return [pool[place] for place in kept]


def similarities(bundle: Bundle, items: list[int]) -> NDArray[np.float64]:
    """Return how much items resemble each other [P, P], by attributes or else by their vectors."""
    numbers = np.array(items, dtype=np.int64)
    rows = bundle.features[numbers]
    if rows.shape[1]:
        table = sp.csr_array(rows).toarray().astype(np.float64)
    elif (vectors := vectors_of(bundle.scorer)) is not None and vectors.num_varying > 1:
        own = vectors.items[torch.from_numpy(numbers), : vectors.num_varying]
        table = own.double().cpu().numpy()
    else:
        raise ConfigError(
            f"diversity: {bundle.record.model} has no vectors and its items have no attributes to"
            " compare them by; give data.items=FILE when you train"
        )
    table /= np.maximum(np.linalg.norm(table, axis=1, keepdims=True), 1e-12)
    return np.asarray(table @ table.T)
