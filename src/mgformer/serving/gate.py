"""The gate of the service: who may ask, size limits, request ids, metrics and the log.

Limits are checked before any work is done. An internal error is logged with the id of its request,
and the client gets no details. It is caught here, because answers need the id as well.
"""

import asyncio
import contextlib
import logging
import re
import time
import uuid

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mgformer.serving.failures import failure
from mgformer.serving.limits import Limits
from mgformer.serving.monitoring import MODEL, Metrics
from mgformer.serving.security import SECURITY_HEADERS, Access

log = logging.getLogger("mgformer.serving")
CLOSE = {"Connection": "close"}
SECURITY = [(name.lower().encode(), value.encode()) for name, value in SECURITY_HEADERS.items()]
REQUEST_ID = re.compile(r"[!-~]{1,64}")
DISCARDED_BYTES, DISCARDING_SECONDS = 100_000_000, 10.0
"""How much of a body that is too large is read. Many clients read the answer only after they have
sent everything."""


class Gate:
    """Refuses clients and bodies; counts, times and logs every request. Answers HEAD like GET.

    No exception leaves the gate.
    """

    def __init__(self, app: ASGIApp, *, limits: Limits, metrics: Metrics, access: Access) -> None:
        self.app, self.metrics, self.access = app, metrics, access
        self.most_bytes = limits.body_bytes
        self.too_large = 413, f"the body exceeds {limits.body_bytes:,} bytes; send less at a time"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers, began, status, received = Headers(scope=scope), time.perf_counter(), 0, 0
        request_id = headers.get("x-request-id", "")
        if not REQUEST_ID.fullmatch(request_id):
            request_id = uuid.uuid4().hex
        own_id = request_id.encode()
        scope["request_id"] = request_id
        method = scope["method"]
        if method == "HEAD":
            scope = {**scope, "method": "GET"}  # the server still knows that it was HEAD

        async def arriving() -> Message:
            """Receive a message; a client that has left is no error."""
            try:
                return await receive()
            except RuntimeError:  # uvloop could not write "100 Continue"
                return {"type": "http.disconnect"}

        async def count() -> Message:
            """Limit the bytes that arrive: the header Content-Length may be absent or wrong."""
            nonlocal received
            message = await arriving()
            received += len(message.get("body", b""))
            if received > self.most_bytes:
                if message.get("more_body"):
                    await _discard(arriving)
                raise HTTPException(*self.too_large, CLOSE)
            return message

        async def complete(message: Message) -> None:
            """Add the request id and the security headers to the answer."""
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                # The lists are added as they are sent: this runs for every request.
                sent = [*message.get("headers", ()), *SECURITY, (b"x-request-id", own_id)]
                if MODEL in scope:
                    sent.append((b"x-mgformer-model", scope[MODEL].encode()))
                if not scope["path"].startswith("/page/"):
                    sent.append((b"cache-control", b"no-store"))
                message = {**message, "headers": sent}
            elif method == "HEAD":
                message = {**message, "body": b""}
            await send(message)

        try:
            refusal = self._refusal(scope, headers)
            if refusal is None:
                await self.app(scope, count, complete)
            else:
                # A client that expects "100 Continue" has not sent its body yet.
                if "100-continue" not in headers.get("expect", ""):
                    await _discard(arriving)
                await failure(*refusal, CLOSE)(scope, receive, complete)
        except Exception:
            log.exception("internal error", extra={"request_id": request_id})
            if not status:  # otherwise part of the answer is already sent
                message = "internal error; see the log of the service"
                await failure(500, message, CLOSE)(scope, receive, complete)
        finally:
            seconds = time.perf_counter() - began
            route = getattr(scope.get("route"), "path", "other")
            model = scope.get(MODEL, "")
            self.metrics.count_request(method, route, status or 500, seconds, model)
            entry = {"request_id": request_id, "method": method, "path": scope["path"]}
            took = {"status": status or 500, "milliseconds": round(1000 * seconds, 3)}
            log.info("request", extra=entry | took | ({MODEL: model} if model else {}))

    def _refusal(self, scope: Scope, headers: Headers) -> tuple[int, str] | None:
        refusal = self.access.refusal(scope, headers)
        if refusal is not None:
            return refusal
        if "\0" in scope["path"]:  # no file has such a name, and older releases of starlette fail
            return 404, "Not Found"
        length = headers.get("content-length", "0")
        is_number = length.isdecimal() and len(length) < 20
        return self.too_large if is_number and int(length) > self.most_bytes else None


async def _discard(receive: Receive) -> None:
    """Read the rest of a body, within limits, and drop it."""
    left, more = DISCARDED_BYTES, True
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(DISCARDING_SECONDS):
            while left > 0 and more:
                message = await receive()
                left -= len(message.get("body", b""))
                more = message.get("more_body", False)
