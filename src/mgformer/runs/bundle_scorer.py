"""Read the scorer of a bundle: kinds are looked up here, and every setting is checked.

Shapes: U users, I items, D channels, F factors.
"""

from typing import Any

from mgformer.errors import BundleError, did_you_mean
from mgformer.ranking.scorers import DotScorer, HistoryScorer, Scorer, SumScorer
from mgformer.runs.bundle_check import LARGEST, Contents

KINDS = ("dot", "history", "sum")


def read_scorer(
    described: object, contents: Contents, num_users: int, num_items: int, place: str = ""
) -> Scorer:
    """Return the scorer that the manifest describes.

    Args:
        described: Its kind and settings.
        contents: Its tensors.
        num_users: U.
        num_items: I.
        place: What precedes the names of its tensors, if it is part of another scorer.
    """
    if not isinstance(described, dict) or not isinstance(described.get("kind"), str):
        raise BundleError(f"{contents.source}: the manifest names no kind of scorer; train again")
    settings = dict(described)
    kind = settings.pop("kind")
    if kind == "dot":
        return _dot(settings, contents, num_users, num_items, place)
    if kind == "history":
        _no_more(settings, (), contents.source)
        return _history(contents, num_users, num_items, place)
    if kind == "sum" and not place:
        _no_more(settings, ("vectors", "history"), contents.source)
        parts = [
            read_scorer(settings.get(name), contents, num_users, num_items, f"{name}/")
            for name in ("vectors", "history")
        ]
        if isinstance(parts[0], DotScorer) and isinstance(parts[1], HistoryScorer):
            return SumScorer(parts[0], parts[1])
        raise BundleError(f"{contents.source}: expected vectors and a history in a sum scorer")
    raise BundleError(
        f"{contents.source}: unknown kind of scorer {kind!a}; known: {', '.join(KINDS)};"
        " upgrade mgformer"
    )


def _dot(
    settings: dict[str, Any], contents: Contents, num_users: int, num_items: int, place: str
) -> DotScorer:
    _no_more(settings, ("unobserved_weight", "l2", "unit", "constant"), contents.source)
    users = contents.values(f"{place}users", num_users, None)
    items = contents.values(f"{place}items", num_items, users.shape[1])
    if users.dtype != items.dtype:
        contents.refuse(f"{place}items", items.dtype, str(users.dtype))
    dim = users.shape[1]
    for name, value in settings.items():
        if name in ("unobserved_weight", "l2"):
            fits = type(value) in (int, float) and 0 <= value <= LARGEST  # NaN is not
            expected = f"a number from 0 to {LARGEST:g}"
        elif name == "unit":
            fits, expected = type(value) is bool, "true or false"
        else:
            fits, expected = type(value) is int and 0 <= value < dim, f"0 to {dim - 1}"
        if not fits:
            contents.refuse(name, ascii(value)[:50], expected)
    if not dim:
        contents.refuse(f"{place}users", "no channels", "at least one")
    return DotScorer(users, items, **settings)


def _history(contents: Contents, num_users: int, num_items: int, place: str) -> HistoryScorer:
    histories = contents.matrix(f"{place}histories", num_users, num_items)
    weights = through = left = right = factors = None
    if f"{place}weights" in contents:
        weights = contents.values(f"{place}weights", num_items, num_items)
    elif f"{place}weights.data" in contents:
        weights = contents.matrix(f"{place}weights", num_items, num_items)
    if f"{place}through.data" in contents:
        through = contents.matrix(f"{place}through", None, num_items)
    if f"{place}left" in contents or f"{place}right" in contents:
        left = contents.values(f"{place}left", num_items, None)
        right = contents.values(f"{place}right", num_items, left.shape[1])
    if f"{place}item_factors" in contents:
        factors = contents.values(f"{place}item_factors", num_items)
    return HistoryScorer(histories, weights, through, left, right, factors)


def _no_more(settings: dict[str, Any], known: tuple[str, ...], source: str) -> None:
    for name in settings:
        if name not in known:
            hint = did_you_mean(name, known) or f"; known: {', '.join(known) or 'none'}"
            raise BundleError(f"{source}: unknown setting {name!a} of a scorer{hint}")
