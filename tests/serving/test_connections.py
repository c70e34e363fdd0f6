"""Limits and deadlines of connections, on real sockets."""

import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import uvicorn
from benchmarks.measure import peak_memory_mb

from mgformer.recommend.recommender import Recommender
from mgformer.serving import app
from mgformer.serving.limits import ConnectionLimits
from mgformer.serving.security import SECURITY_HEADERS
from tests.serving.running import PATIENCE, eventually, serving

HEAD = b"POST /recommend HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("connections") / "run"
    Recommender.fit("demo", "popularity").save(folder)
    return folder


@contextmanager
def limited(folder: Path, **limits: Any) -> Iterator[int]:
    """Run the service with limits, and check in the end that it still answers."""
    with serving(folder, connections=ConnectionLimits(**limits)) as address:
        port = urlsplit(address).port or 0
        yield port
        assert b"200 OK" in ask(port, GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)


def read_all(connection: socket.socket) -> bytes:
    received = b""
    try:
        while part := connection.recv(1 << 16):
            received += part
    except ConnectionResetError:
        pass
    return received


def ask(port: int, request: bytes) -> bytes:
    """Return everything the service sends until it closes the connection."""
    with connect(port) as connection:
        connection.sendall(request)
        return read_all(connection)


def assert_refused(answer: bytes, status: int, message: str) -> None:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status), answer
    assert message in json.loads(body)["error"]
    for name, value in SECURITY_HEADERS.items():
        assert f"{name}: {value}".encode() in head


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (HEAD + b"X-Long: " + b"x" * 2_000, "exceed 1,000 bytes"),  # and never complete
        (HEAD + b"X-Long: " + b"x" * 2_000 + b"\r\n\r\n", "exceed 1,000 bytes"),
        (b"GET /" + b"x" * 2_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", "exceed 1,000 bytes"),
        (b"\r\n" * 1_000, "exceed 1,000 bytes"),
        (HEAD + b"A: b\r\n" * 20 + b"\r\n", "more than 10 headers"),
    ],
)
def test_headers_are_limited(request_: bytes, message: str, folder: Path):
    with limited(folder, head_bytes=1_000, headers=10) as port:
        assert_refused(ask(port, request_), 431, message)


