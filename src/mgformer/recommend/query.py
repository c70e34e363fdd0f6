"""What to recommend, and to whom."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import InitVar, dataclass
from typing import Any

import numpy as np

from mgformer.data.ids import ExternalId
from mgformer.data.where import Where, read_where
from mgformer.errors import ConfigError

Condition = Where | str | Mapping[str, Any]
"""A condition on attributes: as `data/where.py` has it, as text, or as JSON."""
SomeIds = ExternalId | Iterable[ExternalId]
"""One id, or several."""


def as_ids(ids: SomeIds) -> tuple[ExternalId, ...]:
    """Return ids as a tuple; a single id becomes a tuple of one."""
    return (ids,) if isinstance(ids, str | int | np.integer) else tuple(ids)


@dataclass(frozen=True, kw_only=True)
class ListOptions:
    """How long a list is, and which items it may contain."""

    k: int = 20
    """Number of items; a list is shorter if fewer items are left."""
    candidates: SomeIds | None = None
    """Items to choose from. By default, all items. Unknown ids are an error."""
    exclude: SomeIds = ()
    """Items that are never recommended. Unknown ids are ignored."""
    exclude_seen: bool = True
    """Leave out the items that the user already has."""
    fallback: bool = False
    """Answer unknown users by their history or, without one, with popular items. By default, an
    unknown user is an error."""
    where: Condition | None = None
    """A condition on attributes, as text or JSON: "genres has Comedy and year >= 1990"."""
    diversity: float = 0.0
    """From 0 to 1: how much an item loses by resembling those before it in the list."""
    at_most: Mapping[str, int] | None = None
    """Attribute → how many items of a list may share a value of it."""
    attributes: bool | str | Sequence[str] = False
    """Attributes of the items to give: True for all, or names. Private ones cannot be had."""

    def __post_init__(self) -> None:
        if self.k < 1:
            raise ConfigError(f"k must be at least 1, got {self.k}")
        for name in ("candidates", "exclude", "history"):
            ids = getattr(self, name, None)
            if ids is not None:
                object.__setattr__(self, name, as_ids(ids))  # this object is frozen
        if not 0 <= self.diversity <= 1:
            raise ConfigError(f"diversity must be from 0 to 1, got {self.diversity}")
        for name, count in (self.at_most or {}).items():
            if isinstance(count, bool) or not isinstance(count, int) or count < 1:
                raise ConfigError(f"at_most: got {count!r} for {name}, expected at least 1")
        if not isinstance(self.attributes, bool):
            named = as_ids(self.attributes)
            object.__setattr__(self, "attributes", named)
        if self.where is not None:
            object.__setattr__(self, "where", read_where(self.where))


@dataclass(frozen=True, kw_only=True)
class Query(ListOptions):
    """A request for one list. Name a `user`, a `history`, or both."""

    user: ExternalId | None = None
    """A user of the training data; with `fallback`, any user."""
    history: SomeIds | None = None
    """Items of a new user, the latest last. With `user`: items that came after the training."""
    times: InitVar[Sequence[float] | None] = None
    """When the items of `history` came, in any unit. The history may then have any order."""
    explain: bool = False
    """Give the items of the user that contribute most to each recommendation."""

    def __post_init__(self, times: Sequence[float] | None) -> None:
        super().__post_init__()
        if self.user is None and self.history is None:
            raise ConfigError("a query needs a user, a history, or both")
        if times is not None:
            ordered = by_time(self.history or (), times)
            object.__setattr__(self, "history", ordered)  # this object is frozen


def by_time(history: SomeIds, times: Sequence[float]) -> tuple[ExternalId, ...]:
    """Return a history ordered by the times of its items; equal times keep their order."""
    ids, moments = as_ids(history), np.asarray(times, dtype=np.float64).reshape(-1)
    if len(moments) != len(ids):
        raise ConfigError(
            f"times: got {len(moments)} for a history of {len(ids)} items; give one for each item"
        )
    if not np.isfinite(moments).all():
        raise ConfigError("times: expected numbers, got one that is infinite or missing")
    return tuple(ids[place] for place in np.argsort(moments, kind="stable"))
