"""The answer to a query. Python, the command line and the HTTP service share it."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import PlainSerializer

from mgformer.data.ids import ExternalId

Source = Literal["model", "history", "attributes", "popularity"]
TextId = Annotated[ExternalId, PlainSerializer(str, return_type=str)]
"""An id of the data. JSON has it as text, because JavaScript rounds large integers."""


@dataclass(frozen=True)
class Reason:
    """An item of the user, and how much it adds to the score of a recommendation."""

    item: TextId
    name: str | None
    weight: float


@dataclass(frozen=True)
class Recommendation:
    """One recommended item."""

    item: TextId
    name: str | None
    score: float
    attributes: dict[str, Any] | None = None
    """Attributes of the item, null where one is not known; None unless the query asks for them."""
    because: tuple[Reason, ...] | None = None
    """The items of the user that contribute most; None unless the query asks for them."""


@dataclass(frozen=True)
class Answer:
    """The items recommended to one user, best first."""

    user: TextId | None
    """The user, if the query names one."""
    k: int
    """The number of items asked for."""
    source: Source
    """Where the scores come from: `model` for trained users, `history` for users scored by their
    items, `popularity` if the model knows none of the items. Popularity follows the trend of items
    if the score does."""
    items: list[Recommendation]
    unknown: tuple[TextId, ...] = ()
    """Items of the given history that are not in the training set. They were ignored."""
    unknown_user: bool = False
    """Whether the user is not in the training data. The list is a fallback."""
