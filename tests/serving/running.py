"""Run the service on real sockets, wait for it, read its metrics."""

import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from mgformer.serving.app import create_app
from mgformer.serving.connections import LimitedConnection
from mgformer.serving.limits import ConnectionLimits

CONNECTIONS = ConnectionLimits()

LOCAL = ("127.0.0.1", 50_000)
"""A client on this machine, for TestClient."""
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
    folder: Path | Mapping[str, Path],
    *,
    connections: ConnectionLimits = CONNECTIONS,
    keep_alive: int = 60,
    drain: float | None = None,
    server: list[uvicorn.Server] | None = None,
    **options: Any,
) -> Iterator[str]:
    """Run the service on a free port of this host, as `mgformer serve` does.

    `options` are those of `create_app`. The server is added to the list `server`.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        app = create_app(folder, watch_seconds=None, **options)
        protocol: Any = partial(LimitedConnection, limits=connections)
        config = uvicorn.Config(
            app,
            http=protocol,
            ws="none",
            log_level="error",
            timeout_keep_alive=keep_alive,
            timeout_graceful_shutdown=drain,  # type: ignore[arg-type]
        )
        running = uvicorn.Server(config)
        if server is not None:
            server.append(running)
        thread = threading.Thread(target=running.run, args=([free],))
        thread.start()
        try:
            while not running.started:
                assert thread.is_alive(), "the service did not start"
                time.sleep(0.01)
            yield f"http://127.0.0.1:{free.getsockname()[1]}/"
        finally:
            running.should_exit = True
            thread.join()
