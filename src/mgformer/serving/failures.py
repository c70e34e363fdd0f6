"""Errors as one line of JSON. The gate answers internal errors (500)."""

import asyncio
from collections.abc import Mapping
from typing import Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from mgformer.errors import MgformerError, UnknownIdError

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
        403: "Not allowed for this client, or switched off.",
        404: "A user or an item is unknown.",
        413: "The body is too large.",
        421: "The header Host does not name this service.",
        422: "A value is not allowed.",
        503: "Too many requests are waiting; try again.",
    }.items()
}


def failure(status: int, message: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """Return an error as an answer."""
    return JSONResponse({"error": message}, status, headers)


async def _invalid(request: Request, error: RequestValidationError) -> JSONResponse:
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        return failure(400, UNREADABLE)
    where = ".".join(str(part) for part in first["loc"][1:])  # without "body" or "query"
    message = first["msg"].removeprefix("Value error, ")
    if not where and first["type"] != "value_error":
        message = "expected a JSON object, sent as application/json"
    return failure(422, f"{where}: {message}" if where else message)


async def _refused(request: Request, error: HTTPException) -> JSONResponse:
    # Starlette raises 400 for a body that is not UTF-8 or is nested without end.
    message = UNREADABLE if error.status_code == 400 else error.detail
    return failure(error.status_code, message, error.headers)


def handlers(*, list_users: bool) -> dict[Any, Any]:
    """Return what turns exceptions into answers."""

    async def wrong(request: Request, error: MgformerError) -> JSONResponse:
        # The message of an unknown id searches for similar ids: other requests should not wait for
        # it. A service that does not list users names none.
        read = str if list_users else Exception.__str__
        message = await asyncio.to_thread(read, error)
        return failure(404 if isinstance(error, UnknownIdError) else 422, message)

    return {MgformerError: wrong, RequestValidationError: _invalid, HTTPException: _refused}
