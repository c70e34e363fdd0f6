"""Start the service as a process, and send requests with little overhead over open connections.

`ask_in_turn` waits for each answer. `load` either keeps all connections busy (closed loop) or sends
requests on a schedule (open loop). In the open loop, latency counts from the time a request was
due, so a service that stalls gets no discount.
"""

import asyncio
import json
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

HOST = "127.0.0.1"
LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


class Reply(NamedTuple):
    """An answer, and the seconds it took."""

    seconds: float
    status: int
    body: bytes


@contextmanager
def served(folder: Path, *options: str, seconds: float = 60.0) -> Iterator[int]:
    """Run `mgformer serve` for one bundle in a process, and yield its port when it listens."""
    with serving(str(folder), *options, seconds=seconds) as (port, _):
        yield port


@contextmanager
def serving(
    *arguments: str, seconds: float = 60.0
) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """Run `mgformer serve` with arguments, and yield its port and its process."""
    with socket.socket() as free:
        free.bind((HOST, 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "mgformer", "serve", *arguments, "--port", str(port)]
    with tempfile.TemporaryFile() as log, subprocess.Popen(command, stderr=log) as process:
        try:
            for _ in range(int(10 * seconds)):
                with socket.socket() as probe:
                    if probe.connect_ex((HOST, port)) == 0:
                        break
                assert process.poll() is None, "the service did not start"
                time.sleep(0.1)
            yield port, process
        finally:
            process.terminate()


def reloads(port: int) -> int:
    """Return how many bundles the service has loaded after the first ones."""
    (reply,) = ask_in_turn(port, [get("/metrics")])
    loaded = re.findall(rb'mgformer_reloads_total\{[^}]*result="loaded"[^}]*\} (\d+)', reply.body)
    return sum(map(int, loaded))


def get(path: str) -> bytes:
    """Return a request as it goes over the wire."""
    return f"GET {path} HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode()


def post(path: str, content: object = None) -> bytes:
    """Return a request as it goes over the wire."""
    body = b"" if content is None else json.dumps(content).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def ask_in_turn(port: int, requests: Sequence[bytes]) -> list[Reply]:
    """Send requests one after another over one connection."""
    replies = []
    with socket.create_connection((HOST, port), timeout=60) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for request in requests:
            start = time.perf_counter()
            connection.sendall(request)
            received = b""
            while (whole := _parsed(received)) is None:
                part = connection.recv(1 << 20)
                if not part:
                    raise ConnectionError("the service closed the connection")
                received += part
            replies.append(Reply(time.perf_counter() - start, *whole))
    return replies


def load(
    port: int, requests: Sequence[bytes], connections: int, rate: float | None = None
) -> list[Reply]:
    """Send requests over several connections.

    Args:
        port: Port of the service.
        requests: Requests to send, in this order.
        connections: Requests that may be open at a time.
        rate: Requests per second, evenly spaced; None: as fast as they are answered.
    """
    return asyncio.run(_load(port, requests, connections, rate))


async def _load(
    port: int, requests: Sequence[bytes], connections: int, rate: float | None
) -> list[Reply]:
    loop = asyncio.get_running_loop()
    replies: list[Reply] = []
    done = loop.create_future()
    start = loop.time()
    moments = (None if rate is None else start + n / rate for n in range(len(requests)))
    left = zip(moments, requests, strict=True)

    def finish(reply: Reply | Exception) -> None:
        if isinstance(reply, Exception):
            if not done.done():
                done.set_exception(reply)
            return
        replies.append(reply)
        if len(replies) == len(requests) and not done.done():
            done.set_result(None)

    opened = [
        await loop.create_connection(lambda: _Stream(left, finish), HOST, port)
        for _ in range(connections)
    ]
    for _, stream in opened:
        stream.next()
    await done
    for transport, _ in opened:
        transport.close()
    return replies


class _Stream(asyncio.Protocol):
    """A connection that sends the next request once the last one is answered."""

    def __init__(
        self,
        left: Iterator[tuple[float | None, bytes]],
        finish: Callable[[Reply | Exception], None],
    ) -> None:
        self.left, self.finish = left, finish
        self.loop = asyncio.get_running_loop()
        self.received, self.due, self.waiting = b"", 0.0, False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def next(self) -> None:
        following = next(self.left, None)
        if following is None:
            return
        due, request = following
        now = self.loop.time()
        self.due, self.received, self.waiting = now if due is None else due, b"", True
        delay = self.due - now
        if delay > 0:
            self.loop.call_later(delay, self.transport.write, request)
        else:
            self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        self.received += data
        whole = _parsed(self.received)
        if whole is not None:
            self.waiting = False
            self.finish(Reply(self.loop.time() - self.due, *whole))
            self.next()

    def connection_lost(self, error: Exception | None) -> None:
        if self.waiting:
            self.finish(ConnectionError("the service closed the connection"))


def _parsed(received: bytes) -> tuple[int, bytes] | None:
    """Return status and body of an answer; None while it is incomplete."""
    head, end, body = received.partition(b"\r\n\r\n")
    length = LENGTH.search(head)
    if not end or length is None or len(body) < int(length[1]):
        return None
    return int(head[9:12]), body
