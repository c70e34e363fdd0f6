"""What requests and answers look like.

Ids are answered as text, whatever they are in the data: JavaScript, for one, rounds large integers.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictInt, StrictStr
from pydantic import TypeAdapter as Adapter

from mgformer.recommend.answer import Answer, Recommendation, Source

ID_LENGTH = 512


def _whole(value: object) -> object:
    """Take 3.0 for 3, as JSON does."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Whole = Annotated[StrictInt, BeforeValidator(_whole)]
Id = Annotated[StrictStr, Field(max_length=ID_LENGTH)] | Whole
TextId = Annotated[str, BeforeValidator(str)]


class Body(BaseModel):
    """What a request says: of the types asked for, and nothing else."""

    model_config = ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=True)


def either(how: Literal["anyOf", "oneOf"], *examples: dict[str, Any]) -> dict[str, Any]:
    """Return, as JSON schema, that the field of an example must be there and not null."""
    something = {"not": {"type": "null"}}
    fields = [next(iter(example)) for example in examples]
    choices = [{"required": [f], "properties": {f: something}} for f in fields]
    return {how: choices, "examples": [*examples]}


@dataclass(frozen=True)
class ListedReason:
    """An item somebody has, and how much it speaks for a recommendation."""

    item: str
    name: str | None
    weight: float


@dataclass(frozen=True)
class ListedItem:
    """One item for one user."""

    item: str
    name: str | None
    score: float
    because: list[ListedReason] | None
    """What speaks most for it, where that was asked for."""


@dataclass(frozen=True)
class Listed:
    """What is recommended to one user, best first."""

    user: str | None
    k: int
    """As asked for; there may be fewer items."""
    source: Source
    """model: a user of the training data; history: by given items; popularity: nothing known."""
    items: list[ListedItem]
    unknown: list[str]
    """Items of the history of which the model has no training pair: they were passed over."""


LISTED = Adapter(Listed)


def as_json(answer: Answer, k: int) -> bytes:
    """Return an answer to a question for k items as JSON."""
    user = None if answer.user is None else str(answer.user)
    items, unknown = [_listed(item) for item in answer.items], [str(i) for i in answer.unknown]
    return LISTED.dump_json(Listed(user, k, answer.source, items, unknown))


def many_as_json(answers: Iterable[Answer], k: int) -> bytes:
    """Return answers as a list in JSON.

    They are encoded one by one: no other thread, such as the one that hears requests, gets its turn
    while pydantic encodes.
    """
    return b"[" + b",".join(as_json(answer, k) for answer in answers) + b"]"


def _listed(one: Recommendation) -> ListedItem:
    because = None
    if one.because is not None:
        because = [ListedReason(str(why.item), why.name, why.weight) for why in one.because]
    return ListedItem(str(one.item), one.name, one.score, because)


class Item(BaseModel):
    """An item."""

    item: TextId
    name: str | None = None


class SimilarItem(Item):
    """An item like another."""

    score: float


class SimilarUser(BaseModel):
    """A user like another."""

    user: TextId
    score: float


class Owned(BaseModel):
    """What a user has."""

    user: TextId
    total: int
    items: list[Item]
    """The first of them, in the order of their ids."""


class Reloaded(BaseModel):
    """Which bundle is in service, and whether it is another than before."""

    changed: bool
    bundle: str
