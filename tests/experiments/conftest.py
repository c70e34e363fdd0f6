import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import numpy as np
import pytest


@pytest.fixture(scope="session")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of 120 people of four tastes: each has ten things of fifteen that go together."""
    rng = np.random.default_rng(4)
    rows = [
        f"u{user},i{item}"
        for user in range(120)
        for item in 15 * (user % 4) + rng.choice(15, 10, replace=False)
    ]
    path = tmp_path_factory.mktemp("data") / "tastes.csv"
    path.write_text("user,item\n" + "\n".join(rows) + "\n")
    return path


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
