"""The short way of a request to its answer, for the route that gets most of the traffic.

FastAPI looks at query, headers and dependencies of every request, which takes longer than many
answers. A request with nothing but a valid JSON body needs none of that. All others, wrong ones
too, go the usual way, so errors have one source.
"""

import json
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

Answer = Callable[[Any, Request], Awaitable[Response]]


def answer_plainly(app: FastAPI, path: str, body: type[BaseModel], answer: Answer) -> None:
    """Give a route the short way: `answer` gets the body and the request."""
    for route in app.routes:
        if isinstance(route, Route) and route.path == path:
            route.app = _ShortWay(route.app, body, answer)


class _ShortWay:
    """Takes the place of a route's application, which stays for requests that are not plain."""

    def __init__(self, usual: ASGIApp, body: type[BaseModel], answer: Answer) -> None:
        self.usual, self.body, self.answer = usual, body, answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        if scope["query_string"] or request.headers.get("content-type") != "application/json":
            await self.usual(scope, receive, send)
            return
        try:
            content = await request.body()
        except ClientDisconnect:
            await self.usual(scope, receive, send)
            return
        try:
            body = self.body.model_validate(json.loads(content))
        except (ValueError, RecursionError):
            await self.usual(scope, _again(content, receive), send)
            return
        response = await self.answer(body, request)
        await response(scope, receive, send)


def _again(content: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives a body once more, and then what follows it."""
    whole: list[Message] = [{"type": "http.request", "body": content, "more_body": False}]

    async def replay() -> Message:
        return whole.pop() if whole else await receive()

    return replay
