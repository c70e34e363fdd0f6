"""What a request may contain. The limits of the service are part of the schema."""

from typing import Annotated, Any, Literal, NamedTuple

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictInt,
    StrictStr,
    model_validator,
)

from mgformer.recommend.query import Query
from mgformer.serving.limits import Limits

ID_LENGTH = 512


def _to_int(value: object) -> object:
    """Take 3.0 for 3: JSON does not tell them apart."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Int = Annotated[StrictInt, BeforeValidator(_to_int)]
Id = Annotated[StrictStr, Field(max_length=ID_LENGTH)] | Int


class Body(BaseModel):
    """The body of a request. Unknown fields and values of another type are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=True)


class Bodies(NamedTuple):
    """The types of the request bodies, with the limits of one service."""

    recommend: type[Body]
    batch: type[Body]
    similar: type[Body]


def request_bodies(limits: Limits, a_user: Any, an_item: Any) -> Bodies:
    """Return the request bodies. The examples in their schema name an existing user and item."""
    k_field = Field(min(20, limits.k), ge=1, le=limits.k)

    class Recommend(Body):
        """A list for one user. Give `user`, `history`, or both."""

        model_config = ConfigDict(
            json_schema_extra=_require("anyOf", {"user": a_user, "k": 1}, {"history": [an_item]})
        )

        user: Id | None = None
        """A user of the training data."""
        history: list[Id] | None = Field(None, max_length=limits.history_items)
        """Items of a new user; with `user`, items that the user got after the training."""
        k: Int = k_field
        exclude_seen: bool = True
        """Leave out the items that the user already has."""
        candidates: list[Id] | None = Field(None, min_length=1, max_length=limits.candidates)
        """Items to choose from."""
        exclude: list[Id] = Field([], max_length=limits.candidates)
        """Items that are never recommended. Unknown ids are ignored."""
        explain: bool = False
        """Give the items of the user that contribute most to each recommendation."""

        def query(self) -> Query:
            return Query(**dict(self))

    class Batch(Body):
        """Lists for many users. The number of users times k is limited as well."""

        users: list[Id] = Field(
            min_length=1, max_length=limits.batch_users, examples=[[a_user, a_user]]
        )
        k: Int = k_field
        exclude_seen: bool = True
        exclude: list[Id] = Field([], max_length=limits.candidates)
        """Items that are recommended to none of the users."""

        @model_validator(mode="after")
        def _is_small_enough(self) -> "Batch":
            if len(self.users) * self.k > limits.batch_items:
                raise ValueError(
                    f"{len(self.users):,} users × {self.k:,} items exceed the limit of"
                    f" {limits.batch_items:,}; send smaller batches"
                )
            return self

        def queries(self) -> list[Query]:
            options: dict[str, Any] = {**dict(self), "exclude": tuple(self.exclude)}
            users = options.pop("users")
            return [Query(user=user, **options) for user in users]

    class Similar(Body):
        """An item or a user. Give one of them."""

        model_config = ConfigDict(
            json_schema_extra=_require("oneOf", {"item": an_item, "k": 1}, {"user": a_user})
        )

        item: Id | None = None
        user: Id | None = None
        k: Int = k_field

        @model_validator(mode="after")
        def _names_one(self) -> "Similar":
            if (self.item is None) == (self.user is None):
                raise ValueError("give either item or user")
            return self

    return Bodies(Recommend, Batch, Similar)


def _require(how: Literal["anyOf", "oneOf"], *examples: dict[str, Any]) -> dict[str, Any]:
    """Return a JSON schema that requires the first field of one of the examples, not null."""
    fields = [next(iter(example)) for example in examples]
    not_null = {"not": {"type": "null"}}
    choices = [{"required": [f], "properties": {f: not_null}} for f in fields]
    return {how: choices, "examples": [*examples]}
