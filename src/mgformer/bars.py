"""Draw the phases of long work: as bars in a terminal, as one line that changes in a notebook."""

import html
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib import import_module
from typing import TYPE_CHECKING, Any

from mgformer.progress import Advance, Reporter, reporting

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

SHORTEST_SHOWN = 2.0
"""Seconds that a phase must take to get a line when it ends."""
REDRAW_SECONDS = 0.2
"""Pause between two changes of the line in a notebook."""

FRAME_SECONDS = 0.1
"""Pause between two drawings of the bars."""
drawing = threading.RLock()
"""Held by whoever writes to the terminal. The number of bars changes, and a line that is printed in
the middle of a drawing would wipe out others."""


def showing(shown: bool | None) -> AbstractContextManager[None]:
    """Draw the phases of the block if `shown`; if it is None, in a notebook only."""
    if in_notebook() and shown is not False:
        return _in_notebook()
    return _on_stderr() if shown else nullcontext()


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    # If nothing has imported IPython yet, this is no notebook.
    interactive: Any = sys.modules.get("IPython")
    return interactive is not None and hasattr(interactive.get_ipython(), "kernel")


@contextmanager
def drawn_on(console: "Console") -> Iterator[Reporter]:
    """Yield a reporter that draws bars in a terminal, and prints how long each long phase took."""
    with _moving(_bars(console)) if console.is_terminal else nullcontext() as bars:
        yield lambda name, total: _phase(console, bars, name, total)


@contextmanager
def _on_stderr() -> Iterator[None]:
    from rich.console import Console

    console = Console(stderr=True, highlight=False, markup=False)
    with drawn_on(console) as reporter, reporting(reporter):
        yield


def _bars(console: "Console") -> "Progress":
    from rich import progress

    class Count(progress.MofNCompleteColumn):
        """Steps done and all steps; empty if the number of steps is not known."""

        def render(self, task: progress.Task) -> Any:
            return "" if task.total is None else super().render(task)

    return progress.Progress(
        progress.SpinnerColumn(),
        progress.TextColumn("{task.description}", markup=False),
        progress.BarColumn(),
        Count(),
        progress.TimeElapsedColumn(),
        progress.TimeRemainingColumn(),
        console=console,
        transient=True,
        auto_refresh=False,  # its thread does not hold the lock
    )


@contextmanager
def _moving(bars: "Progress") -> Iterator["Progress"]:
    """Draw the bars again and again while the block runs."""
    ended = threading.Event()

    def redraw() -> None:
        while not ended.wait(FRAME_SECONDS):
            with drawing:
                bars.refresh()

    thread = threading.Thread(target=redraw, daemon=True)
    with bars:
        thread.start()
        try:
            yield bars
        finally:
            ended.set()
            thread.join()


@contextmanager
def _phase(
    console: "Console", bars: "Progress | None", name: str, total: float | None
) -> Iterator[Advance]:
    """Draw a bar while a phase runs, and print how long it took if that was long."""
    start = time.perf_counter()
    if bars is None:
        yield lambda amount: None
    else:
        with drawing:
            task = bars.add_task(name, total=total)
        try:
            yield lambda amount: bars.advance(task, amount)
        finally:
            with drawing:
                bars.remove_task(task)
    seconds = time.perf_counter() - start
    if seconds >= SHORTEST_SHOWN:
        with drawing:
            console.print(f"{name}: {seconds:.1f} s", style="dim")


@contextmanager
def _in_notebook() -> Iterator[None]:
    line = _NotebookLine()
    with reporting(line.phase):
        yield
    line.end()


class _NotebookLine:
    """One output of a notebook cell. It shows the phase that runs, and the long ones before it."""

    def __init__(self) -> None:
        self._display: Any = None
        self._drawn = self._begun = time.perf_counter()
        self._past: list[str] = []

    @contextmanager
    def phase(self, name: str, total: float | None) -> Iterator[Advance]:
        start, done = time.perf_counter(), 0.0

        def advance(amount: float) -> None:
            nonlocal done
            done += amount
            now = time.perf_counter()
            if now - self._drawn >= REDRAW_SECONDS:
                self._drawn = now
                self._draw(name, total, done, now - start)

        self._draw(name, total, done, 0.0)
        yield advance
        seconds = time.perf_counter() - start
        if seconds >= SHORTEST_SHOWN:
            self._past.append(f"{name}: {seconds:.1f} s")

    def end(self) -> None:
        """Leave how long everything took."""
        whole = f"done in {time.perf_counter() - self._begun:.1f} s"
        self._write(html.escape(" · ".join([*self._past, whole])))

    def _draw(self, name: str, total: float | None, done: float, seconds: float) -> None:
        bar = f'<progress value="{done:g}" max="{total:g}"></progress> ' if total else ""
        count = f"{done:,.0f} of {total:,.0f}, " if total else ""
        self._write(f"{bar}{html.escape(name)}: {count}{seconds:.0f} s")

    def _write(self, markup: str) -> None:
        notebook: Any = import_module("IPython.display")  # without types
        if self._display is None:
            self._display = notebook.display(notebook.HTML(markup), display_id=True)
        else:
            self._display.update(notebook.HTML(markup))
