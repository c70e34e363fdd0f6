"""Figures of a report, in one style.

Colours are those of Okabe and Ito, which people who do not tell red from green tell apart; series
differ in dashes or markers too. What depends on a light or dark page (ink, grid) is left to the
script of the page. Text from the data passes `plain`, as plotly reads a little HTML.
"""

import html
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from mgformer.experiments.report.blocks import shortened

BLUE, VERMILION, GREEN, PINK, AMBER, SKY = (
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9",
)  # fmt: skip
GREY = "#8a9490"
COLORS = (BLUE, VERMILION, GREEN, PINK, AMBER, SKY)
DASHES = ("solid", "dash", "dot", "dashdot")
SYMBOLS = ("circle", "diamond", "square", "triangle-up", "x", "cross")
GROUP_COLORS = (SKY, AMBER, BLUE)
"""Of unpopular, normal and popular items."""
HEIGHT = 300
BAR_HEIGHT = 30
AROUND_BARS = 140
"""Room for a legend, which a narrow page breaks into several lines, and the axis."""
_STEPS = [n * 10**power for power in range(9) for n in (1, 2, 5)]


_SCALE = {
    "orientation": "h",
    "x": 0,
    "xanchor": "left",
    "y": 1,
    "yanchor": "bottom",
    "len": 0.6,
    "thickness": 8,
    "ypad": 0,
    "outlinewidth": 0,
}
"""A scale of colours above the figure, where a narrow page has room for it."""


class Series(NamedTuple):
    """A line or a row of bars."""

    name: str
    x: Sequence[Any] | NDArray[Any]
    y: Sequence[float | None] | NDArray[np.float64]
    color: str = BLUE
    dash: str = "solid"
    """Of its line; empty: points alone."""
    symbol: str = "circle"
    """Of its points; empty: a line alone."""
    labelled: bool = True
    """Whether the legend names it."""


class Axis(NamedTuple):
    """What an axis says, and how."""

    title: str
    options: Mapping[str, Any] = {}


def log_axis(
    title: str,
    values: Sequence[float] | NDArray[Any],
    written: Callable[[float], str] = "{:,.3g}".format,
) -> Axis:
    """Return a logarithmic axis with its numbers written out at 1, 3, 10 and so on."""
    ticks = round_numbers(float(min(values)), float(max(values)))
    if len(ticks) < 2:  # plotly divides a short stretch more finely
        return Axis(title, {"type": "log"})
    texts = [written(tick) for tick in ticks]
    return Axis(title, {"type": "log", "tickvals": ticks, "ticktext": texts})


def epoch_axis(last: int) -> Axis:
    """Return the axis of epochs up to the last."""
    step = next(s for s in _STEPS if last <= 8 * s)
    return Axis("epoch", {"tick0": 0, "dtick": step, "range": [0, last + max(0.25, 0.03 * last)]})


