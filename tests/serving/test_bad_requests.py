"""Bad requests on real sockets get one line of error, and the service keeps running."""

import http.client
import json
import logging
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from mgformer.recommend.recommender import Recommender
from tests.serving.running import serving

JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    folder = tmp_path_factory.mktemp("bad") / "run"
    Recommender.fit("demo", "ials").save(folder)
    with serving(folder) as address:
        yield urlsplit(address).port or 0


def send(port: int, method: str, path: str, body: bytes | None = None, **headers: str):
    """Return status and content, like a client that sends everything before it reads."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    try:
        connection.request(method, path, body, {**JSON, **headers})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def send_raw(port: int, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=600) as connection:
        connection.sendall(request)
        received = b""
        while part := connection.recv(1 << 16):
            received += part
    return received


@pytest.fixture(autouse=True)
def keeps_running(port: int, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """After every test, no error is logged and the next answer is right."""
    with caplog.at_level(logging.ERROR):
        yield
    assert caplog.text == ""
    status, answer = send(port, "POST", "/recommend", b'{"history": ["jazz-03"], "k": 2}')
    assert status == 200
    assert len(answer["items"]) == 2


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (b"", 422, "expected a JSON object"),
        (b"null", 422, "expected a JSON object"),
        (b"NaN", 422, "expected a JSON object"),
        (b"{}", 422, "a query needs a user, a history, or both"),
        (b'{"history": [{"item": "jazz-03"}]}', 422, "history.dated.0.time"),
        (b'{"history": [{"item": "jazz-03", "time": NaN}]}', 422, "history"),
        (b'{"history": ["jazz-03", {"item": "jazz-04", "time": 5}]}', 422, "history"),
        (b'{"user": NaN}', 422, "user"),
        (b'{"user": -Infinity}', 422, "user"),
        (b'{"user": true}', 422, "user"),
        (b'{"user": 5.5}', 422, "user"),
        (b'{"user": []}', 422, "user"),
        (b'{"user": "amir-186", "k": NaN}', 422, "k: Input should be a valid integer"),
        (b'{"user": "amir-186", "k": 1e999}', 422, "k: Input should be a valid integer"),
        (b'{"user": "amir-186", "k": -1}', 422, "k: Input should be greater"),
        (b'{"user": "amir-186", "k": true}', 422, "k: Input should be a valid integer"),
        (b'{"user": "amir-186", "k": "5"}', 422, "k: Input should be a valid integer"),
        (b'{"user": "amir-186", "k": 2.5}', 422, "k: Input should be a valid integer"),
        (b'{"user": "amir-186", "k": null}', 422, "k: Input should be a valid integer"),
        (b'{"user": "amir-186", "k": 1e300}', 422, "k: Input should be less"),
        (b'{"user": "amir-186", "exclude_seen": "yes"}', 422, "exclude_seen"),
        (b'{"strict": true, "user": ' + b"9" * 4_000 + b"}", 404, "unknown user '999"),
        (b'{"user": ' + b"9" * 5_000 + b"}", 400, "not valid JSON"),
        (b'{"user": "amir-186", "candidates": []}', 422, "candidates"),
        (b'{"user": "amir-186", "candidates": "jazz-03"}', 422, "candidates"),
        (b'{"history": "jazz-03"}', 422, "history"),
        (b'{"history": [["jazz-03"]]}', 422, "history.ids.0"),
        (b'{"history": {"0": "jazz-03"}}', 422, "history"),
        (b'{"user": ' + b'{"user": ' * 50_000 + b"1" + b"}" * 50_001, 400, "not valid JSON"),
        (b'{"user": "\xff\xfe"}', 400, "not valid JSON"),
        (b'{"user": "amir-186"', 400, "not valid JSON"),
        (b"\x1f\x8b\x08\x00", 400, "not valid JSON"),
    ],
)
def test_bad_bodies(body: bytes, status: int, message: str, port: int):
    found, answer = send(port, "POST", "/recommend", body)
    assert found == status, answer
    assert message in answer["error"]
    assert "\n" not in answer["error"]


@pytest.mark.parametrize("path", ["/recommend", "/nothing"])
def test_a_body_of_fifty_megabytes_is_refused(path: str, port: int):
    status, answer = send(port, "POST", path, b'{"user": "' + b"x" * 50_000_000 + b'"}')
    assert status == 413
    assert answer == {"error": "the body exceeds 1,000,000 bytes; send less at a time"}


def test_a_client_that_expects_100_continue_is_refused_at_once(port: int):
    head = b"POST /recommend HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50000000\r\n"
    assert send_raw(port, head + b"Expect: 100-continue\r\n\r\n").startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize(
    ("method", "path", "status", "message"),
    [
        ("GET", "/nothing", 404, "Not Found"),
        ("GET", "/recommend", 405, "Method Not Allowed"),
        ("DELETE", "/users/amir-186", 405, "Method Not Allowed"),
        ("GET", "/users/", 404, "unknown user ''"),
        ("GET", "/users/%ff%fe", 404, "unknown user"),
        ("GET", "/users/" + "x" * 600, 422, "user_id"),
        ("GET", "/items?limit=0", 422, "limit"),
        ("GET", "/items?limit=1e9", 422, "limit"),
        ("GET", "/items?q=" + "x" * 300, 422, "q"),
        ("GET", "/users?limit=-1", 422, "limit"),
        ("GET", "/page/..%2fapp.py", 404, "Not Found"),
        ("GET", "/page/%00", 404, "Not Found"),
    ],
)
def test_bad_paths_methods_and_parameters(
    method: str, path: str, status: int, message: str, port: int
):
    found, answer = send(port, method, path)
    assert found == status, answer
    assert message in answer["error"]


@pytest.mark.parametrize(
    "head",
    [
        b"POST /recommend HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5",
        b"POST /recommend HTTP/1.1\r\nHost: localhost\r\nContent-Length: many",
        b"POST /recommend HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2",
        b"POST /recommend HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: none of it",
        b"GET /items HTTP/1.1\r\nHost: localhost\r\nX-Request-ID: a\x00b",
        b"nonsense",
        b"\x16\x03\x01\x02\x00\x01\x00",
    ],
)
def test_invalid_http_is_refused(head: bytes, port: int):
    answer = send_raw(port, head + b"\r\n\r\n{}")
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b'{"error": "this is not a valid HTTP request"}' in answer


def test_clients_that_disconnect_in_the_middle_do_no_harm(port: int):
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(
                b"POST /recommend HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"
            )


def test_a_bundle_that_cannot_be_loaded_is_reported(tmp_path: Path):
    folder = tmp_path / "run"
    Recommender.fit("demo", "popularity").save(folder)
    with serving(folder) as address:
        port = urlsplit(address).port or 0
        next(folder.glob("scorer-*")).unlink()
        manifest = json.loads((folder / "bundle.json").read_text())
        (folder / "bundle.json").write_text(json.dumps({**manifest, "library": "0.0"}))
        status, answer = send(port, "POST", "/admin/reload")
        assert status == 422
        assert "changed since it was written" in answer["error"]
        assert send(port, "GET", "/items?limit=1")[0] == 200
