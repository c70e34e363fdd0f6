"""Run the service on real sockets, wait for it, read its metrics."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from mgformer.serving.app import DEFAULT_LIMITS, create_app
from mgformer.serving.limits import Limits

PATIENCE = 600
"""Seconds to wait for other threads or processes: long, because a slow machine is no failure."""


def eventually(condition: Callable[[], object]) -> None:
    """Wait until a condition holds that another thread or process brings about."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"still not true after {PATIENCE} s"
        time.sleep(0.01)


def samples(text: str) -> list[Sample]:
    """Return the figures of /metrics."""
    return [one for family in text_string_to_metric_families(text) for one in family.samples]


@contextmanager
def serving(
    folder: Path, *, api_key: str | None = None, limits: Limits = DEFAULT_LIMITS
) -> Iterator[str]:
    """Run the service on a free port of this host."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        app = create_app(folder, api_key=api_key, limits=limits, watch_seconds=None)
        server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
        thread = threading.Thread(target=server.run, args=([free],))
        thread.start()
        try:
            while not server.started:
                assert thread.is_alive(), "the service did not start"
                time.sleep(0.01)
            yield f"http://127.0.0.1:{free.getsockname()[1]}/"
        finally:
            server.should_exit = True
            thread.join()
