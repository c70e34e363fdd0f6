"""Where the options of a model are looked for, declared beside its config.

A space names the numbers that tuning changes. The form of a model (its kind of attention, encoder
or views) is not among them: forms are different models, and the run says which one it is.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class _Conditional:
    """What may be tried for one option, which may have an effect only beside others."""

    when: Mapping[str, Any] = field(default_factory=dict)
    """Options beside it, with the values without which it has no effect."""


@dataclass(frozen=True)
class Float(_Conditional):
    """A number from `low` to `high`, both included; with `log`, every power of ten alike."""

    low: float
    high: float
    log: bool = False

    def __contains__(self, value: object) -> bool:
        return isinstance(value, int | float) and self.low <= value <= self.high


@dataclass(frozen=True)
class Int(_Conditional):
    """A whole number from `low` to `high`, both included; with `log`, every power of ten alike."""

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
"""Option → what may be tried for it."""


def searched(space: Space, options: Mapping[str, Any]) -> dict[str, Dimension]:
    """Return the part of a space that has an effect where the options are these."""
    return {
        name: dimension
        for name, dimension in space.items()
        if all(options[other] == value for other, value in dimension.when.items())
    }
