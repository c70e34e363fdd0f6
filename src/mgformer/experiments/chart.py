"""A bar chart as SVG, small enough to be kept beside a document."""

from collections.abc import Mapping
from html import escape

COLOR = "#4477aa"
WIDTH, LINE, TOP, LETTER = 720, 20, 40, 7.5
"""In pixels; a letter is about 7.5 wide."""


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
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y + 8}" role="img"'
        ' font-family="system-ui, sans-serif" font-size="13">'
        f'<title>{escape(title)}</title><rect width="100%" height="100%" fill="white"/>'
    )
    return "\n".join([head, *parts, "</svg>", ""])


def _text(x: float, y: float, text: str, anchor: str = "start", weight: str = "normal") -> str:
    return (
        f'<text x="{x:.1f}" y="{y}" text-anchor="{anchor}" font-weight="{weight}" fill="#222">'
        f"{escape(text)}</text>"
    )
