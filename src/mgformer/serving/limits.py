"""The gate of the service: size limits, the API key, request ids, metrics and the log.

Limits are checked before any work is done. An internal error is logged with the id of its request,
and the client gets no details. It is caught here, because answers need the id as well.
"""

import asyncio
import contextlib
import hmac
import json
import logging
import time
import uuid
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mgformer.serving.metrics import Metrics

log = logging.getLogger("mgformer.serving")
OPEN_PATHS = ("/", "/healthz", "/readyz")
OPEN_FOLDER = "/page/"
"""Paths that need no key: health checks have none, and the page asks its user for it."""
DISCARDED_BYTES, DISCARDING_SECONDS = 100_000_000, 10.0
"""How much of a body that is too large is read. Many clients read the answer only after they have
sent everything."""


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


class TooLarge(Exception):
    """The body is larger than allowed."""


class Exchange:
    """One request and its answer. Counts the bytes of the body and adds the request id."""

    def __init__(self, receive: Receive, send: Send, most_bytes: int, request_id: str) -> None:
        self._receive, self._send, self._left, self._ended = receive, send, most_bytes, False
        self.request_id, self.status, self.started = request_id, 500, False

    @property
    def too_large(self) -> bool:
        return self._left < 0

    async def receive(self) -> Message:
        """Count the bytes that arrive: the header Content-Length may be absent or wrong."""
        message = await self._receive()
        self._left -= len(message.get("body", b""))
        self._ended = not message.get("more_body", False)
        if self.too_large:
            raise TooLarge
        return message

    async def send(self, message: Message) -> None:
        """Pass on an answer, unless the body was cut off."""
        if not self.too_large:
            await self._pass_on(message)

    async def discard(self) -> None:
        """Read the rest of the body, within limits, and drop it."""
        most = self._left - DISCARDED_BYTES
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DISCARDING_SECONDS):
                while self._left > most and not self._ended:
                    with contextlib.suppress(TooLarge):
                        await self.receive()

    async def refuse(self, status: int, message: str) -> None:
        """Send an error in place of the answer."""
        body = json.dumps({"error": message}).encode()
        headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
        start = {"type": "http.response.start", "status": status, "headers": headers}
        await self._pass_on(start)
        await self._pass_on({"type": "http.response.body", "body": body})

    async def _pass_on(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status, self.started = message["status"], True
            named = (b"x-request-id", self.request_id.encode("latin-1"))
            message = {**message, "headers": [*message["headers"], named]}
        await self._send(message)


class Gate:
    """Refuses bodies that are too large and wrong keys; counts, times and logs every request.

    No exception leaves the gate.
    """

    def __init__(
        self, app: ASGIApp, *, limits: Limits, metrics: Metrics, api_key: str | None
    ) -> None:
        self.app, self.limits, self.metrics, self.api_key = app, limits, metrics, api_key

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value for name, value in scope["headers"]}
        request_id = headers.get("x-request-id", b"").decode("latin-1")[:64] or uuid.uuid4().hex
        exchange = Exchange(receive, send, self.limits.body_bytes, request_id)
        began = time.perf_counter()
        try:
            refusal = self._refusal(scope["path"], headers)
            if refusal is None:
                with contextlib.suppress(TooLarge):
                    await self.app(scope, exchange.receive, exchange.send)
                refusal = (413, self._too_large()) if exchange.too_large else None
            if refusal is not None:
                # A client that expects "100 Continue" has not sent its body yet.
                if b"100-continue" not in headers.get("expect", b""):
                    await exchange.discard()
                await exchange.refuse(*refusal)
        except Exception:
            log.exception("internal error", extra={"request_id": request_id})
            if not exchange.started:  # otherwise part of the answer is already sent
                await exchange.refuse(500, "internal error; see the log of the service")
        finally:
            self._record(scope, exchange, time.perf_counter() - began)

    def _refusal(self, path: str, headers: dict[str, bytes]) -> tuple[int, str] | None:
        public = path in OPEN_PATHS or path.startswith(OPEN_FOLDER)
        if self.api_key is not None and not public:
            given = headers.get("x-api-key", b"")
            if not hmac.compare_digest(given, self.api_key.encode()):
                return 401, "missing or wrong API key; send it in the header X-API-Key"
        length = headers.get("content-length", b"0")
        if length.isdigit() and int(length) > self.limits.body_bytes:
            return 413, self._too_large()
        return None

    def _too_large(self) -> str:
        return f"the body exceeds {self.limits.body_bytes:,} bytes; send less at a time"

    def _record(self, scope: Scope, exchange: Exchange, seconds: float) -> None:
        path = getattr(scope.get("route"), "path", "other")
        self.metrics.count_request(scope["method"], path, exchange.status, seconds)
        log.info(
            "request",
            extra={
                "request_id": exchange.request_id,
                "method": scope["method"],
                "path": scope["path"],
                "status": exchange.status,
                "milliseconds": round(1000 * seconds, 3),
            },
        )
