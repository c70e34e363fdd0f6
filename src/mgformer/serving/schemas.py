"""What requests may contain, and what the service answers.

The limits of the service are part of the schema. Answers have ids as text, because JavaScript
rounds large integers.
"""

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Annotated, Any

import pydantic
from pydantic import BaseModel, ConfigDict, Field

from mgformer.data.attribute_file import MOST_COLUMNS
from mgformer.data.attributes import NO_ATTRIBUTES, Attributes
from mgformer.data.options import AttributeKind
from mgformer.data.where import read_where
from mgformer.recommend.answer import Answer, TextId
from mgformer.recommend.query import Query
from mgformer.recommend.shown import shown_attributes
from mgformer.serving.limits import Limits
from mgformer.serving.where_schema import at_most_schema, where_schema

ANSWER = pydantic.TypeAdapter(Answer)
ID_LENGTH = 512


def _to_int(value: object) -> object:
    """Take 3.0 for 3: JSON does not tell them apart."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Int = Annotated[pydantic.StrictInt, pydantic.BeforeValidator(_to_int)]
Id = Annotated[pydantic.StrictStr, Field(max_length=ID_LENGTH)] | Int


LogId = Annotated[pydantic.StrictStr, Field(min_length=1, max_length=ID_LENGTH)] | Int


class Body(BaseModel):
    """The body of a request. Unknown fields and values of another type are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=True)


class DatedItem(Body):
    """An item of a history, and when it came."""

    item: Id
    time: float = Field(allow_inf_nan=False)
    """In any unit, such as seconds since 1970."""


def _kind_of_history(history: object) -> str:
    """Return which form a history has, so that errors speak of this form only."""
    first = history[0] if isinstance(history, list) and history else None
    return "dated" if isinstance(first, dict | DatedItem) else "ids"


def request_bodies(
    limits: Limits, a_user: Any, an_item: Any, about: Attributes = NO_ATTRIBUTES
) -> SimpleNamespace:
    """Return the request bodies.

    The examples in their schema name an existing user and item, and the filters have the attributes
    `about` items. Requests are checked against those of the bundle in service, not against these.
    """
    k_field = Field(min(20, limits.k), ge=1, le=limits.k)
    most = limits.history_items
    Ids = Annotated[list[Id], Field(max_length=most), pydantic.Tag("ids")]
    Dated = Annotated[list[DatedItem], Field(min_length=1, max_length=most), pydantic.Tag("dated")]
    Where = Annotated[
        dict[str, Any],
        pydantic.AfterValidator(read_where),
        pydantic.WithJsonSchema(where_schema(about)),
    ]
    shown = {"type": "string", "enum": [*shown_attributes(about, True)]}
    Names = Annotated[
        list[str],
        Field(max_length=MOST_COLUMNS),
        pydantic.WithJsonSchema({"type": "array", "maxItems": MOST_COLUMNS, "items": shown}),
    ]
    Cap = Annotated[
        dict[str, Annotated[Int, Field(ge=1)]],
        pydantic.WithJsonSchema(at_most_schema(about)),
    ]
    History = Annotated[Ids | Dated, pydantic.Discriminator(_kind_of_history)]

    class Recommend(Body):
        """A list for one user. Give `user`, `history`, or both."""

        model_config = _require("anyOf", {"user": a_user, "k": 1}, {"history": [an_item]})

        user: Id | None = None
        """A user. Unknown users get a list by their history or, without one, popular items."""
        history: History | None = None
        """Items of a new user, the latest last, or in any order if they have times. With `user`:
        items that came after the training."""
        k: Int = k_field
        exclude_seen: bool = True
        """Leave out the items that the user already has."""
        candidates: list[Id] | None = Field(None, min_length=1, max_length=limits.candidates)
        """Items to choose from."""
        exclude: list[Id] = Field([], max_length=limits.candidates)
        """Items that are never recommended. Unknown ids are ignored."""
        strict: bool = False
        """Answer unknown users with a 404."""
        where: Where | None = None
        """A condition on attributes: {"genres": {"has": "Comedy"}, "year": {">=": 1990}}."""
        diversity: float = Field(0.0, ge=0, le=1)
        """How much an item loses by resembling those before it in the list."""
        at_most: Cap | None = None
        """Attribute → how many items of a list may share a value of it."""
        attributes: bool | Names = False
        """Give the attributes of each item: all, or those that are named."""
        explain: bool = False
        """Give the items of the user that contribute most to each recommendation."""

        def query(self) -> Query:
            """Return the query that this asks."""
            options = {**dict(self), "fallback": not self.strict}
            del options["strict"]
            dated = [entry for entry in self.history or () if isinstance(entry, DatedItem)]
            if dated:
                options["history"] = [entry.item for entry in dated]
                options["times"] = [entry.time for entry in dated]
            return Query(**options)

    class Batch(Body):
        """Lists for many users. The number of users times k is limited as well."""

        users: list[Id] = Field(
            min_length=1, max_length=limits.batch_users, examples=[[a_user, a_user]]
        )
        k: Int = k_field
        exclude_seen: bool = True
        exclude: list[Id] = Field([], max_length=limits.candidates)
        """Items that are recommended to none of the users."""
        strict: bool = False
        """Answer with a 404 if a user is unknown. Otherwise unknown users get popular items, and
        their answers say so."""
        where: Where | None = None
        """A condition on attributes, as in /recommend."""
        diversity: float = Field(0.0, ge=0, le=1)
        """How much an item loses by resembling those before it in the list."""
        at_most: Cap | None = None
        """Attribute → how many items of a list may share a value of it."""
        attributes: bool | Names = False
        """Give the attributes of each item: all, or those that are named."""

        def queries(self) -> list[Query]:
            """Return the queries that this asks."""
            options = {**dict(self), "fallback": not self.strict, "exclude": tuple(self.exclude)}
            del options["strict"], options["users"]
            return [Query(user=user, **options) for user in self.users]

        @pydantic.model_validator(mode="after")
        def _is_small_enough(self) -> "Batch":
            if len(self.users) * self.k > limits.batch_items:
                raise ValueError(
                    f"{len(self.users):,} users × {self.k:,} items exceed the limit of"
                    f" {limits.batch_items:,}; send smaller batches"
                )
            return self

    class Similar(Body):
        """An item or a user. Give one of them."""

        model_config = _require("oneOf", {"item": an_item, "k": 1}, {"user": a_user})

        item: Id | None = None
        user: Id | None = None
        k: Int = k_field

        @pydantic.model_validator(mode="after")
        def _names_one(self) -> "Similar":
            if (self.item is None) == (self.user is None):
                raise ValueError("give either item or user")
            return self

    return SimpleNamespace(recommend=Recommend, batch=Batch, similar=Similar)


