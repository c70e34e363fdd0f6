"""Plain requests take the short way, and get what the usual way answers."""

import asyncio
import json

import pytest
from fastapi.testclient import TestClient

from mgformer.serving import short_way

BODIES = [
    {"user": "amir-186", "k": 3},
    {"history": ["jazz-03", "jazz-04"], "k": 2.0, "explain": True},
    {"history": [{"item": "jazz-03", "time": 5}, {"item": "rock-01", "time": 1.5}]},
    {"user": "nobody"},
    {"user": "nobody", "strict": True},
    {"user": "amir-186", "candidates": ["nothing"]},
    {},
]
NOT_IN_THE_SCHEMA = [{"user": "amir-186", "k": "3"}, {"user": "amir-186", "more": 1}]


@pytest.fixture
def usual_requests(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for each request that went the usual way."""
    seen: list[int] = []
    (route,) = (one for one in client.app.routes if getattr(one, "path", "") == "/recommend")
    assert isinstance(route.app, short_way._ShortWay)
    usual = route.app.usual

    async def counted(*scope_receive_send):
        seen.append(1)
        await usual(*scope_receive_send)

    monkeypatch.setattr(route.app, "usual", counted)
    return seen


@pytest.mark.parametrize("body", BODIES + NOT_IN_THE_SCHEMA, ids=json.dumps)
def test_both_ways_answer_alike(client: TestClient, usual_requests: list[int], body: dict):
    content = json.dumps(body).encode()

    def answer(kind: str):
        headers = {"content-type": kind, "x-request-id": "1"}
        return client.post("/recommend", content=content, headers=headers)

    short = answer("application/json")
    was_usual = len(usual_requests)
    usual = answer("application/json; charset=utf-8")
    assert len(usual_requests) == was_usual + 1
    assert (short.status_code, short.content) == (usual.status_code, usual.content)
    assert short.headers == usual.headers
    assert was_usual == (body in NOT_IN_THE_SCHEMA)


@pytest.mark.parametrize("parts", [[b'{"user": ', b'"amir-186"}'], [b"{}", b" ", b""]])
def test_a_body_may_come_in_parts(client: TestClient, parts: list[bytes]):
    headers = {"content-type": "application/json"}
    whole = client.post("/recommend", content=b"".join(parts), headers=headers)
    split = client.post("/recommend", content=iter(parts), headers=headers)
    assert (split.status_code, split.content) == (whole.status_code, whole.content)


def test_the_rest_of_the_addresses_keeps_the_usual_way(client: TestClient, usual_requests):
    assert client.post("/recommend?model=default", json={"user": "amir-186"}).status_code == 200
    assert client.post("/recommend?model=other", json={"user": "amir-186"}).status_code == 404
    assert len(usual_requests) == 2
    assert client.get("/recommend").status_code == 405


@pytest.mark.parametrize("fails", [False, True])
def test_a_client_that_leaves_is_no_error_of_the_service(client: TestClient, fails: bool):
    parts = iter([{"type": "http.request", "body": b'{"us', "more_body": True}])
    sent: list[dict] = []

    async def receive():
        if fails:  # what uvloop raises when "100 Continue" is written too late
            raise RuntimeError("Cannot call write() after write_eof()")
        return next(parts, {"type": "http.disconnect"})

    async def send(message):
        sent.append(message)

    scope = {
        **{"type": "http", "method": "POST", "path": "/recommend", "query_string": b""},
        "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")],
    }
    asyncio.run(client.app(scope, receive, send))
    assert [message["status"] for message in sent if "status" in message] == [400]
