"""Bars and lines as SVG, small enough to be kept beside a document."""

import math
from collections.abc import Mapping, Sequence
from html import escape

COLOR = "#4477aa"
COLORS = (COLOR, "#ee6677", "#228833", "#aa3377", "#ccbb44", "#66ccee", "#777777")
WIDTH, LINE, TOP, LETTER = 720, 20, 40, 7.5
"""In pixels; a letter is about 7.5 wide."""
HEIGHT, STEPS, SPACE = 260, 4, 15
"""Of lines: height of the plot, parts of its scale, and least distance of the names beside it."""


def bar_chart(title: str, groups: Mapping[str, Mapping[str, float]], digits: int = 4) -> str:
    """Return a horizontal bar for each label and value, below the name of its group if it has one.

    Values are not negative; `digits` of them are shown after the point.
    """
    bars = [(label, value) for group in groups.values() for label, value in group.items()]
    left = 20 + LETTER * max(len(label) for label, _ in bars)
    scale = (WIDTH - left - 80) / (max(value for _, value in bars) or 1.0)
    parts, y = [_text(12, 24, title, weight="bold")], TOP
    for name, group in groups.items():
        if name:
            y += LINE
            parts.append(_text(12, y - 6, name, weight="bold"))
        for label, value in group.items():
            end = left + value * scale
            parts += [
                _text(left - 8, y + 13, label, anchor="end"),
                f'<rect class="bar" x="{left:g}" y="{y + 2}" width="{end - left:.1f}"'
                f' height="{LINE - 5}" fill="{COLOR}"/>',
                _text(end + 6, y + 13, f"{value:.{digits}f}"),
            ]
            y += LINE
    return _picture(title, y + 8, parts)


def line_chart(title: str, places: Sequence[str], lines: Mapping[str, Sequence[float]]) -> str:
    """Return a line for each name, with a point at each place; places are equally far apart.

    Values are not negative.
    """
    highest = max(value for line in lines.values() for value in line) or 1.0
    left, right = 70, WIDTH - 20 - LETTER * max(map(len, lines))
    bottom = TOP + HEIGHT
    width = (right - left - 60) / max(len(places) - 1, 1)
    xs = [left + 30 + width * place for place in range(len(places))]
    parts = [_text(12, 24, title, weight="bold")]
    for step in range(STEPS + 1):
        y = bottom - HEIGHT * step / STEPS
        parts += [
            f'<path d="M{left} {y:.1f}H{right:.1f}" stroke="#ddd"/>',
            _text(left - 8, y + 4, f"{highest * step / STEPS:.4f}", anchor="end"),
        ]
    every = math.ceil(LETTER * (max(map(len, places)) + 1) / width)  # so that labels fit
    labels = [*zip(xs, places, strict=True)][::every]
    parts += [_text(x, bottom + 20, label, "middle") for x, label in labels]
    ends = {name: bottom - HEIGHT * line[-1] / highest for name, line in lines.items()}
    beside = _apart(ends, bottom)
    for number, (name, line) in enumerate(lines.items()):
        color = COLORS[number % len(COLORS)]
        dashed = ' stroke-dasharray="5 3"' if number >= len(COLORS) else ""
        points = [(x, bottom - HEIGHT * value / highest) for x, value in zip(xs, line, strict=True)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(
            f'<polyline class="line" points="{path}" fill="none" stroke="{color}"'
            f' stroke-width="2"{dashed}/>'
        )
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{color}"/>' for x, y in points]
        parts.append(_text(right + 6, beside[name] + 4, name, color=color))
    return _picture(title, bottom + 36, parts)


def _apart(ends: Mapping[str, float], bottom: float) -> dict[str, float]:
    """Return heights near those of the ends of lines at which their names do not overlap."""
    found: dict[str, float] = {}
    above = bottom + SPACE
    for name in sorted(ends, key=ends.__getitem__, reverse=True):
        found[name] = above = min(ends[name], above - SPACE)
    return found


def _picture(title: str, height: float, parts: Sequence[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img"'
        ' font-family="system-ui, sans-serif" font-size="13">'
        f'<title>{escape(title)}</title><rect width="100%" height="100%" fill="white"/>'
    )
    return "\n".join([head, *parts, "</svg>", ""])


def _text(
    x: float,
    y: float,
    text: str,
    anchor: str = "start",
    weight: str = "normal",
    color: str = "#222",
) -> str:
    height = y if isinstance(y, int) else f"{y:.1f}"
    return (
        f'<text x="{x:.1f}" y="{height}" text-anchor="{anchor}" font-weight="{weight}"'
        f' fill="{color}">{escape(text)}</text>'
    )