def _require(how: str, *examples: dict[str, Any]) -> ConfigDict:
    """Return a schema that requires the first field of one of the examples, not null."""
    choices: list[Any] = [
        {"required": [field], "properties": {field: {"not": {"type": "null"}}}}
        for field in (next(iter(example)) for example in examples)
    ]
    return ConfigDict(json_schema_extra={how: choices, "examples": [*examples]})


def answers_as_json(answers: Iterable[Answer]) -> bytes:
    """Return answers as a JSON list.

    They are encoded one by one, because no other thread can run while pydantic encodes.
    """
    return b"[" + b",".join(map(ANSWER.dump_json, answers)) + b"]"


class Interaction(Body):
    """A user has had an item."""

    user: LogId
    item: LogId
    time: float | None = Field(None, allow_inf_nan=False)
    """When, in the unit of the training data. By default now, in seconds since 1970."""
    weight: float | None = Field(None, ge=1e-9, le=1e9)
    """How much it counts, if the training uses weights."""


def feedback_bodies(limits: Limits, a_user: Any, an_item: Any) -> SimpleNamespace:
    """Return the request body of feedback: one interaction, or several."""
    example = {"user": a_user, "item": an_item}

    class One(Interaction):
        """One interaction."""

        model_config = ConfigDict(json_schema_extra={"examples": [example]})

    class Several(Body):
        """Interactions that are stored together: all of them, or none."""

        model_config = ConfigDict(json_schema_extra={"examples": [{"interactions": [example]}]})

        interactions: list[Interaction] = Field(min_length=1, max_length=limits.feedback)

    def kind(body: object) -> str:
        is_many = isinstance(body, Several) or (isinstance(body, dict) and "interactions" in body)
        return "several" if is_many else "one"

    either = Annotated[One, pydantic.Tag("one")] | Annotated[Several, pydantic.Tag("several")]
    return SimpleNamespace(feedback=Annotated[either, pydantic.Discriminator(kind)])


class Accepted(BaseModel):
    """Feedback that is stored."""

    accepted: int
    """Number of interactions."""


class Item(BaseModel):
    """An item."""

    item: TextId
    name: str | None = None


class Value(BaseModel):
    """A value of an attribute, and how many items have it."""

    value: str | bool
    count: int


class Column(BaseModel):
    """An attribute of items, by which requests may filter."""

    name: str
    kind: AttributeKind
    missing: int
    """Items whose value is not known."""
    min: float | str | None = None
    """The lowest number, or the first date."""
    max: float | str | None = None
    distinct: int | None = None
    """The number of different values."""
    values: list[Value] | None = None
    """The most frequent values."""


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


class Example(Owned):
    """A user of the training data, with a short list."""

    items: list[Item]
    """The latest items, if their order is known; the latest first."""
    recommended: list[Item]


class Reloaded(BaseModel):
    """The bundle in service, and whether it differs from the one before."""

    changed: bool
    bundle: str


class Model(BaseModel):
    """A model in service."""

    name: str
    """What `?model=` calls it."""
    share: float
    """Share of the users who get it if a request names no model."""
    default: bool
    """Whether it answers requests that name neither a model nor a user."""
    model: str
    dataset: str
    bundle: str
    """Checksum of the bundle."""
