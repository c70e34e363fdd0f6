"""A local file server with configurable faults, for tests of downloads."""

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class FileServer:
    """The files to serve, the faults to show, and the requests received."""

    address: str
    files: dict[str, bytes] = field(default_factory=dict)
    cuts: list[int] = field(default_factory=list)
    """Bodies to cut short, first request first: bytes to send before the connection is closed."""
    failures: list[int] = field(default_factory=list)
    """Status codes to answer with before any file is served."""
    redirect: str | None = None
    """Where every request is redirected to."""
    knows_ranges: bool = True
    told_range: str | None = None
    """Sent instead of the true range."""
    chunked: bool = False
    """Whether bodies are sent in chunks, without a length."""
    tag: str = "strong"
    """Identification of files: "strong" or "weak" ETag, "date", or "" for none."""
    requests: list[tuple[str, str | None]] = field(default_factory=list)
    """Path and Range header of each request."""

    def url(self, name: str) -> str:
        return f"{self.address}/{name}"

    def validator(self, content: bytes) -> tuple[str, str] | None:
        digest = hashlib.md5(content).hexdigest()
        known = {
            "strong": ("ETag", f'"{digest}"'),
            "weak": ("ETag", f'W/"{digest}"'),
            "date": ("Last-Modified", f"Thu, 01 Jan 1970 00:00:{int(digest, 16) % 60:02} GMT"),
        }
        return known.get(self.tag)


@contextmanager
def file_server() -> Iterator[FileServer]:
    """Serve files on a free port of 127.0.0.1."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = self.headers["Range"]
            served.requests.append((self.path, asked))
            if served.failures:
                return self.send_error(served.failures.pop(0))
            if served.redirect:
                self.send_response(302)
                self.send_header("Location", served.redirect)
                self.send_header("Content-Length", "0")
                return self.end_headers()
            content = served.files.get(self.path.lstrip("/"))
            if content is None:
                return self.send_error(404)
            validator = served.validator(content)
            start = 0
            unchanged = validator and self.headers["If-Range"] == validator[1]
            if served.knows_ranges and asked and unchanged:
                start = int(asked.removeprefix("bytes=").removesuffix("-"))
                if start >= len(content):
                    return self.send_error(416)
                self.send_response(206)
                true_range = f"bytes {start}-{len(content) - 1}/{len(content)}"
                told = true_range if served.told_range is None else served.told_range
                self.send_header("Content-Range", told)
            else:
                self.send_response(200)
            if validator:
                self.send_header(*validator)
            body = content[start:]
            if served.chunked:
                self.send_header("Transfer-Encoding", "chunked")
                body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
            else:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: served.cuts.pop(0)] if served.cuts else body)
            return None

        def log_message(self, format: str, *args: object) -> None:
            """Stay silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    served = FileServer(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
