"""Read files that may be packed: gzip, Zstandard or zip.

The first bytes of a file tell whether it is packed, whatever its name is. An error of the system,
such as a missing permission, stays an OSError. Damaged content is a DataError.
"""

import errno
import gzip
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO

from mgformer.errors import DataError

Unpack = Callable[[IO[bytes], int, Path], bytes]
_EXTENSIONS = (".gz", ".zst", ".zip")


def plain_name(path: Path) -> str:
    """Return the name of a file in lower case, without an extension that says it is packed."""
    name = path.name.lower()
    return next((name.removesuffix(end) for end in _EXTENSIONS if name.endswith(end)), name)


def is_packed(path: Path) -> bool:
    """Return whether the content of a file is packed."""
    with path.open("rb") as file:
        return _unpacker(file) is not None


def read_bytes(path: Path, count: int = -1) -> bytes:
    """Return the first `count` bytes of a file, or all of them, unpacked."""
    with path.open("rb") as file:
        unpack = _unpacker(file)
        if unpack is None:
            return file.read(count)
        try:
            return unpack(file, count, path)
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


def _unpacker(file: IO[bytes]) -> Unpack | None:
    beginning = file.read(4)
    file.seek(0)
    return next((how for magic, how in _UNPACKERS.items() if beginning.startswith(magic)), None)


def _from_gzip(file: IO[bytes], count: int, path: Path) -> bytes:
    with gzip.GzipFile(fileobj=file) as content:
        return content.read(count)


def _from_zstandard(file: IO[bytes], count: int, path: Path) -> bytes:
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
        return content.read(count)


def _from_zip(file: IO[bytes], count: int, path: Path) -> bytes:
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
            return content.read(count)


_UNPACKERS: dict[bytes, Unpack] = {
    b"\x1f\x8b": _from_gzip,
    b"\x28\xb5\x2f\xfd": _from_zstandard,
    b"PK\x03\x04": _from_zip,
    b"PK\x05\x06": _from_zip,  # an archive without files
}
