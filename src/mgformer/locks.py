"""Keep a second writer out of a folder, or away from a file, until the first one ends.

The system keeps the lock for an open file, so it ends with its process, however that ends. Readers
need no lock. Windows and some network file systems have no such locks: there, writers are not kept
apart, and only the rules of `files` hold.
"""

import errno
import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mgformer.errors import BusyError
from mgformer.files import make_folder

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

NAME = ".lock"
NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}
logger = logging.getLogger("mgformer")
_own = threading.local()


@contextmanager
def locked(folder: Path | None) -> Iterator[bool]:
    """Own a folder while the block runs; make it if it is missing. Without a folder, do nothing.

    A second writer gets a BusyError that names the process. A thread may lock its folder again.
    Yields whether other writers are kept out: not every system has locks.
    """
    if folder is None:
        yield False
        return
    missing = not folder.exists()
    make_folder(folder)
    try:
        with _holding(folder / NAME, folder) as alone:
            yield alone
    finally:
        if missing:
            with suppress(OSError):  # it holds something now
                folder.rmdir()


@contextmanager
def locked_file(path: Path) -> Iterator[None]:
    """Own a file that is written in several steps, while the block runs."""
    with _holding(path.with_name(f".{path.name}{NAME}"), path):
        yield


@contextmanager
def _holding(lock: Path, what: Path) -> Iterator[bool]:
    held: dict[Path, bool] = _own.__dict__.setdefault("held", {})
    key = lock.parent.resolve() / lock.name
    if fcntl is None or key in held:
        yield held.get(key, False)
        return
    descriptor, alone = _acquire(lock, what)
    held[key] = alone
    try:
        yield alone
    finally:
        del held[key]
        with suppress(OSError):
            os.unlink(lock)  # before the lock ends: afterwards it may be another process's
        os.close(descriptor)


@contextmanager
def waiting_for(descriptor: int) -> Iterator[None]:
    """Hold the lock of an open file while the block runs; wait for it as long as that takes."""
    if fcntl is None:
        yield
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        yield
        return
    try:
        yield
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)


def _acquire(lock: Path, what: Path) -> tuple[int, bool]:
    """Return the open lock file, and whether it keeps others out."""
    while True:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if is_at(descriptor, lock):
                with suppress(OSError):  # the lock holds without the number of the process too
                    os.truncate(descriptor, 0)
                    os.write(descriptor, f"{os.getpid()}\n".encode())
                return descriptor, True
            os.close(descriptor)  # the holder before has removed this file; make a new one
        except BlockingIOError:
            holder = _holder(descriptor)
            os.close(descriptor)
            raise BusyError(
                f"{what}: process {holder} is writing there; wait until it ends, or choose another"
                " --out"
            ) from None
        except OSError as error:
            if error.errno in NO_LOCKS:
                logger.warning("%s: this file system has no locks; use one writer at a time", what)
                return descriptor, False
            os.close(descriptor)
            raise


def is_at(descriptor: int, path: Path) -> bool:
    """Whether the open file is still the one of this name."""
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(descriptor), path.stat())
    return False


def _holder(descriptor: int) -> str:
    """Return the number of the process that holds a lock."""
    for _ in range(100):  # the process may have the lock, and not have written its number yet
        if text := os.pread(descriptor, 20, 0).decode("ascii", "replace").strip():
            return text
        time.sleep(0.01)
    return "unknown"
