"""What requests and answers look like; lists are `Answer` of `recommender.py`."""

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictInt, StrictStr
from pydantic import TypeAdapter as Adapter

from mgformer.answers import Answer
from mgformer.data.ids import ExternalId

ID_LENGTH = 512
ANSWER = Adapter(Answer)


def _whole(value: object) -> object:
    """Take 3.0 for 3, as JSON does."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Whole = Annotated[StrictInt, BeforeValidator(_whole)]
Id = Annotated[StrictStr, Field(max_length=ID_LENGTH)] | Whole


class Body(BaseModel):
    """What a request says: of the types asked for, and nothing else."""

    model_config = ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=True)


def either(how: Literal["anyOf", "oneOf"], *examples: dict[str, Any]) -> dict[str, Any]:
    """Return, as JSON schema, that the field of an example must be there and not null."""
    something = {"not": {"type": "null"}}
    fields = [next(iter(example)) for example in examples]
    choices = [{"required": [f], "properties": {f: something}} for f in fields]
    return {how: choices, "examples": [*examples]}


def many_as_json(answers: Iterable[Answer]) -> bytes:
    """Return answers as a list in JSON.

    They are encoded one by one: no other thread, such as the one that hears requests, gets its turn
    while pydantic encodes.
    """
    return b"[" + b",".join(map(ANSWER.dump_json, answers)) + b"]"


class Item(BaseModel):
    """An item."""

    item: ExternalId
    name: str | None = None


class SimilarItem(Item):
    """An item like another."""

    score: float


class SimilarUser(BaseModel):
    """A user like another."""

    user: ExternalId
    score: float


class Owned(BaseModel):
    """What a user has."""

    user: ExternalId
    total: int
    items: list[Item]
    """The first of them, in the order of their ids."""


class Reloaded(BaseModel):
    """Which bundle is in service, and whether it is another than before."""

    changed: bool
    bundle: str
