r"""What the terminal shows: progress, tables, JSON, errors.

Results go to stdout. Progress, log lines and errors go to stderr, so that `--json` prints one value
on stdout and nothing else.

Ids and names come from data that others may have written. They are printed as they are, except for
control characters, which a terminal would obey: those are shown as escapes such as \x1b.
"""

import json
import logging
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from rich.console import Console

from mgformer.bars import drawing, drawn_on
from mgformer.cli.table import aligned, fitted, wrapped
from mgformer.progress import reporting

INTERRUPTED = 130
"""The exit code of an interrupted program, by the shell's convention."""
# Controls but tab and line feed, other line ends, marks that reverse text, halves of characters.
_UNSAFE = re.compile("[\0-\b\v-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """Return text with escapes in place of characters that a terminal obeys."""
    return _UNSAFE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


class _SafeConsole(Console):
    """Prints text as it is: no markup, no emoji names, no control characters."""

    def __init__(self, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, highlight=False, markup=False, emoji=False)

    def print(self, *objects: Any, **options: Any) -> None:
        # A terminal would break lines within words; a file or a pipe has no width to keep to.
        options.setdefault("soft_wrap", not self.is_terminal)
        safe = (printable(o) if isinstance(o, str) else o for o in objects)
        with drawing:
            super().print(*safe, **options)


out = _SafeConsole()
err = _SafeConsole(stderr=True)


@contextmanager
def working(how_to_continue: Callable[[], str] | None = None) -> Iterator[None]:
    """Show the progress and the log lines of the block; bars only in a terminal.

    If `how_to_continue` is given, an interruption ends the program with this advice.
    """
    log = logging.getLogger("mgformer")
    handler = _LogLines()
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        with drawn_on(err) as reporter, reporting(reporter):
            yield
    except KeyboardInterrupt:
        if how_to_continue is None:
            raise
        fail("; ".join(filter(None, ["interrupted", how_to_continue()])), INTERRUPTED)
    finally:
        log.removeHandler(handler)


class _LogLines(logging.Handler):
    """Prints log lines. What is said of a split is said once, however many models get it."""

    def __init__(self) -> None:
        super().__init__()
        self.said: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        if record.name == "mgformer.splits":
            if record.getMessage() in self.said:
                return
            self.said.add(record.getMessage())
        prefix = "" if record.levelno <= logging.INFO else f"{record.levelname.lower()}: "
        err.print(f"{prefix}{record.getMessage()}", style="dim")


def print_json(value: Mapping[str, Any] | Sequence[Any]) -> None:
    """Print one JSON value on stdout."""
    sys.stdout.write(json_text(value) + "\n")


def json_text(value: Any) -> str:
    """Return JSON that is safe to print: unsafe characters are escaped as JSON does."""
    text = json.dumps(value, ensure_ascii=False)
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], title: str = "", num_text: int = 1
) -> None:
    """Print a table; the first `num_text` columns are text, the others are figures.

    In a terminal that is too narrow, the last columns of figures are left out and named below.
    """
    lines = [[_cell(cell) for cell in row] for row in (columns, *rows)]
    if title:
        out.print(_cell(title), style="bold")
    if not out.is_terminal:  # a file or a pipe has no width to keep to
        out.print(aligned(lines if any(columns) else lines[1:], num_text))
        return
    widths = fitted(lines, num_text, out.width)
    out.print(wrapped(lines, num_text, widths))
    if left_out := columns[len(widths) :]:
        out.print(f"not shown: {', '.join(left_out)}; use a wider terminal", style="dim")


def _cell(text: str) -> str:
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")


def fail(message: str, code: int = 2) -> NoReturn:
    """Print one line and exit."""
    err.quiet = err.quiet and code == 2  # what fails in one of several processes is told by it
    err.print(f"error: {' '.join(message.split())}", style="red")
    sys.exit(code)
