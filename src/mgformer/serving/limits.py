"""What a request may cost, and who may ask: bounds that hold before any work is done."""

import hmac
import json
import logging
import time
import uuid
from dataclasses import dataclass
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mgformer.serving.metrics import Metrics

log = logging.getLogger("mgformer.serving")
OPEN_PATHS = ("/", "/healthz", "/readyz")
OPEN_FOLDER = "/page/"
"""Answered without a key: whoever watches over the process has none, and the page asks for it."""


@dataclass(frozen=True)
class Limits:
    """Bounds of a request."""

    body_bytes: int = 1_000_000
    k: int = 1_000
    batch_users: int = 1_000
    history_items: int = 1_000
    candidates: int = 10_000


class TooLarge(Exception):
    """The body is larger than allowed."""


class Gate:
    """Refuses bodies that are too large and wrong keys; counts, times and logs every request."""

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
        began, status = time.perf_counter(), 500

        async def answered(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {
                    **message,
                    "headers": [
                        *message["headers"],
                        (b"x-request-id", request_id.encode("latin-1")),
                    ],
                }
            await send(message)

        try:
            refusal = self._refusal(scope["path"], headers)
            if refusal is not None:
                await _refuse(answered, *refusal)
            else:
                await self.app(scope, self._bounded(receive), answered)
        except TooLarge:
            await _refuse(answered, 413, self._too_large())
        finally:
            seconds = time.perf_counter() - began
            route = scope.get("route")
            path = getattr(route, "path", "other")
            self.metrics.observe(scope["method"], path, status, seconds)
            log.info(
                "request",
                extra={
                    "request_id": request_id,
                    "method": scope["method"],
                    "path": scope["path"],
                    "status": status,
                    "milliseconds": round(1000 * seconds, 3),
                },
            )

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
        return f"the body is larger than {self.limits.body_bytes:,} bytes; send less at a time"

    def _bounded(self, receive: Receive) -> Receive:
        """Count what comes in: a length may be absent or wrong."""
        left = self.limits.body_bytes

        async def counted() -> Message:
            nonlocal left
            message = await receive()
            left -= len(message.get("body", b""))
            if left < 0:
                raise TooLarge
            return message

        return counted


async def _refuse(send: Send, status: int, message: str) -> None:
    body = json.dumps({"error": message}).encode()
    headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class JsonLines(logging.Formatter):
    """Log records as one JSON object a line."""

    FIELDS = ("request_id", "method", "path", "status", "milliseconds", "bundle")

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
        }
        entry |= {name: getattr(record, name) for name in self.FIELDS if hasattr(record, name)}
        if record.exc_info:
            entry["error"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)
