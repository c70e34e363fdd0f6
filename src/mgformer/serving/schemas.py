"""What the service answers. Ids are sent as text, because JavaScript rounds large integers."""

from collections.abc import Iterable
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, TypeAdapter

from mgformer.recommend.answer import Answer

TextId = Annotated[str, BeforeValidator(str)]
ANSWER = TypeAdapter(Answer)


def answers_as_json(answers: Iterable[Answer]) -> bytes:
    """Return answers as a JSON list.

    They are encoded one by one, because no other thread can run while pydantic encodes.
    """
    return b"[" + b",".join(map(ANSWER.dump_json, answers)) + b"]"


class Item(BaseModel):
    """An item."""

    item: TextId
    name: str | None = None


class SimilarItem(Item):
    """An item that is similar to another."""

    score: float


class SimilarUser(BaseModel):
    """A user who is similar to another."""

    user: TextId
    score: float


class Owned(BaseModel):
    """The items of a user."""

    user: TextId
    total: int
    items: list[Item]
    """The first items, in the order of their ids."""


class Reloaded(BaseModel):
    """The bundle in service, and whether it differs from the one before."""

    changed: bool
    bundle: str
