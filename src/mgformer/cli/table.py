"""Lay out a table: aligned for a file or a pipe, and within its width for a terminal.

Widths are those of a terminal, where a Japanese character takes two columns. A figure is never cut
off and a word is broken only if it is longer than a line: text wraps, and if that is not enough,
the last columns of figures are left out.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len

if TYPE_CHECKING:
    from rich.table import Table

GAP = "  "
"""Between two columns."""
Rows = Sequence[Sequence[str]]


def aligned(rows: Rows, num_text: int) -> str:
    """Return the lines of a table; the first `num_text` columns are text, the others figures."""
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = []
        for number, (cell, width) in enumerate(zip(row, widths, strict=True)):
            space = " " * (width - cell_len(cell))
            cells.append(cell + space if number < num_text else space + cell)
        lines.append(GAP.join(cells).rstrip())
    return "\n".join(lines)


def fitted(rows: Rows, num_text: int, width: int) -> list[int]:
    """Return the widths of the first columns, as many as fit into a width.

    At least the columns of text and one of figures stay.
    """
    natural = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    words = [
        max((cell_len(word) for cell in column for word in cell.split()), default=1)
        for column in zip(*rows, strict=True)
    ]
    least = words[:num_text] + natural[num_text:]
    shown = len(natural)
    while shown > num_text + 1 and _total(least[:shown]) > width:
        shown -= 1
    widths = natural[:shown]
    # The widest text gives way first. Words are broken only if that is the last resort.
    for floors in (least, [1] * num_text):
        while _total(widths) > width:
            able = [n for n in range(min(num_text, shown)) if widths[n] > floors[n]]
            if not able:
                break
            widths[max(able, key=widths.__getitem__)] -= 1
    return widths


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)


def wrapped(rows: Rows, num_text: int, widths: Sequence[int]) -> "Table":
    """Return the first columns as a table of these widths, whose text wraps between words."""
    from rich.table import Table

    head, *body = rows
    table = Table(box=None, pad_edge=False, show_header=any(head), header_style="bold")
    for number, (name, width) in enumerate(zip(head, widths, strict=False)):
        if number < num_text:
            table.add_column(name, width=width, overflow="fold")
        else:
            table.add_column(name, width=width, justify="right", no_wrap=True)
    for row in body:
        table.add_row(*row[: len(widths)])
    return table
