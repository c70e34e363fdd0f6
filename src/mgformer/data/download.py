"""Fetch files over HTTP so that a file under its final name is always whole.

Bytes go to `NAME.part` beside the target; what identifies the remote file (its ETag or date, and
its length) goes to `NAME.part.json`, so that a later call resumes the same file and starts over
when the file behind the address has changed.
"""

import contextlib
import hashlib
import http.client
import json
import os
import re
import shutil
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, BinaryIO, Literal

from mgformer.errors import DataError
from mgformer.progress import phase

TIMEOUT = 20.0
"""Seconds to wait for a connection, and for each further block."""
RETRY_PAUSES: tuple[float, ...] = (1.0, 3.0, 10.0)
"""Seconds to wait before each retry; their number is the number of retries."""
_BLOCK = 1 << 18
_PASSING = {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS}


class _Interrupted(Exception):
    """The network failed in a way that may pass."""


def download(url: str, target: Path, sha256: str | None, *, size: int | None = None) -> None:
    """Download `url` to `target`, resuming what an earlier call left behind.

    The length is checked against the server's and against `size`, the content against `sha256`,
    as far as they are known; only then does the file get its name.
    """
    if not url.startswith(("http://", "https://")):
        raise DataError(f"cannot download {url!r}: expected an http:// or https:// address")
    part = target.with_name(target.name + ".part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _transfer_with_retries(url, target, part, size)
        _check(url, part, sha256, size)
        os.replace(part, target)
        _sidecar(part).unlink(missing_ok=True)
    except OSError as error:
        raise DataError(
            f"cannot write {part}: {error.strerror or error}; make room or choose another folder"
        ) from None


def extract_members(archive: Path, wanted: Mapping[str, Path]) -> None:
    """Extract the named members of a zip file, each to its own target.

    Names inside the archive never become paths, and no target appears before all are extracted.
    """
    extracted: dict[Path, Path] = {}
    try:
        with zipfile.ZipFile(archive) as source:
            for member, target in wanted.items():
                extracted[target] = target.with_name(target.name + ".extracting")
                with source.open(member) as content, _durable(extracted[target], "wb") as file:
                    shutil.copyfileobj(content, file)
        for target, whole in extracted.items():
            os.replace(whole, target)
    except KeyError:
        raise DataError(
            f"{archive}: has no {member!r}; expected {', '.join(wanted)}: is it another archive?"
        ) from None
    except zipfile.BadZipFile as error:
        raise DataError(
            f"{archive}: not a whole zip file ({error}); delete it, fetch again"
        ) from None
    finally:
        for leftover in extracted.values():
            leftover.unlink(missing_ok=True)


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _transfer_with_retries(url: str, target: Path, part: Path, size: int | None) -> None:
    for pause in (*RETRY_PAUSES, None):
        try:
            _transfer(url, target.name, part, size)
            return
        except _Interrupted as error:
            if pause is None:
                raise DataError(
                    f"cannot download {url}: {error}; fetch again to resume, "
                    f"or put the file at {target} by hand"
                ) from None
            time.sleep(pause)
        except urllib.error.HTTPError as error:
            error.close()
            raise DataError(
                f"cannot download {url}: the server answered {error.code} {error.reason}; "
                f"put the file at {target} by hand"
            ) from None


def _transfer(url: str, name: str, part: Path, size: int | None) -> None:
    """Bring `part` to its full length, or raise _Interrupted with what came so far kept."""
    memory = _remembered(url, part)
    offset = part.stat().st_size if memory and part.exists() else 0
    if memory and offset and offset == memory.get("length"):
        return
    headers = {"User-Agent": "mgformer", "Accept-Encoding": "identity"}
    if memory and offset:
        headers |= {"Range": f"bytes={offset}-", "If-Range": memory["validator"]}
    with _opened(urllib.request.Request(url, headers=headers), part) as response:
        start, length = _extent(response)
        if start == 0 or start != offset:
            # A new beginning: the file has changed, or the server knows no ranges. Old bytes go
            # first: beside the new note of what they are they would pass for the new file's.
            _forget(part)
        if start not in (0, offset):
            raise _Interrupted(f"the server did not send the bytes from {offset} asked for")
        _remember(url, part, response, length)
        with (
            phase(f"downloading {name}", length or size) as advance,
            _durable(part, "ab" if start else "wb") as file,
        ):
            advance(start)
            received = start
            while block := _block(response):
                file.write(block)
                received += len(block)
                advance(len(block))
    if length is not None and received != length:
        raise _Interrupted(f"the connection ended after {received} of {length} bytes")


@contextlib.contextmanager
def _opened(request: urllib.request.Request, part: Path) -> Iterator[http.client.HTTPResponse]:
    try:
        response = _opener().open(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            _forget(part)
        elif error.code < 500 and error.code not in _PASSING:
            raise
        error.close()
        raise _Interrupted(f"the server answered {error.code} {error.reason}") from None
    except (OSError, http.client.HTTPException) as error:
        raise _Interrupted(_reason(error)) from None
    with response:
        yield response


def _block(response: http.client.HTTPResponse) -> bytes:
    try:
        return response.read(_BLOCK)
    except (OSError, http.client.HTTPException) as error:
        raise _Interrupted(_reason(error)) from None


def _reason(error: BaseException) -> str:
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    return str(cause) or type(cause).__name__


def _opener() -> urllib.request.OpenerDirector:
    """Return an opener that also after a redirect speaks nothing but HTTP and HTTPS."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.UnknownHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPRedirectHandler(),
        urllib.request.HTTPErrorProcessor(),
    ):
        opener.add_handler(handler)
    return opener


def _extent(response: http.client.HTTPResponse) -> tuple[int, int | None]:
    """Return where the body begins in the file (-1: unclear) and the file's length, if told."""
    if response.status == HTTPStatus.PARTIAL_CONTENT:
        told = re.match(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", ""))
        if not told:
            return -1, None
        return int(told[1]), None if told[2] == "*" else int(told[2])
    length = response.headers.get("Content-Length")
    return 0, int(length) if length else None


def _check(url: str, part: Path, sha256: str | None, size: int | None) -> None:
    got_size = part.stat().st_size
    if size is not None and got_size != size:
        _forget(part)
        raise DataError(f"{url}: got {got_size} bytes, expected {size}: the file there has changed")
    if sha256 is not None and (got := sha256_of(part)) != sha256:
        _forget(part)
        raise DataError(
            f"{url}: got sha256 {got}, expected {sha256}; fetch again, unless the file has changed"
        )


@contextlib.contextmanager
def _durable(path: Path, mode: Literal["ab", "wb"]) -> Iterator[BinaryIO]:
    """Open a file whose bytes are on the disk when the block ends."""
    with path.open(mode) as file:
        try:
            yield file
        finally:
            file.flush()
            os.fsync(file.fileno())


def _sidecar(part: Path) -> Path:
    return part.with_name(part.name + ".json")


def _remember(url: str, part: Path, response: http.client.HTTPResponse, length: int | None) -> None:
    etag = response.headers.get("ETag", "")
    # A weak tag may stay the same while bytes change, so it may not be used to resume.
    strong = "" if etag.startswith("W/") else etag
    validator = strong or response.headers.get("Last-Modified", "")
    memory = {"url": url, "validator": validator, "length": length}
    _sidecar(part).write_text(json.dumps(memory), encoding="utf-8")


def _remembered(url: str, part: Path) -> dict[str, Any] | None:
    """Return what is known of the file `part` was begun from, or None if it cannot be resumed."""
    try:
        memory = json.loads(_sidecar(part).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    usable = isinstance(memory, dict) and memory.get("url") == url and memory.get("validator")
    return memory if usable else None


def _forget(part: Path) -> None:
    part.unlink(missing_ok=True)
    _sidecar(part).unlink(missing_ok=True)
