"""What a model can show of its insides: plain data that a report draws.

A model returns a list of these from `TrainableModel.insides`. Nodes are given by number, users
first and then items; the report replaces the numbers by names.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
Nodes = NDArray[np.int64]


class Series(NamedTuple):
    """Numbers with a name."""

    name: str
    x: Values | Nodes
    y: Values


class Plot(NamedTuple):
    """Series over common axes."""

    kind: Literal["curves", "bars", "points"]  # bars are stacked
    title: str
    caption: str
    series: Sequence[Series]
    axes: tuple[str, str]  # titles of the x axis and the y axis
    log_axes: Literal["", "x", "xy"] = ""


class NodeRanking(NamedTuple):
    """Nodes with their weights, the largest first."""

    title: str
    nodes: Nodes
    weights: Values  # shares from 0 to 1
    facts: Mapping[str, str] = {}
    owner: int | None = None
    """The node that the ranking belongs to; the report writes its name before the title."""


Inside = Plot | NodeRanking
