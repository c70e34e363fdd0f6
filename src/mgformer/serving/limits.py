"""Limits of requests and of connections."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Limits of a request."""

    body_bytes: int = 1_000_000
    k: int = 1_000
    batch_users: int = 1_000
    batch_items: int = 50_000
    """Recommendations of a batch, over all its users."""
    history_items: int = 1_000
    candidates: int = 10_000
    feedback: int = 1_000
    """Interactions of a request."""
    waiting_feedback: int = 10_000
    """Interactions that wait to be written."""


@dataclass(frozen=True)
class ConnectionLimits:
    """Limits of the connections of one worker. Times are in seconds."""

    connections: int = 500
    """Open connections. Most systems allow 1,024 open files per process."""
    head_bytes: int = 32_768
    """Size of the request line and all headers together."""
    headers: int = 100
    """Number of headers of a request."""
    pipelined: int = 16
    """Requests that a client may send before it has the answer to the first."""
    head_seconds: float = 10.0
    """Time in which the request line and the headers must arrive."""
    body_seconds: float = 30.0
    """Time in which the body must arrive."""
    send_seconds: float = 30.0
    """Time in which a client must take what waits to be sent to it."""
