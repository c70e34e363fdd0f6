import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest


class _Interrupting(logging.Handler):
    def __init__(self, beginning: str) -> None:
        super().__init__()
        self.beginning = beginning

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage().startswith(self.beginning):
            raise KeyboardInterrupt


@pytest.fixture
def interrupt_at() -> Callable[[str], AbstractContextManager[None]]:
    """Press Ctrl-C when a line of the log begins like this."""

    @contextmanager
    def interrupting(beginning: str) -> Iterator[None]:
        log, handler = logging.getLogger("mgformer"), _Interrupting(beginning)
        log.addHandler(handler)
        try:
            yield
        finally:
            log.removeHandler(handler)

    return interrupting
