"""Read files that may be packed: gzip, Zstandard or zip.

The first bytes of a file tell whether it is packed, whatever its name is. An error of the system,
such as a missing permission, stays an OSError. Damaged content is a DataError.

A few kilobytes can unpack to more than the memory holds. So content is unpacked piece by piece, and
no further than `most_unpacked` allows.
"""

import errno
import gzip
import io
import os
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Protocol

from mgformer.errors import DataError


class Content(Protocol):
    """What can be read piece by piece."""

    def read(self, size: int = -1, /) -> bytes:
        """Return up to `size` bytes."""


Take = Callable[[Content], bytes]
Unpack = Callable[[IO[bytes], Take, Path], bytes]
"""Opens the content of a packed file and returns what a reader takes from it."""
RATIO = 200
"""A file that unpacks to more than this many times its size is refused. Text with interactions
unpacks to 3 to 30 times its size."""
ALWAYS_ALLOWED = 1 << 28
"""Bytes that the smallest file may unpack to."""
PIECE = 1 << 20
_EXTENSIONS = (".gz", ".zst", ".zip")


def plain_name(path: Path) -> str:
    """Return the name of a file in lower case, without an extension that says it is packed."""
    name = path.name.lower()
    return next((name.removesuffix(end) for end in _EXTENSIONS if name.endswith(end)), name)


def is_packed(path: Path) -> bool:
    """Return whether the content of a file is packed."""
    with path.open("rb") as file:
        return _unpacker(file) is not None


def most_unpacked(packed: int, gigabytes: float | None = None) -> int:
    """Return how many bytes a file of `packed` bytes may unpack to, by default and at most.

    `gigabytes` is the user's own limit.
    """
    if gigabytes is not None:
        return int(gigabytes * 1e9)
    return min(max(ALWAYS_ALLOWED, RATIO * packed), _memory() // 2)


def too_large(path: Path, most: int) -> DataError:
    """Return the error for a file that unpacks to more than `most` bytes."""
    packed = path.stat().st_size
    return DataError(
        f"{path}: got {packed / 1e6:.3g} MB that unpack to more than {most / 1e9:.3g} GB, expected "
        f"at most {RATIO} times the size of a file and half of the memory; if the file is right, "
        "raise the limit with --set data.max_unpacked=GIGABYTES"
    )


def read_bytes(path: Path, count: int = -1, gigabytes: float | None = None) -> bytes:
    """Return the first `count` bytes of a file, or all of them, unpacked.

    A file that unpacks to more than `gigabytes`, or more than `most_unpacked`, is refused.
    """
    with path.open("rb") as file:
        unpack = _unpacker(file)
        if unpack is None:
            return file.read(count)
        most = most_unpacked(os.fstat(file.fileno()).st_size, gigabytes)

        def take(content: Content) -> bytes:
            if count >= 0:
                return content.read(min(count, most))
            whole = io.BytesIO()
            while piece := content.read(PIECE):
                if whole.write(piece) and whole.tell() > most:
                    raise too_large(path, most)
            return whole.getvalue()

        try:
            return unpack(file, take, path)
        except DataError:
            raise
        # Damage shows in many ways: BadGzipFile is an OSError, and zipfile raises whatever its
        # parts do, such as RuntimeError for a password and NotImplementedError for a method.
        # A place outside the file is EINVAL.
        except Exception as error:
            if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
                raise
            reason = str(error) or type(error).__name__
            raise DataError(
                f"{path}: got packed content that cannot be unpacked ({reason}), expected a "
                "complete file; pack it again, or unpack it first"
            ) from None


def _memory() -> int:
    """Return the bytes of memory of this computer, or 16 GB if the system does not say."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # Windows has no sysconf
        return 16 << 30


def _unpacker(file: IO[bytes]) -> Unpack | None:
    beginning = file.read(4)
    file.seek(0)
    return next((how for magic, how in _UNPACKERS.items() if beginning.startswith(magic)), None)


def _from_gzip(file: IO[bytes], take: Take, path: Path) -> bytes:
    with gzip.GzipFile(fileobj=file) as content:
        return take(content)


def _from_zstandard(file: IO[bytes], take: Take, path: Path) -> bytes:
    try:
        if sys.version_info >= (3, 14):
            from compression import zstd
        else:
            from backports import zstd
    except ImportError:
        raise DataError(
            f"{path}: got Zstandard content, which needs one more package; "
            "run pip install 'mgformer[zstd]', or unpack the file with unzstd"
        ) from None
    with zstd.ZstdFile(file) as content:
        return take(content)


def _from_zip(file: IO[bytes], take: Take, path: Path) -> bytes:
    with zipfile.ZipFile(file) as archive:
        # macOS adds a folder of its own.
        names = [n for n in archive.namelist() if not n.endswith("/") and "__MACOSX" not in n]
        if len(names) != 1:
            listed = ", ".join(map(repr, names[:5])) + (", …" if len(names) > 5 else "")
            raise DataError(
                f"{path}: got a zip archive of {len(names)} files{f' ({listed})' * bool(names)}, "
                "expected one file in it; unpack it and name a file"
            )
        with archive.open(names[0]) as content:
            return take(content)


_UNPACKERS: dict[bytes, Unpack] = {
    b"\x1f\x8b": _from_gzip,
    b"\x28\xb5\x2f\xfd": _from_zstandard,
    b"PK\x03\x04": _from_zip,
    b"PK\x05\x06": _from_zip,  # an archive without files
}
