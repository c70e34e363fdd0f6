"""Logs: files that one process adds lines to, and that another may rewrite without some lines.

Both hold the lock of the open file while they write. A rewritten file takes the place of the old
one, so the process that adds lines sees that its file is no longer there, and starts a new one.
Where the system has no such locks, rewrite logs while nobody writes them.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mgformer.files import make_folder, replacing, sync_folder
from mgformer.locks import is_at, waiting_for


class Appending:
    """A new file to which text is added for good, by this process only.

    After `add`, the text survives a power cut. If `add` fails, nothing of the text is left in the
    file, unless even that fails: then `is_usable` is false.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.size, self.is_usable = path, 0, True
        make_folder(path.parent)
        # No other process has this file: it must not exist yet.
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
        self._descriptor = os.open(path, flags, 0o666)
        try:
            sync_folder(path.parent)
        except OSError:
            self.close()
            raise

    def add(self, text: bytes) -> bool:
        """Write and sync a text; an OSError names the file.

        Returns False, and writes nothing, if another process has rewritten or removed the file.
        """
        with waiting_for(self._descriptor):
            if not is_at(self._descriptor, self.path):
                return False
            self._write(text)
        return True

    def _write(self, text: bytes) -> None:
        left = memoryview(text)
        try:
            while left:
                left = left[os.write(self._descriptor, left) :]
            os.fsync(self._descriptor)
        except OSError as error:
            # After a failed sync, nobody knows which blocks are on the disk: even a later sync that
            # succeeds does not say so.
            self.is_usable = bool(left)
            try:
                os.ftruncate(self._descriptor, self.size)
            except OSError:
                self.is_usable = False
            raise OSError(error.errno, os.strerror(error.errno or 0), str(self.path)) from error
        self.size += len(text)

    def close(self) -> None:
        """Close the file, and remove it if nothing was added."""
        os.close(self._descriptor)
        if not self.size:
            with suppress(OSError):
                os.unlink(self.path)


def rewrite(path: Path, keep: Callable[[bytes], bool]) -> int:
    """Leave out the lines of a log that are not to be kept; return how many.

    A log without such lines stays as it is.
    """
    with _open_alone(path) as descriptor:
        with open(descriptor, "rb", closefd=False) as stream:
            unwanted = sum(not keep(line) for line in stream)
        if unwanted:
            with (
                replacing(path) as draft,
                draft.open("wb") as kept,
                path.open("rb") as stream,
            ):
                kept.writelines(line for line in stream if keep(line))
    return unwanted


@contextmanager
def _open_alone(path: Path) -> Iterator[int]:
    """Yield the open file of this name, to which nobody else writes while the block runs."""
    while True:
        descriptor = os.open(path, os.O_RDWR)
        try:
            with waiting_for(descriptor):
                # Else another process has put a new file there while this one waited.
                if is_at(descriptor, path):
                    yield descriptor
                    return
        finally:
            os.close(descriptor)
