"""Options for reading and splitting a dataset: `data.*` and `split.*` of a run.

This module imports pydantic only, so that a command line can list the options at once.
"""

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from mgformer.errors import did_you_mean
from mgformer.outside import is_outside

SPLITS = ("auto", "ratio", "last", "time", "users", "items", "given")
VALID_SHARE = 0.1
OPTIONS = ConfigDict(
    frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False
)
"""What all classes of options have in common: no unknown names, and no infinite numbers."""
Format = Literal["csv", "parquet", "jsonl", "lightgcn", "inter"]
AttributeKind = Literal["category", "categories", "number", "date", "flag", "text", "embedding"]
"""What a column about items or users holds."""


class DataConfig(BaseModel):
    """How to read a file, folder or table of interactions."""

    model_config = OPTIONS

    format: Literal["auto"] | Format = "auto"
    """File format; auto uses the extension, then the content. csv is any delimited text."""
    sep: str | None = None
    """Field separator, one or more characters; detected if not set."""
    header: bool | None = None
    """Whether the first line names the columns; detected if not set."""
    user: str | int | None = None
    """Column of user ids: a name, or a position counted from 0."""
    item: str | int | None = None
    """Column of item ids: a name, or a position counted from 0."""
    time: str | int | None = None
    """Column of times: increasing numbers or dates; an empty name ignores times."""
    time_format: str | None = None
    """How dates are written, as Python's strptime has it: %d.%m.%y %H:%M. If not set, the usual
    ways are known."""
    order: Literal["auto", "file", "none"] = "auto"
    """Whether rows without times stand in order of time. file: they do; none: they do not; auto:
    the items of a line of a LightGCN file do, unless all lines are sorted."""
    rating: str | int | None = None
    """Column of ratings, used by min_rating only; an empty name ignores ratings."""
    weight: str | int | None = None
    """Column of weights; an empty name ignores weights."""
    min_rating: float | None = None
    """Drop rows with a lower rating; if not set, every row counts."""
    on_error: Literal["stop", "skip"] = "stop"
    """What to do with rows that cannot be used. stop: end with an error that names the first; skip:
    leave them out, and report how many and the first of them."""
    max_unpacked: float | None = Field(None, gt=0, le=1e6)
    """Gigabytes that a gzip, Zstandard, zip or Parquet file may unpack to. By default 200 times its
    size and at least 0.27, but no more than half of the memory."""
    k_core: int = Field(default=0, ge=0)
    """Drop users and items with fewer pairs than this, repeatedly; 0 keeps all."""
    items: Path | None = None
    """File about items: an id, a name and any other columns, such as categories and prices."""
    users: Path | None = None
    """File about users, of the same form."""
    kinds: dict[str, AttributeKind | Literal["ignore"]] = {}
    """What columns of these files hold, where detection is wrong: {brand = "category"}."""
    private: tuple[str, ...] = ()
    """Columns of these files for rules only: they are never shown, and requests cannot filter by
    them."""

    @model_validator(mode="before")
    @classmethod
    def _as_it_was_called(cls, options: Any) -> Any:
        """Take the option by which older versions named the file about items."""
        if isinstance(options, Mapping) and "item_names" in options:
            rest = {name: value for name, value in options.items() if name != "item_names"}
            return {"items": options["item_names"], **rest}
        return options

    @field_validator("time_format")
    @classmethod
    def _tells_the_year(cls, time_format: str | None) -> str | None:
        if time_format is None:
            return None
        try:
            days = [datetime(year, 1, 31, 12) for year in (1999, 2024)]
            found = {datetime.strptime(day.strftime(time_format), time_format) for day in days}
        except ValueError:
            found = set()
        if len(found) < 2:
            raise ValueError(
                f"expected a strptime format with a year, such as %d.%m.%Y, got {time_format!r}"
            )
        return time_format


class SplitConfig(BaseModel):
    """How to split a dataset into train, validation and test."""

    model_config = OPTIONS

    kind: str = "auto"
    """ratio: random items of each user (the paper's protocol); last: each user's last items; time:
    one cut in time for all users; users: whole users; items: whole items, known by their
    attributes only; given: the dataset's own parts; auto: given
    if the dataset has parts, time if it has times, else ratio. A split from outside,
    package.module:function, gets the pairs, these options and a generator, and returns 0 (train), 1
    (validation) or 2 (test) for each pair."""
    valid: float | None = Field(None, ge=0, lt=1)
    """Validation share: of each user's items (ratio), of all interactions (time) or of all users
    (users). With last, any share above 0 means one item. With given, it applies to train if the
    dataset has no validation part. By default 0.1; with given, the share that test has."""
    valid_kind: Literal["auto", "last", "random"] = "auto"
    """With given: which items of a user are taken from train for validation. last: the latest;
    auto: last if times or an order are known, else random."""
    test: float = Field(0.1, ge=0, lt=1)
    """Test share, counted like valid; of all items with items; ignored with given."""
    history: float = Field(0.5, gt=0, lt=1)
    """With users: share of a held-out user's items that the model sees before it ranks."""
    refit: bool | None = None
    """After selection, train again on train and validation together before the test. By default
    with time, and with given if validation is taken from train."""

    @property
    def valid_share(self) -> float:
        """The share of validation, as given or by default."""
        return VALID_SHARE if self.valid is None else self.valid

    @field_validator("kind")
    @classmethod
    def _known(cls, kind: str) -> str:
        if kind not in SPLITS and not is_outside(kind):
            raise ValueError(
                f"expected {', '.join(SPLITS)} or package.module:function, got {kind!r}"
                f"{did_you_mean(kind, SPLITS)}"
            )
        return kind

    @model_validator(mode="after")
    def _leaves_something_to_train(self) -> "SplitConfig":
        if self.kind != "given" and self.valid_share + self.test >= 1:
            shares = f"{self.valid_share} + {self.test}"
            raise ValueError(f"valid + test must be below 1, got {shares}")
        if self.refit and self.kind == "users":
            raise ValueError("refit is not possible with kind=users; use another kind")
        return self
