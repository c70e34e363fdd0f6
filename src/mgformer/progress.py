"""Progress of long work.

The library announces what it does: `with phase("reading", total) as advance`. A reporter, such as
the command line's, draws bars from that. Without a reporter nothing is shown.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar

Advance = Callable[[float], None]
Reporter = Callable[[str, float | None], AbstractContextManager[Advance]]


def _silent(name: str, total: float | None) -> AbstractContextManager[Advance]:
    return nullcontext(lambda amount: None)


_reporter: ContextVar[Reporter] = ContextVar("mgformer_progress", default=_silent)


def phase(name: str, total: float | None = None) -> AbstractContextManager[Advance]:
    """Announce a phase of `total` steps and yield a function to call with the steps just done."""
    return _reporter.get()(name, total)


@contextmanager
def reporting(reporter: Reporter) -> Iterator[None]:
    """Send the phases inside the block to `reporter`."""
    token = _reporter.set(reporter)
    try:
        yield
    finally:
        _reporter.reset(token)


def quietly() -> AbstractContextManager[None]:
    """Hide the phases inside the block, because they are part of a longer one."""
    return reporting(_silent)
