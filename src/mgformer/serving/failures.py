"""Errors as one line of JSON. The gate answers internal errors (500)."""

import asyncio
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from mgformer.errors import MgformerError, UnknownIdError
from mgformer.serving.engine import Overloaded

UNREADABLE = "the body is not valid JSON, or is nested too deeply"


class Failure(BaseModel):
    """What is wrong."""

    error: str


# With "model" in place of "content", FastAPI would document errors of health checks as plain text.
FAILURES: dict[int | str, dict[str, Any]] = {
    status: {
        "description": description,
        "content": {"application/json": {"schema": Failure.model_json_schema()}},
    }
    for status, description in {
        400: "The body is not valid JSON.",
        401: "The API key is missing or wrong.",
        404: "A user or an item is unknown.",
        413: "The body is too large.",
        422: "A value is not allowed.",
        503: "Too many requests are waiting; try again.",
    }.items()
}


def handle_failures(app: FastAPI) -> None:
    """Answer errors as {"error": message}."""

    def failure(status: int, message: str, **headers: str) -> JSONResponse:
        return JSONResponse({"error": message}, status, headers=headers)

    @app.exception_handler(UnknownIdError)
    async def unknown(request: Request, error: UnknownIdError) -> Response:
        # The message searches for similar ids, and other requests should not wait for that.
        return failure(404, await asyncio.to_thread(str, error))

    @app.exception_handler(MgformerError)
    async def wrong(request: Request, error: MgformerError) -> Response:
        return failure(422, str(error))

    @app.exception_handler(Overloaded)
    async def overloaded(request: Request, error: Overloaded) -> Response:
        return failure(503, "too many requests are waiting; try again", **{"Retry-After": "1"})

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        if first["type"] == "json_invalid":
            return failure(400, UNREADABLE)
        where = ".".join(str(part) for part in first["loc"][1:])  # without "body" or "query"
        message = first["msg"].removeprefix("Value error, ")
        if not where and first["type"] != "value_error":
            message = "expected a JSON object, sent as application/json"
        return failure(422, f"{where}: {message}" if where else message)

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> Response:
        # Starlette raises this for a body that is not UTF-8 or is nested without end.
        message = UNREADABLE if error.status_code == 400 else str(error.detail)
        return failure(error.status_code, message, **dict(error.headers or {}))
