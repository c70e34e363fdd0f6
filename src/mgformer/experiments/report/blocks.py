"""What a report is made of: sections of blocks, each of which the template knows how to draw."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import plotly.graph_objects as go

NONE = "–"


@dataclass(frozen=True)
class Cell:
    """A place of a table."""

    text: str
    below: str = ""
    """What is written below it, smaller."""
    strong: bool = False


@dataclass(frozen=True)
class Card:
    """A figure that stands for the whole."""

    label: str
    value: str
    beside: Mapping[str, str]
    """What to see it beside: name → value."""


@dataclass(frozen=True)
class Entry:
    """A place of a ranked list."""

    label: str
    detail: str = ""
    share: float = 0.0
    """Length of its bar, from 0 to 1."""
    marked: str = ""
    """Why it is marked; empty: it is not."""


@dataclass(frozen=True)
class Cards:
    """Figures that stand for the whole, side by side."""

    kind: ClassVar[str] = "cards"
    cards: Sequence[Card]


@dataclass(frozen=True)
class Facts:
    """Names and what they stand for."""

    kind: ClassVar[str] = "facts"
    facts: Mapping[str, str]


@dataclass(frozen=True)
class Table:
    """Rows of cells; the first columns are text, the others figures."""

    kind: ClassVar[str] = "table"
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    note: str = ""
    num_text: int = 1
    wide: bool = False
    """Whether it takes the width of the page rather than half of it."""


@dataclass(frozen=True)
class Chart:
    """A figure, with its title and what to see in it."""

    kind: ClassVar[str] = "chart"
    title: str
    figure: go.Figure
    caption: str = ""
    wide: bool = False
    """Whether it takes the width of the page rather than half of it."""


@dataclass(frozen=True)
class Ranking:
    """A ranked list with what it is a list for."""

    kind: ClassVar[str] = "ranking"
    title: str
    entries: Sequence[Entry]
    facts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Listing:
    """Text to be shown as it is."""

    kind: ClassVar[str] = "listing"
    text: str


Block = Cards | Facts | Table | Chart | Ranking | Listing


@dataclass(frozen=True)
class Section:
    """A part of the report under a heading."""

    title: str
    blocks: Sequence[Block]
    lead: str = ""
    """What it shows, and of whom or of how many."""
    listed: bool = True
    """Whether the head of the page leads to it."""

    @property
    def anchor(self) -> str:
        """The title as an address within the page."""
        return "-".join(re.findall(r"\w+", self.title.lower()))


@dataclass(frozen=True)
class Page:
    """A whole report."""

    title: str
    lead: str
    sections: Sequence[Section]
    warnings: Sequence[str] = ()


def figure(value: float | None) -> str:
    """Return a metric as it is written everywhere."""
    return NONE if value is None else f"{value:.4f}"


def percent(share: float) -> str:
    """Return a share of one as per cent."""
    return f"{share:.1%}"


def shortened(text: str, most: int = 80) -> str:
    """Return text from the data in one line of bounded length."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"
