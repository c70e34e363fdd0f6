"""Who may ask: hosts, origins, keys, users; and the headers of every answer."""

import asyncio
import hmac
import json
import logging
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from mgformer.recommend.recommender import Recommender
from mgformer.serving import gate
from mgformer.serving.app import create_app
from mgformer.serving.gate import Gate
from mgformer.serving.limits import Limits
from mgformer.serving.monitoring import JsonLines, Metrics
from mgformer.serving.security import SECURITY_HEADERS, Access, allowed_hosts, host_name
from tests.serving.running import LOCAL

USER = "bella-787"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("security") / "run"
    Recommender.fit("demo", "ials").save(folder)
    return folder


@pytest.fixture(scope="module")
def local(folder: Path):
    """A client on the machine of the service."""
    app = create_app(folder, watch_seconds=None)
    with TestClient(app, base_url="http://127.0.0.1:8000", client=LOCAL) as client:
        yield client


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:8000", 200),
        ("LOCALHOST.", 200),
        ("127.0.0.1", 200),
        ("[::1]:8000", 200),
        ("evil.example", 421),
        ("evil.example:8000", 421),
        ("localhost.evil.example", 421),
        ("127.0.0.1.evil.example:8000", 421),
        ("localhost:8000@evil.example", 421),
        ("[::1].evil.example", 421),
        ("", 421),
    ],
)
@pytest.mark.parametrize("path", ["/", "/healthz", f"/users/{USER}", "/nothing"])
def test_a_foreign_host_is_refused(host: str, status: int, path: str, local: TestClient):
    answered = local.get(path, headers={"Host": host})
    if status == 200:
        assert answered.status_code == (404 if path == "/nothing" else 200)
    else:
        assert answered.status_code == status
        assert answered.json()["error"].startswith(f"the host {host!r} is not allowed")


def test_hosts_can_be_allowed(folder: Path):
    hosts = allowed_hosts("10.0.0.5", ["Shop.example:443"])
    assert set(hosts) == {"localhost", "127.0.0.1", "::1", "10.0.0.5", "shop.example"}
    for allowed, host, status in [
        (hosts, "shop.example", 200),
        (hosts, "10.0.0.5:8000", 200),
        (hosts, "evil.example", 421),
        (allowed_hosts("0.0.0.0", ["*"]), "any.example", 200),
    ]:
        with TestClient(create_app(folder, hosts=allowed, watch_seconds=None)) as client:
            assert client.get("/items", headers={"Host": host}).status_code == status


def test_the_address_that_a_connection_has_come_to_is_allowed():
    access, scope = Access(), {"path": "/items", "server": ("10.0.0.5", 8000)}

    def refused(*hosts: str) -> int | None:
        headers = gate.Headers(raw=[(b"host", host.encode()) for host in hosts])
        refusal = access.refusal(scope, headers)
        return refusal and refusal[0]

    assert refused("10.0.0.5:8000") is None
    assert refused("10.0.0.6:8000") == 421
    assert refused() == refused("localhost", "evil.example") == 400


def test_the_name_in_a_host():
    assert host_name("[::1]:80") == host_name("[::1]") == host_name("::1") == "::1"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Origin": "http://127.0.0.1:8000"}, 200),
        ({"Origin": "https://127.0.0.1:8000"}, 200),  # a proxy may add TLS
        ({"Origin": "http://127.0.0.1:3000"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": ""}, 403),
        ({"X-Forwarded-For": "127.0.0.1"}, 403),
        ({"Forwarded": "for=127.0.0.1"}, 403),
    ],
)
def test_who_may_reload(headers: dict[str, str], status: int, local: TestClient):
    assert local.post("/admin/reload", headers=headers).status_code == status


@pytest.mark.parametrize("client", [("10.0.0.9", 50_000), ("testclient", 50_000)])
def test_admin_needs_a_key_or_this_machine(client: tuple[str, int], folder: Path):
    with TestClient(create_app(folder, watch_seconds=None), client=client) as remote:
        assert remote.post("/admin/reload").status_code == 403
        assert remote.get("/items").status_code == 200
    keyed = create_app(folder, api_key="secret", watch_seconds=None)
    with TestClient(keyed, client=client, headers={"X-API-Key": "secret"}) as remote:
        assert remote.post("/admin/reload").status_code == 200
        foreign = {"Origin": "http://evil.example"}
        assert remote.post("/admin/reload", headers=foreign).status_code == 403


