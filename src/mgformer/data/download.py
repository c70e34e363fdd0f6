"""Download the files of a dataset; a download that breaks off is resumed.

Bytes go to `NAME.part`. `NAME.part.json` keeps the ETag or date of the remote file and its length.
A later call resumes the same file, or starts over if the remote file has changed. A file gets its
final name only when it is complete and checked.
"""

import http.client
import json
import re
import shutil
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any, NoReturn

from mgformer.data.entries import data_home, entry, is_present, local_form
from mgformer.errors import DataError
from mgformer.files import replacing, sha256_of, write_text
from mgformer.progress import phase

TIMEOUT = 20.0
"""Seconds to wait for a connection, and for each block."""
RETRY_PAUSES = (1.0, 3.0, 10.0)
"""Seconds to wait before each retry."""
_BLOCK = 1 << 18
_TEMPORARY = {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS}


class _Interrupted(Exception):
    """The network failed; a retry may succeed."""


def fetch(name: str, pauses: Sequence[float] = RETRY_PAUSES) -> Path:
    """Download the missing files of a dataset and return its folder.

    If the files of one form are there, nothing is written. The demo is generated and has no folder.
    """
    folder = data_home() / name
    if is_present(name):
        return folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(
            f"cannot make {folder}: {error.strerror or error}; set MGFORMER_DATA to a folder you "
            "can write to"
        ) from None
    for file in entry(name).files:
        target = folder / file.name
        if not target.exists():
            download(file.url, target, file.sha256, pauses)
        if file.members:
            extract_members(target, {member: folder / to for member, to in file.members.items()})
    return folder


def verify(name: str) -> dict[str, bool | None]:
    """Return for each local file whether its checksum is the known one; None if none is known.

    A file with another checksum may still hold the same data, for example in another order.
    """
    form = local_form(name)
    folder = data_home() / name
    return {
        file: sha256_of(folder / file) == known if known else None
        for file, known in (form.files if form else {}).items()
    }


def download(
    url: str, target: Path, sha256: str | None, pauses: Sequence[float] = RETRY_PAUSES
) -> None:
    """Download `url` to `target`, resuming an earlier download.

    The length must be the server's, and the checksum must be `sha256` if it is given. Each of
    `pauses` is the time before a retry, in seconds.
    """
    if not url.startswith(("http://", "https://")):
        raise DataError(f"cannot download {url!r}: expected an http:// or https:// address")
    part = target.with_name(target.name + ".part")
    target.parent.mkdir(parents=True, exist_ok=True)
    for pause in (*pauses, None):
        try:
            _transfer(url, target, part)
            break
        except _Interrupted as error:
            if pause is None:
                raise DataError(
                    f"cannot download {url}: {error}; fetch again to resume, "
                    f"or put the file at {target} by hand"
                ) from None
            time.sleep(pause)
    if sha256 and (got := sha256_of(part)) != sha256:
        _forget(part)
        raise DataError(
            f"{url}: got sha256 {got}, expected {sha256}; fetch again, or report that the "
            "file has changed"
        )
    with replacing(target) as draft:
        part.replace(draft)
    _forget(part)


def extract_members(archive: Path, targets: Mapping[str, Path]) -> None:
    """Extract the named members of a zip file, each to its own target.

    Names inside the archive are never used as paths. Targets appear only after all members are
    extracted.
    """
    try:
        with zipfile.ZipFile(archive) as source, ExitStack() as drafts:
            for member, target in targets.items():
                draft = drafts.enter_context(replacing(target))
                with source.open(member) as content, draft.open("wb") as file:
                    shutil.copyfileobj(content, file)
    except KeyError:
        raise DataError(
            f"{archive}: has no {member!r}, expected {', '.join(targets)}; check that it is the "
            "right archive"
        ) from None
    except zipfile.BadZipFile as error:
        raise DataError(
            f"{archive}: not a complete zip file ({error}); delete it and fetch again"
        ) from None


class _RefuseFtp(urllib.request.FTPHandler):
    """Refuses a redirect from HTTP to FTP."""

    def ftp_open(self, req: urllib.request.Request) -> NoReturn:
        raise urllib.error.URLError("the server redirected to FTP")


def _transfer(url: str, target: Path, part: Path) -> None:
    """Complete `part`, or raise _Interrupted and keep the bytes received so far."""
    note = _read_note(url, part)
    offset = part.stat().st_size if note and part.exists() else 0
    if offset and offset == note.get("length"):
        return
    headers = {"User-Agent": "mgformer", "Accept-Encoding": "identity"}
    if offset:
        headers |= {"Range": f"bytes={offset}-", "If-Range": note["validator"]}
    with _network(url, target, part):
        request = urllib.request.Request(url, headers=headers)
        response = urllib.request.build_opener(_RefuseFtp).open(request, timeout=TIMEOUT)
    with response:
        length = response.headers.get("Content-Length")
        if response.status == HTTPStatus.PARTIAL_CONTENT:
            sent = response.headers.get("Content-Range", "")
            match = re.match(rf"bytes {offset}-\d+/(\d+|\*)", sent)
            if not match:
                _forget(part)
                raise _Interrupted(f"the server did not send the bytes from {offset}")
            length = match[1].strip("*")
        else:
            offset = 0  # the file has changed, or the server does not support ranges
        if offset == 0:
            _forget(part)  # or the old bytes would be taken for the new file's
        expected = int(length) if length else None
        # A weak tag can stay the same while bytes change, so it does not allow resuming.
        tags = [response.headers.get(name, "") for name in ("ETag", "Last-Modified")]
        validator = next((tag for tag in tags if tag and not tag.startswith("W/")), "")
        note = {"url": url, "validator": validator, "length": expected}
        write_text(_note_of(part), json.dumps(note))
        with phase(f"downloading {target.name}", expected) as advance, part.open("ab") as file:
            advance(offset)
            while True:
                with _network(url, target, part):
                    block = response.read(_BLOCK)
                if not block:
                    break
                file.write(block)
                offset += len(block)
                advance(len(block))
    if expected is not None and offset != expected:
        raise _Interrupted(f"the connection ended after {offset} of {expected} bytes")


@contextmanager
def _network(url: str, target: Path, part: Path) -> Iterator[None]:
    """Turn errors of the network into _Interrupted, or into DataError if a retry cannot help."""
    try:
        yield
    except urllib.error.HTTPError as error:
        error.close()
        answer = f"the server answered {error.code} {error.reason}"
        if error.code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            _forget(part)
        elif error.code < 500 and error.code not in _TEMPORARY:
            raise DataError(
                f"cannot download {url}: {answer}; put the file at {target} by hand"
            ) from None
        raise _Interrupted(answer) from None
    except (OSError, http.client.HTTPException) as error:
        cause = error.reason if isinstance(error, urllib.error.URLError) else error
        raise _Interrupted(str(cause) or type(cause).__name__) from None


def _note_of(part: Path) -> Path:
    return part.with_name(part.name + ".json")


def _read_note(url: str, part: Path) -> dict[str, Any]:
    """Return what identifies the remote file of `part`; empty if it cannot be resumed."""
    try:
        note = json.loads(_note_of(part).read_text(encoding="utf-8"))
        return note if note["url"] == url and note["validator"] else {}
    except (FileNotFoundError, ValueError, LookupError, TypeError):
        return {}


def _forget(part: Path) -> None:
    for path in (part, _note_of(part)):
        path.unlink(missing_ok=True)
