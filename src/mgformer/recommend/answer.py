"""What somebody has, and what is answered: plain values."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mgformer.data.ids import ExternalId

Source = Literal["model", "history", "popularity"]


@dataclass(frozen=True)
class Reason:
    """An item somebody has, and how much it speaks for a recommendation."""

    item: ExternalId
    name: str | None
    weight: float


@dataclass(frozen=True)
class Recommendation:
    """One item for one user."""

    item: ExternalId
    name: str | None
    score: float
    because: tuple[Reason, ...] | None = None
    """What speaks most for it, where that was asked for."""


@dataclass(frozen=True)
class Answer:
    """What is recommended to one user, best first."""

    user: ExternalId | None
    items: list[Recommendation]
    source: Source
    """model: a user of the training data; history: by given items; popularity: nothing known."""
    unknown: tuple[ExternalId, ...] = ()
    """Items of the history of which the model has no training pair: they were passed over."""


class History(NamedTuple):
    """What somebody has, by number."""

    telling: NDArray[np.int32]
    """Items that the model was trained on: somebody is known by these."""
    owned: NDArray[np.int32]
    """All that have a number: not to be recommended again."""
    unknown: tuple[ExternalId, ...] = ()
    """Items that were given, and are not telling."""
    user: ExternalId | None = None
    """Who it is, if a user of the training data."""
