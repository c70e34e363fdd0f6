"""Limits, keys, errors, request ids, metrics and the log."""

import asyncio
import json
import logging
import os
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from mgformer.data.ids import Ids
from mgformer.serving import app
from mgformer.serving.app import create_app
from mgformer.serving.gate import Gate
from mgformer.serving.limits import Limits
from mgformer.serving.monitoring import JsonLines, Metrics
from mgformer.serving.security import Access
from tests.serving.running import samples


def test_health_metrics_and_request_ids(client: TestClient):
    assert client.get("/healthz").text == "ok"
    assert client.get("/readyz").text == "ready"
    answered = client.get("/items", headers={"X-Request-ID": "abc"})
    assert answered.headers["x-request-id"] == "abc"
    assert len(client.get("/items").headers["x-request-id"]) == 32
    found = samples(client.get("/metrics").text)
    # Each of several workers reports its own figures.
    own = {"worker": str(os.getpid()), "model": "default"}
    requests = {**own, "method": "GET", "path": "/items", "status": "200"}
    assert ("mgformer_requests_total", requests) in [(one.name, one.labels) for one in found]
    bucket = {**own, "path": "/items", "le": "+Inf"}
    assert ("mgformer_request_seconds_bucket", bucket) in [(one.name, one.labels) for one in found]
    assert {"mgformer_waiting", "mgformer_loaded_timestamp_seconds"} <= {one.name for one in found}
    assert all(one.labels["worker"] == own["worker"] for one in found)


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (b'{"user": ', 400, "not valid JSON"),
        (b"[]", 422, "expected a JSON object"),
        (b'{"k": 5}', 422, "a query needs a user, a history, or both"),
        (b'{"user": "x", "k": 0}', 422, "k: Input should be greater than or equal to 1"),
        (b'{"user": "x", "k": 1000000000}', 422, "k: Input should be less than or equal to 1000"),
        (b'{"user": "x", "k": "many"}', 422, "k: Input should be a valid integer"),
        (b'{"user": {"id": 1}}', 422, "user"),
        (b'{"user": "x", "limit": 3}', 422, "limit: Extra inputs are not permitted"),
        (b'{"user": "amir-18", "strict": true}', 404, "unknown user 'amir-18'"),
        (b'{"history": ["jazz-03"], "candidates": ["nope"]}', 404, "unknown item 'nope'"),
        (b'{"history": [' + b'"x",' * 1000 + b'"x"]}', 422, "history"),
        (b'{"user": "' + b"x" * 600 + b'"}', 422, "user"),
        (b'{"user": "\\ud800"}', 422, ""),
        (b"\xff\xfe", 400, ""),
        (b'{"user": "' + b"x" * 1_100_000 + b'"}', 413, "exceeds 1,000,000 bytes"),
        (b"[" * 100_000, 400, ""),
    ],
)
def test_bad_requests_get_an_error_message(body, status, message, client: TestClient):
    answered = client.post("/recommend", content=body, headers={"content-type": "application/json"})
    assert answered.status_code == status, answered.text
    assert message in answered.json()["error"]
    assert client.get("/healthz").status_code == 200


def test_similar_ids_are_searched_once_and_off_the_event_loop(client: TestClient, monkeypatch):
    looked_for = []

    def closest(ids, wanted):
        with pytest.raises(RuntimeError, match="no running event loop"):
            asyncio.get_running_loop()
        looked_for.append(wanted)
        return ["somebody"]

    monkeypatch.setattr(Ids, "closest", closest)
    users = [f"nobody-{n}" for n in range(64)]
    answered = client.post("/recommend/batch", json={"users": users, "strict": True})
    assert answered.status_code == 404
    assert answered.json()["error"].endswith("training data; did you mean somebody?")
    assert looked_for == ["nobody-0"]


def test_a_body_without_a_length_is_limited_too(client: TestClient):
    def parts():
        yield b'{"user": "'
        for _ in range(2_000):
            yield b"x" * 1_000

    answered = client.post("/recommend", content=parts())
    assert answered.status_code == 413


