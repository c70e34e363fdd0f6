"""Rules of the business that every list follows, from a file `rules.toml`.

    [[hide]]                       # never recommend these
    where = "discontinued or price > 500"
    [[pin]]                        # first in every list, unless the user has them
    items = ["new-album"]
    [[boost]]                      # multiply the scores of these
    where = "brand = Own"
    factor = 1.2
    [[at_most]]                    # no more than two items of each brand in a list
    attribute = "brand"
    count = 2

Rules may use private attributes. A bundle keeps them in its manifest.
"""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mgformer.data.filters import Filters
from mgformer.data.formats.values import shown
from mgformer.data.ids import Ids
from mgformer.data.where import read_where
from mgformer.errors import ConfigError, did_you_mean

MOST = 100
"""Rules of a kind."""
MOST_FACTORS = 16
"""Different products of factors: items of each are ranked apart."""
_OPTIONS = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Hide(BaseModel):
    """Items that are never recommended."""

    model_config = _OPTIONS
    where: str | dict[str, Any]


class Pin(BaseModel):
    """Items that come first in every list, in this order."""

    model_config = _OPTIONS
    items: list[str | int] = Field(min_length=1, max_length=MOST)


class Boost(Hide):
    """Items whose scores are multiplied; a score below zero is divided."""

    factor: float = Field(gt=0, le=1_000)


class Cap(BaseModel):
    """The number of items of a list that may share a value of an attribute."""

    model_config = _OPTIONS
    attribute: str
    count: int = Field(ge=1)


class Rules(BaseModel):
    """All rules of a file."""

    model_config = _OPTIONS
    hide: list[Hide] = Field([], max_length=MOST)
    pin: list[Pin] = Field([], max_length=MOST)
    boost: list[Boost] = Field([], max_length=MOST)
    at_most: list[Cap] = Field([], max_length=MOST)

    def to_mapping(self) -> dict[str, Any]:
        """Return the rules as plain JSON; empty if there are none."""
        return {name: rules for name, rules in self.model_dump(mode="json").items() if rules}


NO_RULES = Rules()


class Ruled:
    """Rules, worked out for the items of a bundle.

    Shapes: I items.
    """

    def __init__(self, rules: Rules, filters: Filters, items: Ids, source: str) -> None:
        """Check the rules against the attributes; errors name the source and the rule."""
        self.hidden: NDArray[np.bool_] = np.zeros(len(items), dtype=bool)
        """[I] items that are never recommended."""
        factors = np.ones(len(items))
        for place, rule in enumerate([*rules.hide, *rules.boost]):
            kind = "hide" if place < len(rules.hide) else "boost"
            number = place + 1 if kind == "hide" else place + 1 - len(rules.hide)
            try:
                mask = filters.mask(read_where(rule.where), private=True)
            except ConfigError as error:
                raise ConfigError(f"{source}: {kind} {number}: {error}") from None
            if isinstance(rule, Boost):
                factors[mask] *= rule.factor
            else:
                self.hidden |= mask
        values, groups = np.unique(factors, return_inverse=True)
        if len(values) > MOST_FACTORS:
            raise ConfigError(
                f"{source}: boost: got {len(values)} different products of factors, expected at"
                f" most {MOST_FACTORS}; use fewer rules, or equal factors"
            )
        self.groups = [(float(value), groups == at) for at, value in enumerate(values)]
        """Factors, and [I] which items have each."""
        pinned = [item for pin in rules.pin for item in pin.items]
        numbers = items.encode(pinned) if pinned else np.zeros(0, dtype=np.int32)
        for item, number in zip(pinned, numbers, strict=True):
            if number < 0:
                close = items.closest(item)
                hint = f"; did you mean {', '.join(close)}?" if close else ""
                raise ConfigError(f"{source}: pin: unknown item {str(item)!r}{hint}")
        self.pinned = np.array(list(dict.fromkeys(numbers.tolist())), dtype=np.int64)
        """Items that come first."""
        self.at_most: dict[str, int] = {}
        """Attribute → items of a list that may share a value: the lowest count of its rules."""
        for cap in rules.at_most:
            self.at_most[cap.attribute] = min(cap.count, self.at_most.get(cap.attribute, cap.count))
        for name in self.at_most:
            check_countable(filters, name, f"{source}: at_most", private=True)
        self.is_empty = not (rules.to_mapping())


def check_countable(filters: Filters, name: str, source: str, *, private: bool) -> None:
    """Refuse an attribute whose values cannot be counted."""
    known = filters.about if private else filters.about.public
    countable = [n for n, own in known.items() if own.kind not in ("text", "embedding")]
    if name not in countable:
        listed = ", ".join(countable) or "none: there are no such attributes"
        raise ConfigError(
            f"{source}: got the attribute {name!r}, expected one of {listed}"
            f"{did_you_mean(name, countable)}"
        )


def read_rules(given: Path | str | Mapping[str, Any] | Rules, source: str = "rules") -> Rules:
    """Return the rules of a file, or of a mapping of the same form."""
    if isinstance(given, Rules):
        return given
    if isinstance(given, Path | str):
        source, given = str(given), _read(Path(given))
    try:
        return Rules.model_validate(dict(given))
    except ValidationError as error:
        raise ConfigError(f"{source}: {_first_problem(error)}") from None


def _first_problem(error: ValidationError) -> str:
    """Return where the first problem is, what it is, and what to do."""
    problems = error.errors()
    # A misspelt name is told rather than the missing name that it stands for.
    problem = next((one for one in problems if one["type"] == "extra_forbidden"), problems[0])
    place, kind = problem["loc"], problem["type"]
    where = ".".join(str(part + 1 if isinstance(part, int) else part) for part in place)
    if kind == "extra_forbidden":
        known = _names_at(place)
        hint = did_you_mean(str(place[-1]), known) or f"; known: {', '.join(known)}"
        return f"{where}: unknown option{hint}"
    if kind == "missing":
        return f"{where}: got nothing, expected a value; add it"
    remedy = f"; write [[{where}]]" if kind == "list_type" and len(place) == 1 else ""
    return f"{where}: {problem['msg']}, got {shown(problem['input'])}{remedy}"


def _names_at(place: tuple[int | str, ...]) -> list[str]:
    kinds: dict[str, type[BaseModel]] = {
        "hide": Hide, "pin": Pin, "boost": Boost, "at_most": Cap,
    }  # fmt: skip
    schema = Rules if len(place) == 1 else kinds.get(str(place[0]), Rules)
    return list(schema.model_fields)


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); check the path") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: cannot be read as TOML: {error}") from None