def round_numbers(low: float, high: float) -> list[float]:
    """Return the numbers 1, 3, 10, 30, … and 0.3, 0.1, … between two."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    between = [float(f"{n}e{power}") for power in powers for n in (1, 3)]
    return [tick for tick in between if low <= tick <= high]


def plain(text: str, most: int = 60) -> str:
    """Return text from the data such that plotly shows it letter by letter."""
    return html.escape(shortened(text, most), quote=False)


def ending(path: str, most: int = 18) -> str:
    """Return the end of a path, which tells it from others, where it is long."""
    return path if len(path) <= most else f"…{path[1 - most :]}"


def lines(
    series: Sequence[Series],
    x: Axis,
    y: Axis,
    *,
    marked: Mapping[float, str] | None = None,
    free: str = "bottom",
    height: int = HEIGHT,
) -> go.Figure:
    """Return lines over numbers.

    Args:
        series: The lines.
        x: The axis below.
        y: The axis to the left.
        marked: Places on the x axis, with what they are.
        free: Where there is room to write that: "top" or "bottom".
        height: In pixels.
    """
    traces = [
        go.Scatter(
            x=_rounded(one.x),
            y=_rounded(one.y),
            name=plain(one.name),
            legendgroup=plain(one.name),
            showlegend=one.labelled,
            mode=_mode(one),
            line={"color": one.color, "dash": one.dash or "solid", "width": 2},
            opacity=1 if one.dash else 0.4,
            marker={"size": 6, "symbol": one.symbol or "circle"},
            hovertemplate="%{y:.4g}",
        )
        for one in series
    ]
    figure = _styled(traces, x, y, height, hovermode="x unified")
    far = max((max(one.x) for one in series if len(one.x)), default=0)
    for place, label in (marked or {}).items():
        # The label stands inside, on the side that has more room.
        side = "right" if 2 * place <= far else "left"
        figure.add_vline(
            x=place,
            line={"dash": "dot", "width": 1.5, "color": GREY},
            annotation={"text": plain(label), "showarrow": False},
            annotation_position=f"{free} {side}",
        )
    return figure


def _mode(one: Series) -> str:
    if not one.dash:
        return "markers"
    # Many marks hide their line; a single point is nothing without.
    bare = len(one.x) > 60 or (not one.symbol and len(one.x) > 1)
    return "lines" if bare else "lines+markers"


def bars(series: Sequence[Series], x: Axis, y: Axis, *, stacked: bool = False) -> go.Figure:
    """Return upright bars, side by side or upon each other."""
    traces = [
        go.Bar(
            x=list(one.x),
            y=_rounded(one.y),
            name=plain(one.name),
            marker={"color": one.color},
            hovertemplate="%{y:.4g}",
        )
        for one in series
    ]
    mode = "stack" if stacked else "group"
    return _styled(traces, x, y, HEIGHT, barmode=mode, hovermode="x unified")


def lying_bars(names: Sequence[str], series: Sequence[Series], x: Axis) -> go.Figure:
    """Return stacked bars that lie, one for each name, the first at the top; `x` are lengths."""
    traces = [
        go.Bar(
            x=_rounded(one.x),
            y=list(range(len(names))),
            name=plain(one.name),
            orientation="h",
            marker={"color": one.color},
            hovertemplate="%{x:.4f}",
        )
        for one in series
    ]
    height = AROUND_BARS + BAR_HEIGHT * len(names)
    return _styled(traces, x, _named_rows(names), height, barmode="stack", hovermode="y unified")


def dots(names: Sequence[str], series: Sequence[Series], x: Axis) -> go.Figure:
    """Return dots in a row for each name, the first at the top; `y` is the row, `x` the value."""
    traces = [
        go.Scatter(
            x=_rounded(one.x),
            y=list(one.y),
            name=plain(one.name),
            mode="markers",
            marker={"color": one.color, "symbol": one.symbol, "size": 9, "opacity": 0.85},
            hovertemplate="%{x:.4f}",
        )
        for one in series
    ]
    height = AROUND_BARS + BAR_HEIGHT * len(names)
    return _styled(traces, x, _named_rows(names), height, hovermode="closest")


def points(
    x: Sequence[float],
    y: Sequence[float],
    values: Sequence[float],
    labels: Sequence[str],
    axes: tuple[Axis, Axis],
    *,
    bar: Mapping[str, Any],
    height: int = HEIGHT,
    size: int = 6,
) -> go.Figure:
    """Return points coloured by values, for which `bar` is the scale; labels show on hovering."""
    marker = {
        "color": _rounded(values),
        "colorscale": "Cividis",
        "size": size,
        "opacity": 0.85,
        "line": {"width": 0.5, "color": "rgba(128, 128, 128, 0.6)"},
        "colorbar": {**_SCALE, **bar},
    }
    trace = go.Scatter(
        x=_rounded(x),
        y=_rounded(y),
        text=[plain(label) for label in labels],
        mode="markers",
        marker=marker,
        hovertemplate="%{text}<extra></extra>",
        showlegend=False,
    )
    return _styled([trace], *axes, height, hovermode="closest")


def _named_rows(names: Sequence[str]) -> Axis:
    texts = [plain(ending(name)) for name in names]
    ticks = {"tickvals": list(range(len(names))), "ticktext": texts}
    return Axis("", {**ticks, "range": [len(names) - 0.4, -0.6], "showgrid": False})


def _styled(traces: Iterable[Any], x: Axis, y: Axis, height: int, **options: Any) -> go.Figure:
    axes = {
        f"{name}axis": {
            "title": {"text": axis.title} if axis.title else None,
            "automargin": True,
            "zeroline": False,
            "fixedrange": True,
            **axis.options,
        }
        for name, axis in (("x", x), ("y", y))
    }
    layout = {
        "template": None,
        "height": height,
        "margin": {"l": 8, "r": 12, "t": 28, "b": 8},
        "legend": {
            "orientation": "h",
            "x": 0,
            "y": 1.02,
            "xanchor": "left",
            "yanchor": "bottom",
            "traceorder": "normal",
        },
        "showlegend": len(shown := list(traces)) > 1,
        "dragmode": False,
        "bargap": 0.3,
        **axes,
        **options,
    }
    return go.Figure(shown, layout)


def _rounded(values: Iterable[float | None]) -> list[float | None]:
    """Return values with the digits that can be seen: five, not seventeen."""
    return [None if v is None else float(f"{v:.5g}") for v in values]