def test_the_key_is_compared_in_constant_time(folder: Path, monkeypatch):
    compared = []

    def compare(given: bytes, expected: bytes) -> bool:
        compared.append((given, expected))
        return True

    monkeypatch.setattr(hmac, "compare_digest", compare)
    with TestClient(create_app(folder, api_key="secret", watch_seconds=None)) as client:
        # Whatever is given, only this comparison decides.
        assert client.get("/items", headers={"X-API-Key": "wrong"}).status_code == 200
    assert compared == [(b"wrong", b"secret")]


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("GET", "/", {}, 200),
        ("GET", "/page/app.js", {}, 200),
        ("GET", "/items", {}, 200),
        ("GET", "/nothing", {}, 404),
        ("GET", "/recommend", {}, 405),
        ("POST", "/recommend", {}, 422),
        ("POST", "/recommend", {"Content-Length": "50000000"}, 413),
        ("GET", "/items", {"Host": "evil.example"}, 421),
    ],
)
def test_every_answer_has_the_security_headers(
    method: str, path: str, headers: dict[str, str], status: int, local: TestClient
):
    answered = local.request(method, path, headers=headers)
    assert answered.status_code == status
    for name, value in SECURITY_HEADERS.items():
        assert answered.headers.get_list(name) == [value]
    policy = answered.headers["content-security-policy"]
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    expected = None if path == "/page/app.js" else "no-store"
    assert answered.headers.get("cache-control") == expected


@pytest.mark.parametrize(
    "path", ["/", "/page/app.js", "/items", "/users", f"/users/{USER}", "/model", "/healthz"]
)
def test_head_answers_like_get_without_a_body(path: str, local: TestClient):
    got, head = local.get(path), local.head(path)
    assert head.status_code == got.status_code == 200
    assert head.content == b""
    same = "content-length", "content-type", "etag"
    assert [head.headers.get(name) for name in same] == [got.headers.get(name) for name in same]
    assert local.head("/recommend").status_code == 405


def test_without_users_nothing_lists_or_searches_them(folder: Path):
    app = create_app(folder, list_users=False, watch_seconds=None)
    with TestClient(app) as client:
        answers = [
            client.get("/users"),
            client.get("/users", params={"q": "bella"}),
            client.get(f"/users/{USER}"),
            client.post("/similar", json={"user": USER}),
        ]
        for answered in answers:
            assert answered.status_code == 403
            assert answered.json() == {"error": "this service does not list users"}
        assert client.get("/model").json()["lists_users"] is False
        # Neither a suggestion nor an example names a user.
        unknown = client.post("/recommend", json={"user": "bella-78", "strict": True})
        assert unknown.status_code == 404
        assert "did you mean" not in unknown.json()["error"]
        schema = client.get("/openapi.json").text
        users = client.app.state.engine.bundle.users.values
        assert users[0] not in schema
        assert '"/users' not in schema
        # Those who know an id still get its list.
        assert client.post("/recommend", json={"user": USER}).status_code == 200
        assert client.post("/similar", json={"item": "jazz-03"}).status_code == 200


def test_no_character_can_break_a_line_of_the_log(local: TestClient, caplog):
    with caplog.at_level(logging.INFO):
        name = b"X-Request-ID"
        local.get("/users/a%E2%80%A8b%0Ac%C2%85d%1B%5B2J", headers={name: b"a\x85b"})
    (record,) = [one for one in caplog.records if one.getMessage() == "request"]
    line = JsonLines().format(record)
    assert line.isascii()
    assert line.isprintable()
    assert len(line.splitlines()) == 1
    assert json.loads(line)["path"] == "/users/a\u2028b\nc\x85d\x1b[2J"
    assert len(json.loads(line)["request_id"]) == 32  # what the client sent is no valid id


def test_a_streamed_body_is_read_no_further_than_the_limits(monkeypatch):
    """The service stops when a body exceeds the limit, and discards a limited number of bytes."""
    monkeypatch.setattr(gate, "DISCARDED_BYTES", 3_000)
    part, taken, sent = b"x" * 500, 0, []

    async def receive() -> dict[str, Any]:
        nonlocal taken
        taken += len(part)
        assert taken < 100_000, "the body is read without end"
        return {"type": "http.request", "body": part, "more_body": True}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    async def read_everything(scope, receive, send):
        while (await receive())["more_body"]:
            pass

    async def read_a_request() -> None:
        app = Gate(
            read_everything, limits=Limits(body_bytes=1_000), metrics=Metrics(), access=Access()
        )
        scope = {"type": "http", "method": "POST", "path": "/recommend"}
        await app({**scope, "headers": [(b"host", b"localhost")]}, receive, send)

    asyncio.run(read_a_request())
    # Two parts are allowed, the third exceeds the limit, six more are discarded.
    assert taken == 9 * len(part)


def test_a_refused_client_that_leaves_is_no_error(client: TestClient) -> None:
    sent: list[dict] = []

    async def receive():  # what uvloop raises when "100 Continue" is written too late
        raise RuntimeError("Cannot call write() after write_eof()")

    async def send(message):
        sent.append(message)

    scope = {
        **{"type": "http", "method": "POST", "path": "/recommend", "query_string": b""},
        "headers": [(b"host", b"evil.example"), (b"expect", b"100-Continue")],
    }
    asyncio.run(client.app(scope, receive, send))
    assert [message["status"] for message in sent if "status" in message] == [421]
