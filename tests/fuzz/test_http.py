"""Damaged HTTP requests on real sockets: no status of 500 or more, no log of an error, no end.

The run is short. Set MGFORMER_FUZZ_SECONDS for a longer one.
"""

import json
import logging
import random
import re
import secrets
import socket
import time
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from mgformer.recommend.recommender import Recommender
from mgformer.serving.limits import ConnectionLimits, Limits
from tests.fuzz.conftest import SECONDS as LONG_SECONDS
from tests.fuzz.conftest import Fuzz
from tests.serving.running import PATIENCE, serving

SECONDS = LONG_SECONDS or 8
STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) [^\r\n]*\r\n")
USER, ITEM = "bella-787", "jazz-03"
BODIES = (
    {"user": USER, "k": 3},
    {"history": [ITEM, "pop-01"], "k": 2, "explain": True},
    {"history": [{"item": ITEM, "time": 1.5}], "candidates": [ITEM], "exclude": ["x"]},
    {"users": [USER, USER], "k": 2, "exclude_seen": False},
    {"item": ITEM, "k": 2},
    {"user": USER, "history": [ITEM]},
)
PATHS = (
    *("/recommend", "/recommend/batch", "/similar", "/admin/reload", "/items?q=ja&limit=3"),
    *("/users?q=b&limit=3", f"/users/{USER}?limit=2", "/model", "/metrics", "/healthz"),
    *("/readyz", "/", "/page/app.js", "/openapi.json", "/nothing"),
)
HEADERS = (
    *("Connection: close", "Connection: upgrade", "Upgrade: websocket", "Upgrade: h2c"),
    *("Transfer-Encoding: chunked", "Expect: 100-continue", "X-Request-ID: a b", "Range: bytes=5-"),
    *("Origin: http://evil.example", "Host: evil.example", "X-API-Key: \xff", "Content-Length: 3"),
    *("If-None-Match: *", "Accept-Encoding: gzip", "Content-Type: text/plain", "Forwarded: for=x"),
)
TOKENS = (
    *(b"\r\n", b"\n", b"\x00", b"\xff", b"%00", b"%2e%2e/", b"\xe2\x80\xa8", b"{", b"[" * 200),
    *(b'"', b"1e999", b"NaN", b"-1", b"9" * 50, b" ", b":", b"HTTP/1.0", b"\\ud800", b"null"),
)


def build(rng: random.Random) -> bytes:
    """Return a request that is valid, or nearly so."""
    method = rng.choice(["GET", "POST", "POST", "POST", "HEAD", "OPTIONS", "DELETE", "CONNECT"])
    body = b"" if method in ("GET", "HEAD") else json.dumps(rng.choice(BODIES)).encode()
    path = rng.choice(PATHS[:4] if method == "POST" else PATHS)
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json"]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    lines += rng.sample(HEADERS, rng.choice([0, 0, 1, 2]))
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


def damage(rng: random.Random, request: bytes) -> bytes:
    """Return a request with some bytes changed, cut, repeated or inserted."""
    for _ in range(rng.choice([0, 1, 1, 2, 4])):
        at = rng.randrange(len(request) + 1)
        end = min(len(request), at + rng.randrange(1, 20))
        request = rng.choice(
            [
                request[:at] + rng.choice(TOKENS) + request[at:],
                request[:at] + rng.choice(TOKENS) + request[end:],
                request[:at] + bytes([rng.randrange(256)]) + request[at + 1 :],
                request[:at] + request[end:],
                request[:end] + request[at:],
                request[:at] or b"x",
            ]
        )
    return request


def exchange(port: int, rng: random.Random, request: bytes) -> bytes:
    """Send a request, sometimes in two parts, and return what comes before the connection ends."""
    received = b""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
        try:
            cut = rng.choice([len(request), rng.randrange(len(request) + 1)])
            connection.sendall(request[:cut])
            connection.sendall(request[cut:])
            if rng.random() < 0.1:
                return b""  # a client that goes away
            connection.shutdown(socket.SHUT_WR)
            while part := connection.recv(1 << 16):
                received += part
        except OSError:
            pass  # the service has closed the connection while the request was sent
    return received


def check(request: bytes, answer: bytes) -> int:
    """Check what came back: a status below 500, and errors as one line of JSON."""
    found = STATUS.match(answer)
    assert found, (request, answer)
    status = int(found[1])
    assert status < 500, (request, answer)
    head, _, body = answer.partition(b"\r\n\r\n")
    # The answer to HEAD has no body: what follows it answers what follows in the request.
    is_head = request.lstrip().startswith(b"HEAD")
    if status >= 400 and body and not is_head and b"transfer-encoding" not in head.lower():
        length = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
        assert length, (request, answer)
        error = json.loads(body[: int(length[1])])["error"]
        assert len(error.splitlines()) == 1, (request, error)
    return status


def test_damaged_requests(tmp_path: Path, caplog: pytest.LogCaptureFixture, fuzz: Fuzz) -> None:
    folder = tmp_path / "run"
    Recommender.fit("demo", "ials").save(folder)
    rng, seen = random.Random(secrets.randbits(64) if LONG_SECONDS else 0), Counter[int]()
    limits = ConnectionLimits(head_bytes=2_000, head_seconds=5.0, body_seconds=5.0)
    end = time.monotonic() + SECONDS
    with (
        serving(folder, connections=limits, limits=Limits(body_bytes=5_000)) as address,
        caplog.at_level(logging.ERROR),
    ):
        port = urlsplit(address).port or 0
        while time.monotonic() < end or sum(seen.values()) < 50:
            request = damage(rng, build(rng))
            answer = exchange(port, rng, request)
            seen[check(request, answer) if answer else 0] += 1
            fuzz.count(bool(answer))  # nothing is checked if the connection was just closed
            assert not [r for r in caplog.records if r.levelno >= logging.ERROR], request
        plain = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
            connection.sendall(plain)
            assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
    # The requests are not all refused by the parser: some are right, some wrong in content.
    assert {200, 400, 422} <= set(seen)
