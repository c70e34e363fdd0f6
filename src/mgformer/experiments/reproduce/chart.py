"""A bar chart as SVG: small enough to be kept beside a document, and drawn by every browser."""

from collections.abc import Mapping, Sequence
from html import escape

COLORS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb")
"""Paul Tol's bright scheme, which colour-blind readers can tell apart."""
WIDTH, LABELS, BAR, GAP, TOP = 720, 190, 16, 14, 64


def bar_chart(title: str, groups: Sequence[str], series: Mapping[str, Sequence[float]]) -> str:
    """Return horizontal bars, one of each series in every group.

    Args:
        title: What the bars measure.
        groups: Names of the groups.
        series: Name → a value, not negative, for each group.
    """
    largest = max((value for values in series.values() for value in values), default=0.0) or 1.0
    scale = (WIDTH - LABELS - 80) / largest
    step = len(series) * BAR + GAP
    height = TOP + step * len(groups) + 8
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img"'
        ' font-family="system-ui, sans-serif" font-size="13">',
        f'<title>{escape(title)}</title><rect width="100%" height="100%" fill="white"/>',
        _text(12, 22, title, weight="bold"),
    ]
    place = 12.0
    for number, name in enumerate(series):
        color = COLORS[number % len(COLORS)]
        parts.append(f'<rect x="{place:g}" y="34" width="12" height="12" fill="{color}"/>')
        parts.append(_text(place + 17, 45, name))
        place += 34 + 7.5 * len(name)
    for row, group in enumerate(groups):
        top = TOP + row * step
        middle = top + len(series) * BAR / 2 + 4
        parts.append(_text(LABELS - 8, middle, group, anchor="end"))
        for number, values in enumerate(series.values()):
            length, y = values[row] * scale, top + number * BAR
            color = COLORS[number % len(COLORS)]
            parts.append(
                f'<rect x="{LABELS}" y="{y}" width="{length:.1f}" height="{BAR - 3}"'
                f' fill="{color}"/>'
            )
            parts.append(_text(LABELS + length + 6, y + 11, f"{values[row]:.4f}", size=11))
    return "\n".join([*parts, "</svg>", ""])


def _text(
    x: float, y: float, text: str, anchor: str = "start", weight: str = "normal", size: int = 13
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}"'
        f' font-size="{size}" fill="#222">{escape(text)}</text>'
    )
