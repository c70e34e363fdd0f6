"""A bar chart as SVG: small enough to be kept beside a document, and drawn by every browser."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape

COLORS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb")
"""Paul Tol's bright scheme, which colour-blind readers can tell apart."""
WIDTH, BAR, GAP, TOP, LETTER = 720, 16, 14, 64, 7.5
"""In pixels; a letter is about that wide."""


def bar_chart(
    title: str, groups: Sequence[str], series: Mapping[str, Sequence[float]], digits: int = 4
) -> str:
    """Return horizontal bars, one of each series in every group.

    Args:
        title: What the bars measure.
        groups: Names of the groups.
        series: Name → a value, not negative, for each group.
        digits: Of the values, after the point.
    """
    largest = max((value for values in series.values() for value in values), default=0.0) or 1.0
    labels = 20 + LETTER * max(map(len, groups), default=0)
    scale = (WIDTH - labels - 80) / largest
    step = len(series) * BAR + GAP
    keys, rows = _legend(series)
    top = TOP + (rows - 1) * BAR
    height = top + step * len(groups) + 8
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img"'
        ' font-family="system-ui, sans-serif" font-size="13">',
        f'<title>{escape(title)}</title><rect width="100%" height="100%" fill="white"/>',
        _text(12, 22, title, weight="bold"),
        *keys,
    ]
    for row, group in enumerate(groups):
        first = top + row * step
        parts.append(_text(labels - 8, first + len(series) * BAR / 2 + 4, group, anchor="end"))
        for number, values in enumerate(series.values()):
            length, y = values[row] * scale, first + number * BAR
            parts.append(
                f'<rect x="{labels:g}" y="{y}" width="{length:.1f}" height="{BAR - 3}"'
                f' fill="{COLORS[number % len(COLORS)]}"/>'
            )
            parts.append(_text(labels + length + 6, y + 11, f"{values[row]:.{digits}f}", size=11))
    return "\n".join([*parts, "</svg>", ""])


def _legend(names: Iterable[str]) -> tuple[list[str], int]:
    """Return the colours with their names, and how many rows they take."""
    parts, x, row = [], 12.0, 0
    for number, name in enumerate(names):
        width = 34 + LETTER * len(name)
        if number and x + width > WIDTH:
            x, row = 12.0, row + 1
        y = 34 + row * BAR
        color = COLORS[number % len(COLORS)]
        parts.append(f'<rect x="{x:g}" y="{y}" width="12" height="12" fill="{color}"/>')
        parts.append(_text(x + 17, y + 11, name))
        x += width
    return parts, row + 1


def _text(
    x: float, y: float, text: str, anchor: str = "start", weight: str = "normal", size: int = 13
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}"'
        f' font-size="{size}" fill="#222">{escape(text)}</text>'
    )
