"""Fail or end the process at the n-th operation that changes files below a folder.

Python reports every `open`, rename, removal and new folder to audit hooks before it happens, and a
hook may raise. So no code has to cooperate: whatever writes below the folder is seen. Only `fsync`
is not reported, and is replaced. Libraries in Rust and C++ write drafts without Python: there the
kernel itself fails the write, by a limit on the size of files (`RLIMIT_FSIZE`).
"""

import os
import resource
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
DRAFTED = "write"
"""The operation by which a library fills a draft; it is failed by the kernel."""


class Operation(NamedTuple):
    """What is about to happen."""

    kind: str
    """open, rename, remove, mkdir, rmdir, fsync or write."""
    path: str
    target: str = ""
    """The new name in a rename."""


See = Callable[[Operation], None]
_watched: tuple[str, See] | None = None
_installed = False


@contextmanager
def watching(folder: Path, see: See) -> Iterator[None]:
    """Call `see` before each operation that changes something below a folder."""
    global _watched, _installed
    if not _installed:
        sys.addaudithook(_audit)
        _installed = True
    _watched, before = (str(folder), see), os.fsync
    os.fsync = _watched_fsync  # type: ignore[assignment]
    try:
        yield
    finally:
        _watched, os.fsync = None, before


@contextmanager
def unsynced() -> Iterator[None]:
    """Do not wait for the disk: what a power cut may leave is computed, not tried."""
    before, os.fsync = os.fsync, lambda fd: None
    try:
        yield
    finally:
        os.fsync = before


def operations_of(folder: Path, act: Callable[[], object]) -> list[Operation]:
    """Return the operations of an act."""
    found: list[Operation] = []
    with watching(folder, found.append):
        act()
    return found


@contextmanager
def failing(folder: Path, number: int, code: int) -> Iterator[None]:
    """Let the operation of this number fail with an error of the system."""
    count = iter(range(number + 1))

    def see(operation: Operation) -> None:
        _lift()
        if next(count, None) != number:
            return
        if operation.kind == DRAFTED:
            _limit(signal.SIG_IGN)
        else:
            raise OSError(code, os.strerror(code), operation.path)

    try:
        with watching(folder, see):
            yield
    finally:
        _lift()


@contextmanager
def killed(folder: Path, number: int) -> Iterator[None]:
    """End the process before the operation of this number, or while a draft is written."""
    count = iter(range(number + 1))

    def see(operation: Operation) -> None:
        if next(count, None) != number:
            return
        if operation.kind == DRAFTED:
            _limit(signal.SIG_DFL)
        else:
            os.kill(os.getpid(), signal.SIGKILL)

    with watching(folder, see):
        yield


def _limit(handler: signal.Handlers) -> None:
    """Let every file end after some bytes: with SIG_DFL, the kernel ends the process there."""
    signal.signal(signal.SIGXFSZ, handler)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def _lift() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))


def _audit(event: str, arguments: tuple[object, ...]) -> None:
    if _watched is None:
        return
    if event == "open":
        path, _, flags = arguments
        if isinstance(flags, int) and flags & WRITING:
            _report("open", path)
    elif event in ("os.rename", "os.link"):
        _report("rename", arguments[0], arguments[1])
    elif event in ("os.remove", "os.rmdir"):
        _report(event.removeprefix("os."), _absolute(arguments[0], arguments[1]))
    elif event == "os.mkdir":
        _report("mkdir", arguments[0])
        if "/.drafts-" in str(arguments[0]):
            _report(DRAFTED, arguments[0])


def _absolute(path: object, folder: object) -> object:
    """Return a path that may be relative to an open folder, as `shutil.rmtree` gives it."""
    if isinstance(folder, int) and folder >= 0:
        return Path(os.readlink(f"/proc/self/fd/{folder}"), str(path))
    return path


def _watched_fsync(descriptor: int) -> None:
    _report("fsync", os.readlink(f"/proc/self/fd/{descriptor}"))


def _report(kind: str, path: object, target: object = "") -> None:
    if _watched is None or not isinstance(path, str | os.PathLike | bytes):
        return
    folder, see = _watched
    if os.path.abspath(os.fsdecode(path)).startswith(folder):
        see(Operation(kind, os.fsdecode(path), str(target)))
