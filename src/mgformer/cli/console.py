"""What the terminal shows: progress, tables, JSON, errors.

Results go to stdout; progress, log lines and errors to stderr, so that `--json` prints one object
and nothing else there.
"""

import json
import logging
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NoReturn

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from mgformer.progress import Advance, reporting

WIDEST = 1000
INTERRUPTED = 130
"""The exit code of a program that was interrupted, by the shell's convention."""
out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)


class _Count(MofNCompleteColumn):
    """Steps done of all; nothing where their number is not known."""

    def render(self, task: Task) -> Text:
        return Text() if task.total is None else super().render(task)


@contextmanager
def working() -> Iterator[None]:
    """Show progress and log lines of what runs inside."""
    log = logging.getLogger("mgformer")
    handler = _LogLines()
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        if err.is_terminal:
            with (
                Progress(
                    SpinnerColumn(),
                    TextColumn("{task.description}"),
                    BarColumn(),
                    _Count(),
                    TimeElapsedColumn(),
                    TimeRemainingColumn(),
                    console=err,
                    transient=True,
                ) as bars,
                reporting(lambda name, total: _bar(bars, name, total)),
            ):
                yield
        else:
            with reporting(_plain_line):
                yield
    finally:
        log.removeHandler(handler)


@contextmanager
def _bar(bars: Progress, name: str, total: float | None) -> Iterator[Advance]:
    task = bars.add_task(name, total=total)
    start = time.perf_counter()
    try:
        yield lambda amount: bars.advance(task, amount)
    finally:
        bars.remove_task(task)
        _say_duration(name, time.perf_counter() - start)


def _plain_line(name: str, total: float | None) -> AbstractContextManager[Advance]:
    @contextmanager
    def run() -> Iterator[Advance]:
        start = time.perf_counter()
        yield lambda amount: None
        _say_duration(name, time.perf_counter() - start)

    return run()


def _say_duration(name: str, seconds: float) -> None:
    if seconds >= 2:
        err.print(f"{name}: {seconds:.1f} s", style="dim", markup=False)


class _LogLines(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        prefix = "" if record.levelno <= logging.INFO else f"{record.levelname.lower()}: "
        err.print(f"{prefix}{record.getMessage()}", style="dim", markup=False)


def print_json(value: Mapping[str, Any] | Sequence[Any]) -> None:
    """Print one JSON value on stdout."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")


def print_json_list(
    head: Mapping[str, Any], name: str, entries: Iterable[Mapping[str, Any]]
) -> None:
    """Print one JSON object that ends in a list, entry by entry: they need not fit into memory."""
    opening = json.dumps({**head, name: []}, ensure_ascii=False)
    sys.stdout.write(opening.removesuffix("]}"))
    for number, entry in enumerate(entries):
        sys.stdout.write((", " if number else "") + json.dumps(entry, ensure_ascii=False))
    sys.stdout.write("]}\n")


def warn(message: str) -> None:
    """Print one line about what was passed over."""
    err.print(f"warning: {message}", markup=False)


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], title: str = "", num_text: int = 1
) -> None:
    """Print a table whose first `num_text` columns are text and whose others are figures."""
    table = Table(
        title=title or None, title_justify="left", title_style="bold", box=None, pad_edge=False,
        show_header=any(columns),
    )  # fmt: skip
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number < num_text else "right")
    for row in rows:
        table.add_row(*(escape(cell) for cell in row))
    if not out.is_terminal:  # a file or a pipe has no width to keep to
        table.width = out.measure(table, options=out.options.update(max_width=WIDEST)).maximum
    out.print(table)


def fail(message: str, code: int = 2) -> NoReturn:
    """Print one line and exit."""
    err.print(f"error: {' '.join(message.split())}", style="red", markup=False)
    sys.exit(code)