def test_unknown_paths_and_wrong_methods(client: TestClient):
    assert client.get("/nothing").json() == {"error": "Not Found"}
    assert client.get("/recommend").status_code == 405
    assert client.get("/users/nobody at all").status_code == 404
    assert client.get("/items", params={"limit": 10_000}).status_code == 422


def test_the_api_key_is_required_if_set(run: Path):
    with TestClient(create_app(run, api_key="secret", watch_seconds=None)) as client:
        assert client.get("/items").status_code == 401
        assert client.get("/items", headers={"X-API-Key": "wrong"}).status_code == 401
        assert "error" in client.post("/admin/reload").json()
        assert client.get("/items", headers={"X-API-Key": "secret"}).status_code == 200
        paths = {"/", *client.app.openapi()["paths"]}
        answers = {path: client.request("GET", path).status_code for path in paths}
        assert {path for path, status in answers.items() if status != 401} == {
            "/", "/healthz", "/readyz",
        }  # fmt: skip


def test_limits_can_be_set(run: Path):
    limits = Limits(body_bytes=200, k=3, batch_users=2)
    with TestClient(create_app(run, limits=limits, watch_seconds=None)) as client:
        assert client.post("/recommend", json={"history": [], "k": 4}).status_code == 422
        assert client.post("/recommend", json={"history": [], "k": 3}).status_code == 200
        assert client.post("/recommend/batch", json={"users": ["a"] * 3}).status_code == 422
        assert client.post("/recommend", json={"history": ["x" * 100] * 3}).status_code == 413


def test_users_times_k_is_limited(run: Path):
    with TestClient(create_app(run, limits=Limits(batch_items=6), watch_seconds=None)) as client:
        body = {"users": ["bella-787", "amir-186"]}
        assert len(client.post("/recommend/batch", json={**body, "k": 3}).json()) == 2
        answered = client.post("/recommend/batch", json={**body, "k": 4})
        assert answered.status_code == 422
        assert answered.json() == {
            "error": "2 users × 4 items exceed the limit of 6; send smaller batches"
        }


def test_an_internal_error_is_logged_and_not_shown(run: Path, monkeypatch, caplog):
    def broken(*arguments):
        raise ZeroDivisionError("inner workings")

    monkeypatch.setattr(app, "find_items", broken)
    with TestClient(create_app(run, watch_seconds=None)) as client, caplog.at_level(logging.INFO):
        answered = client.get("/items", headers={"X-Request-ID": "abc"})
        assert answered.status_code == 500
        assert answered.json() == {"error": "internal error; see the log of the service"}
        assert answered.headers["x-request-id"] == "abc"
        assert client.get("/healthz").status_code == 200
        failed = {
            one.labels["path"]: one.value
            for one in samples(client.get("/metrics").text)
            if one.labels.get("status") == "500" and one.name == "mgformer_requests_total"
        }
        assert failed == {"/items": 1}
    logged = [record for record in caplog.records if getattr(record, "request_id", "") == "abc"]
    fault, request = [json.loads(JsonLines().format(record)) for record in logged]
    assert (fault["level"], fault["message"], fault["request_id"]) == (
        "error",
        "internal error",
        "abc",
    )
    assert "ZeroDivisionError: inner workings" in fault["error"]
    assert (request["message"], request["status"]) == ("request", 500)


def test_an_internal_error_in_the_middle_of_an_answer_is_logged(caplog):
    async def broken(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise ZeroDivisionError("inner workings")

    sent = []

    async def send(message):
        sent.append(message["type"])

    gate = Gate(broken, limits=Limits(), metrics=Metrics(), access=Access())
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/items",
        "headers": [(b"host", b"localhost")],
    }
    asyncio.run(gate(scope, None, send))
    assert sent == ["http.response.start"]
    assert "inner workings" in caplog.text
