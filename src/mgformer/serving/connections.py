"""Limits and deadlines of connections, which uvicorn does not have.

uvicorn limits neither the size of headers nor the time in which a request must arrive: a client
that sends a header without end fills the memory, and a client that sends nothing keeps its
connection for ever. Here every phase of a connection has a deadline (headers, body, sending), and
uvicorn ends idle connections after `timeout_keep_alive`.
"""

import asyncio
import json
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from mgformer.serving.limits import ConnectionLimits
from mgformer.serving.security import SECURITY_HEADERS

LINGER_SECONDS, LINGER_BYTES = 2.0, 10_000_000
"""How long and how much is read from a refused client, and dropped. If the connection closed at
once, most clients would see a reset in place of the error."""


class Refused(Exception):
    """Ends the work of the parser."""


class LimitedConnection(HttpToolsProtocol):
    """A connection to a client, within limits."""

    def __init__(self, *arguments: Any, limits: ConnectionLimits, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.limits = limits
        self._timer: asyncio.TimerHandle | None = None
        self._sending: asyncio.TimerHandle | None = None
        self._in_head, self._size, self._unparsed = True, 0, 0
        self._refusal: tuple[int, str] | None = None
        self._dropped: int | None = None  # bytes, once the client is refused
        self.waits_since: float | None = None
        """Since when the headers of a request are awaited; None while a request is answered."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        if len(self.connections) >= self.limits.connections:
            waiting = [one for one in self.connections if _waits_since(one) is not None]
            if waiting:
                # Clients that send nothing must not keep out those who ask.
                longest = min(waiting, key=lambda one: _waits_since(one) or 0.0)
                self.connections.discard(longest)
                longest.transport.abort()
        super().connection_made(transport)
        self.waits_since = time.monotonic()
        if len(self.connections) > self.limits.connections:
            transport.write(_answer(503, "too many connections; try again"))
            self._dropped = LINGER_BYTES
            self._end()
        else:
            self._within(self.limits.head_seconds, self._head_is_late)

    def connection_lost(self, exc: Exception | None) -> None:
        self._unset_keepalive_if_required()
        for timer in (self._timer, self._sending):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._dropped is not None:
            self._dropped += len(data)
            if self._dropped > LINGER_BYTES:
                self.transport.abort()
            return
        if self._in_head and self._timer is None:  # the first bytes of a further request
            self._within(self.limits.head_seconds, self._head_is_late)
        self._unparsed += len(data)
        super().data_received(data)
        # The parser keeps a header that is not complete, before a body or after it.
        if self._unparsed > self.limits.head_bytes:
            self._refuse(*self._too_large())

    def on_message_begin(self) -> None:
        self._size = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._add_to_head(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._add_to_head(len(name) + len(value))
        if len(self.headers) >= self.limits.headers:
            self._stop(431, f"more than {self.limits.headers} headers; send fewer")
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head, self._unparsed, self.waits_since = False, 0, None
        if len(self.pipeline) >= self.limits.pipelined:
            self._stop(503, "too many requests at once; wait for the answers")
        self._within(self.limits.body_seconds, self._body_is_late)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._unparsed = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_head, self._unparsed = True, 0
        self._cancel()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        has_next = bool(self.pipeline)
        super().on_response_complete()
        if self.transport.is_closing():
            self._end()
        elif not has_next:
            self.waits_since = time.monotonic()

    def timeout_keep_alive_handler(self) -> None:
        self._end()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._sending is None:
            wait = self.limits.send_seconds
            self._sending = self.loop.call_later(wait, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._sending is not None:
            self._sending.cancel()
            self._sending = None

    def send_400_response(self, msg: str) -> None:
        """Send the error that has stopped the parser."""
        self._refuse(*(self._refusal or (400, "this is not a valid HTTP request")))

    def _unsupported_upgrade_warning(self) -> None:
        """Write nothing to the log: a request for another protocol is answered as HTTP."""

    def _too_large(self) -> tuple[int, str]:
        return 431, f"the headers exceed {self.limits.head_bytes:,} bytes; send less"

    def _add_to_head(self, size: int) -> None:
        self._size += size
        if self._size > self.limits.head_bytes:
            self._stop(*self._too_large())

    def _stop(self, status: int, message: str) -> None:
        """Stop the parser in the middle of its data; it calls `send_400_response`."""
        self._refusal = status, message
        raise Refused

    def _refuse(self, status: int, message: str) -> None:
        """Send an error, unless another answer is on its way, and end the connection."""
        if self._dropped is not None or self.transport.is_closing():
            return
        self._dropped = 0
        cycle = self.cycle
        is_open = cycle is not None and not cycle.response_complete
        if self.pipeline or (is_open and cycle.response_started):
            self._end()
            return
        if is_open:
            cycle.disconnected = True  # nobody waits for its answer any more
            cycle.message_event.set()
        self.transport.write(_answer(status, message))
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._within(LINGER_SECONDS, self.transport.abort)

    def _end(self) -> None:
        """Close the connection, even if the client does not read what waits to be sent."""
        self.transport.close()
        self._within(self.limits.send_seconds, self.transport.abort)

    def _head_is_late(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            # The answer to the request before it is not ready. That is not the client's fault.
            self._within(self.limits.head_seconds, self._head_is_late)
        else:
            self._refuse(408, f"the headers took more than {self.limits.head_seconds:g} seconds")

    def _body_is_late(self) -> None:
        self._refuse(408, f"the body took more than {self.limits.body_seconds:g} seconds")

    def _within(self, seconds: float, otherwise: Callable[[], None]) -> None:
        """Set the deadline of the current phase."""
        self._cancel()
        self._timer = self.loop.call_later(seconds, otherwise)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _waits_since(connection: object) -> float | None:
    return getattr(connection, "waits_since", None)


def _answer(status: int, message: str) -> bytes:
    """Return an error as it goes over the wire."""
    body = json.dumps({"error": message}).encode()
    headers = {
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        "Connection": "close",
        **SECURITY_HEADERS,
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return STATUS_LINE[HTTPStatus(status)] + lines.encode() + b"\r\n" + body