# Headers may also follow a body that is sent in chunks.
@pytest.mark.parametrize("start", [HEAD, HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\n"])
def test_headers_that_arrive_in_parts_are_limited(start: bytes, folder: Path):
    with limited(folder, head_bytes=1_000) as port, connect(port) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(start + b"X-Long: ")
        for _ in range(50):
            connection.sendall(b"x" * 50)
            time.sleep(0.001)
        assert_refused(read_all(connection), 431, "exceed 1,000 bytes")


def test_unfinished_headers_of_many_megabytes_take_no_memory(folder: Path):
    many, size = 20, 8_000_000
    with limited(folder) as port:

        def send() -> None:
            with connect(port) as connection:
                try:
                    connection.sendall(HEAD + b"X-Long: ")
                    for _ in range(size // 100_000):
                        connection.sendall(b"x" * 100_000)
                except OSError:
                    return  # the service has closed the connection
                read_all(connection)

        def send_all() -> None:
            threads = [threading.Thread(target=send) for _ in range(many)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

        assert peak_memory_mb(send_all) < many * size / 1e6 / 4


@pytest.mark.parametrize(
    ("sent", "limits", "message"),
    [
        (b"", {"head_seconds": 0.1}, "the headers took more than 0.1 seconds"),
        (HEAD, {"head_seconds": 0.1}, "the headers took more than 0.1 seconds"),
        (
            HEAD + b"Content-Length: 10\r\n\r\n{",
            {"body_seconds": 0.1},
            "the body took more than 0.1 seconds",
        ),
    ],
)
def test_slow_clients_are_closed(sent: bytes, limits: dict[str, float], message: str, folder: Path):
    with limited(folder, **limits) as port, ExitStack() as stack:
        slow = [stack.enter_context(connect(port)) for _ in range(30)]
        for connection in slow:
            connection.sendall(sent)
        for connection in slow:
            assert_refused(read_all(connection), 408, message)


def test_a_client_that_sends_a_byte_now_and_then_is_closed(folder: Path):
    with limited(folder, head_seconds=0.3) as port, connect(port) as connection:
        connection.sendall(GET)
        assert b"200 OK" in connection.recv(1 << 16)
        ended = False
        for byte in (HEAD + b"X: y\r\n" * 10_000)[:10_000]:
            try:
                connection.sendall(bytes([byte]))
            except OSError:
                ended = True
                break
            time.sleep(0.02)
        assert ended


def test_a_client_that_does_not_read_is_closed(folder: Path):
    server: list[uvicorn.Server] = []
    limits = ConnectionLimits(send_seconds=0.1)
    with serving(folder, connections=limits, server=server) as address, socket.socket() as lazy:
        lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        lazy.connect(("127.0.0.1", urlsplit(address).port))
        state = server[0].server_state

        def send() -> None:
            request = GET.replace(b"/healthz", b"/openapi.json")
            try:
                while True:
                    lazy.sendall(request)
            except OSError:
                pass

        sender = threading.Thread(target=send)
        sender.start()
        eventually(lambda: state.total_requests > 0)
        eventually(lambda: not state.connections)
        sender.join()


def test_an_idle_connection_is_closed(folder: Path):
    with serving(folder, keep_alive=1) as address, connect(urlsplit(address).port or 0) as idle:
        idle.sendall(GET)
        assert read_all(idle).startswith(b"HTTP/1.1 200 ")


def test_when_full_the_connection_that_waits_longest_makes_room(folder: Path):
    with limited(folder, connections=3) as port, ExitStack() as stack:
        idle = [stack.enter_context(connect(port)) for _ in range(10)]
        for connection in idle[:-3]:
            assert read_all(connection) == b""
        idle[-1].sendall(GET)
        assert b"200 OK" in idle[-1].recv(1 << 16)


def test_when_all_connections_are_busy_a_new_one_is_refused(folder: Path):
    with limited(folder, connections=2) as port, ExitStack() as stack:
        busy = [stack.enter_context(connect(port)) for _ in range(2)]
        for connection in busy:
            connection.sendall(HEAD + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n")
            assert b"100 Continue" in connection.recv(1 << 16)  # it waits for the body
        with connect(port) as connection:
            assert_refused(read_all(connection), 503, "too many connections")
        busy[0].sendall(b"{}")
        assert b"HTTP/1.1 422 " in busy[0].recv(1 << 16)


def test_pipelined_requests_are_limited(folder: Path):
    with limited(folder, pipelined=5) as port:
        assert ask(port, GET * 4_000).count(b"200 OK") <= 6
        with connect(port) as connection:
            connection.sendall(GET * 5)
            received = b""
            while received.count(b"200 OK") < 5:
                received += connection.recv(1 << 16)


def test_nonsense_after_a_request_does_not_mix_with_its_answer(folder: Path):
    with limited(folder) as port:
        assert ask(port, GET + b"nonsense\r\n\r\n").count(b"HTTP/1.1 ") == 1


def test_running_requests_finish_when_the_service_stops(folder: Path, monkeypatch):
    find, begun, go_on = app.find_items, threading.Event(), threading.Event()

    def slow(*arguments: Any) -> Any:
        begun.set()
        go_on.wait(PATIENCE)
        return find(*arguments)

    monkeypatch.setattr(app, "find_items", slow)
    server: list[uvicorn.Server] = []
    with serving(folder, server=server) as address:
        port = urlsplit(address).port or 0
        idle = connect(port)
        running = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        running.request("GET", "/items?limit=3")
        assert begun.wait(PATIENCE)
        server[0].should_exit = True
        assert read_all(idle) == b""  # closed: it has no request

        def is_refused() -> bool:
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", port)) != 0

        eventually(is_refused)
        go_on.set()
        answer = running.getresponse()
        assert answer.status == 200
        assert len(json.loads(answer.read())) == 3
        # The answer says that it is the last one (newer releases of uvicorn), or the server closes.
        assert answer.headers["connection"] == "close" or running.sock.recv(1) == b""
        running.close()
        idle.close()


def test_the_time_to_stop_is_limited(folder: Path):
    server: list[uvicorn.Server] = []
    with serving(folder, server=server, drain=0.2) as address:
        stuck = connect(urlsplit(address).port or 0)
        stuck.sendall(HEAD + b"Content-Length: 10\r\n\r\n{")
        eventually(lambda: server[0].server_state.tasks)
    # The service has stopped, although the body has not arrived.
    stuck.close()
