"""Write files whole or not at all, and check what is read: the only place that does it."""

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CHUNK = 1 << 20


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a draft to write to; it takes the place of `path` when the block ends.

    A crash leaves the old file or the new one, never half of one.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield draft
        with draft.open("rb+") as stream:
            os.fsync(stream.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file in one step."""
    with replacing(path) as draft:
        draft.write_text(text, encoding="utf-8")


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def folder_name(name: str) -> str:
    """Return a name that every file system takes."""
    return re.sub(r"[^\w.]+", "-", name, flags=re.ASCII).strip("-")
