"""Charts in one style: plain plotly figures with a shared template.

The colors are the palette of Okabe and Ito, which color-blind readers can tell apart. Lines differ
in dashes and markers too. The script of the page adds the colors of a light or dark screen. Text
from the data must pass through `plain`, because plotly interprets some HTML.
"""

import html
from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go
from numpy.typing import NDArray

BLUE, VERMILION, GREEN, PINK, AMBER, SKY = COLORS = (
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9",
)  # fmt: skip
GREY = "#8a9490"
FIXED_COLORS = {
    **{"test": BLUE, "validation": GREEN, "popularity": GREY, "best possible": GREY},
    **{"items": GREY, "training pairs": VERMILION, "all items equally": GREY},
    **{"recommendations": BLUE, "unpopular": SKY, "normal": AMBER, "popular": BLUE},
}
"""What is shown in several charts has the same color in all of them."""
DASHES = ("solid", "dash", "dot", "dashdot")
SYMBOLS = ("circle", "diamond", "square", "triangle-up", "x", "cross")
HEIGHT = 300
ROW_HEIGHT = 30
AROUND_ROWS = 140
"""Room for the axis and the legend, which takes several lines on a narrow screen."""

_AXIS = {
    "automargin": True,
    "exponentformat": "none",
    "fixedrange": True,
    "title": {"standoff": 10},
    "zeroline": False,
}
STYLE = go.layout.Template(
    layout={
        "colorway": COLORS,
        "margin": {"l": 8, "r": 12, "t": 28, "b": 8},
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "traceorder": "normal"},
        "hovermode": "x unified",
        "dragmode": False,
        "bargap": 0.3,
        "xaxis": _AXIS,
        "yaxis": _AXIS,
        # The color scale lies above the chart, where a narrow screen has room for it.
        "coloraxis": {
            "colorscale": "Cividis",
            "colorbar": {
                **{"orientation": "h", "x": 0, "xanchor": "left", "y": 1, "yanchor": "bottom"},
                **{"len": 0.6, "thickness": 8, "ypad": 0, "outlinewidth": 0},
            },
        },
    },
    data={
        # The n-th line of a chart takes the n-th of these, and the n-th color.
        "scatter": [
            go.Scatter(line={"dash": dash}, marker={"symbol": symbol}, hovertemplate="%{y:.4g}")
            for dash, symbol in zip(DASHES * 3, SYMBOLS * 2, strict=True)
        ],
        "bar": [go.Bar(hovertemplate="%{y:.4g}")],
    },
)


def draw(
    traces: Sequence[Any], x: str = "", y: str = "", height: int = HEIGHT, **layout: Any
) -> go.Figure:
    """Return a figure of plotly traces; `x` and `y` are the titles of the axes."""
    figure = go.Figure(traces)
    figure.update_layout(template=STYLE, height=height, showlegend=len(traces) > 1, **layout)
    figure.update_xaxes(title_text=x)
    figure.update_yaxes(title_text=y)
    return figure


def draw_columns(trace: type, x_title: str, x: Any, columns: Mapping[str, Any]) -> go.Figure:
    """Return a line (`go.Scatter`) or bars (`go.Bar`) for each named column over a common x."""
    marker = "line_color" if trace is go.Scatter else "marker_color"
    traces = [
        trace(x=x, y=y, name=name, **{marker: FIXED_COLORS.get(name)})
        for name, y in columns.items()
    ]
    return draw(traces, x_title)


def draw_rows(traces: Sequence[Any], names: Sequence[str], **layout: Any) -> go.Figure:
    """Return a figure with one horizontal row per name; the `y` of the traces is the row."""
    around = AROUND_ROWS if len(traces) > 1 else AROUND_ROWS // 2
    figure = draw(traces, height=around + ROW_HEIGHT * len(names), **layout)
    texts = [plain(ending(name)) for name in names]
    rows = {"tickvals": list(range(len(names))), "ticktext": texts, "showgrid": False}
    figure.update_yaxes(range=[len(names) - 0.4, -0.6], **rows)
    return figure.update_traces(hovertemplate="%{x:.4f}")


def log_axis(values: NDArray[Any]) -> dict[str, Any]:
    """Return a logarithmic axis for values, with ticks at 1, 3, 10, 30 and so on."""
    low, high = min(values), max(values)
    ticks = [n * 10.0**power for power in range(-9, 10) for n in (1, 3)]
    ticks = [tick for tick in ticks if low <= tick <= high]
    if len(ticks) < 2:  # plotly divides a short range better
        return {"type": "log"}
    return {"type": "log", "tickvals": ticks, "tickformat": ",~g"}


def axis_of(values: Sequence[float]) -> tuple[list[float], set[float]]:
    """Return an axis that shows differences, and the values that it leaves out as too low.

    The axis does not begin at zero. A value below half of the largest would squeeze all others.
    """
    high = max(values)
    shown = [value for value in values if 2 * value >= high]
    room = 0.08 * (high - min(shown)) or 0.05 * high or 1.0
    return [min(shown) - room, high + room], {*values} - {*shown}


def mark_epoch(figure: go.Figure, epoch: int, last: int, *, above: bool) -> go.Figure:
    """Mark the epoch that was kept, with its text `above` the plot or at the top of it."""
    return figure.add_vline(
        x=epoch,
        line={"dash": "dot", "width": 1.5, "color": GREY},
        annotation={
            "text": f"epoch {epoch} kept",
            "showarrow": False,
            "yshift": 20 if above else 0,
        },
        annotation_position=f"top {'right' if 2 * epoch <= last else 'left'}",
    )


def shortened(text: str, most: int = 80) -> str:
    """Return text from the data in one line of bounded length."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def ending(path: str, most: int = 18) -> str:
    """Return the end of a long path, which distinguishes it from others."""
    return path if len(path) <= most else f"…{path[1 - most :]}"


def plain(text: str) -> str:
    """Return text from the data such that plotly shows every character of it."""
    return html.escape(shortened(text, 60), quote=False)
