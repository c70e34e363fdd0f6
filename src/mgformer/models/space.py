"""The search space of tuning: which values to try for which option of a model.

An option names its values in its annotation: `l2: Annotated[float, Float(1e-6, 1e-2, log=True)]`.
Options without such an annotation are not tuned, for example those that turn a model into another
one (its attention, encoder or views): the run names them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel


@dataclass(frozen=True, kw_only=True)
class _Conditional:
    """An option that may depend on other options."""

    when: Mapping[str, Any] = field(default_factory=dict)
    """Values that other options must have; with any other value this option has no effect."""


@dataclass(frozen=True)
class Float(_Conditional):
    """A number from `low` to `high`, both included, uniform or (`log`) log-uniform."""

    low: float
    high: float
    log: bool = False

    def __contains__(self, value: object) -> bool:
        return isinstance(value, int | float) and self.low <= value <= self.high


@dataclass(frozen=True)
class Int(_Conditional):
    """A whole number from `low` to `high`, both included, uniform or (`log`) log-uniform."""

    low: int
    high: int
    log: bool = False

    def __contains__(self, value: object) -> bool:
        return isinstance(value, int) and self.low <= value <= self.high


@dataclass(frozen=True)
class Choice(_Conditional):
    """One of a few values."""

    options: tuple[Any, ...]

    def __contains__(self, value: object) -> bool:
        return value in self.options


Dimension = Float | Int | Choice
Space = Mapping[str, Dimension]
"""Maps the name of an option to the values that tuning may try."""


def space_of(config: type[BaseModel]) -> Space:
    """Return the search space that the annotations of a config declare."""
    return {
        name: dimension
        for name, option in config.model_fields.items()
        for dimension in option.metadata
        if isinstance(dimension, Dimension)
    }


def searched(space: Space, options: Mapping[str, Any]) -> dict[str, Dimension]:
    """Return the dimensions of a space that have an effect with these options."""
    return {
        name: dimension
        for name, dimension in space.items()
        if all(options[other] == value for other, value in dimension.when.items())
    }
