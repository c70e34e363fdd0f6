"""The gate of the service: size limits, the API key, request ids, metrics and the log.

Limits are checked before any work is done. An internal error is logged with the id of its request,
and the client gets no details. It is caught here, because answers need the id as well.
"""

import asyncio
import contextlib
import hmac
import logging
import time
import uuid
from dataclasses import dataclass

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mgformer.serving.failures import failure
from mgformer.serving.monitoring import Metrics

log = logging.getLogger("mgformer.serving")
CLOSE = {"Connection": "close"}
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


class Gate:
    """Refuses bodies that are too large and wrong keys; counts, times and logs every request.

    No exception leaves the gate.
    """

    def __init__(
        self, app: ASGIApp, *, limits: Limits, metrics: Metrics, api_key: str | None
    ) -> None:
        self.app, self.metrics, self.api_key = app, metrics, api_key
        self.most_bytes = limits.body_bytes
        self.too_large = 413, f"the body exceeds {limits.body_bytes:,} bytes; send less at a time"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers, began, status, received = Headers(scope=scope), time.perf_counter(), 0, 0
        request_id = headers.get("x-request-id", "")[:64] or uuid.uuid4().hex

        async def count() -> Message:
            """Limit the bytes that arrive: the header Content-Length may be absent or wrong."""
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self.most_bytes:
                if message.get("more_body"):
                    await _discard(receive)
                raise HTTPException(*self.too_large, CLOSE)
            return message

        async def name(message: Message) -> None:
            """Add the request id to the answer."""
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)["X-Request-ID"] = request_id
            await send(message)

        try:
            refusal = self._refusal(scope["path"], headers)
            if refusal is None:
                await self.app(scope, count, name)
            else:
                # A client that expects "100 Continue" has not sent its body yet.
                if "100-continue" not in headers.get("expect", ""):
                    await _discard(receive)
                await failure(*refusal, CLOSE)(scope, receive, name)
        except Exception:
            log.exception("internal error", extra={"request_id": request_id})
            if not status:  # otherwise part of the answer is already sent
                message = "internal error; see the log of the service"
                await failure(500, message, CLOSE)(scope, receive, name)
        finally:
            seconds, method = time.perf_counter() - began, scope["method"]
            route = getattr(scope.get("route"), "path", "other")
            self.metrics.count_request(method, route, status or 500, seconds)
            entry = {"request_id": request_id, "method": method, "path": scope["path"]}
            took = {"status": status or 500, "milliseconds": round(1000 * seconds, 3)}
            log.info("request", extra=entry | took)

    def _refusal(self, path: str, headers: Headers) -> tuple[int, str] | None:
        # Health checks have no key, and the page asks its user for it.
        is_open = path in ("/", "/healthz", "/readyz") or path.startswith("/page/")
        if self.api_key is not None and not is_open:
            given = headers.get("x-api-key", "").encode("latin-1")
            if not hmac.compare_digest(given, self.api_key.encode()):
                return 401, "missing or wrong API key; send it in the header X-API-Key"
        length = headers.get("content-length", "0")
        return self.too_large if length.isdecimal() and int(length) > self.most_bytes else None


async def _discard(receive: Receive) -> None:
    """Read the rest of a body, within limits, and drop it."""
    left, more = DISCARDED_BYTES, True
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(DISCARDING_SECONDS):
            while left > 0 and more:
                message = await receive()
                left -= len(message.get("body", b""))
                more = message.get("more_body", False)
