"""Progress of long work, told to whoever listens.

The library only says what it is doing (`with phase("reading", total) as advance`); the command
line installs a reporter that draws bars. Without one nothing is shown and nothing is spent.
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
    """Announce a phase of `total` steps; call what it yields with the steps done since."""
    return _reporter.get()(name, total)


@contextmanager
def reporting(reporter: Reporter) -> Iterator[None]:
    """Send the phases announced inside to `reporter`."""
    token = _reporter.set(reporter)
    try:
        yield
    finally:
        _reporter.reset(token)


def quietly() -> AbstractContextManager[None]:
    """Leave out the phases announced inside, which are part of a longer one."""
    return reporting(_silent)
