"""A log on disk that loses nothing it has accepted.

Lines that arrive while others are written wait and are written together, with one sync for all. So
a slow disk delays an answer, and does not limit how many are given in a second.
"""

import asyncio
import itertools
import logging
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from starlette.exceptions import HTTPException

from mgformer.errors import system_failure
from mgformer.files import HOST
from mgformer.logs import Appending
from mgformer.serving.engine import Overloaded

FILE_BYTES = 64_000_000
"""A file that is larger is followed by a new one. So is a file of another day."""

log = logging.getLogger("mgformer.serving")


class Entry(NamedTuple):
    """Lines that wait, and who waits for them."""

    lines: Sequence[bytes]
    written: "asyncio.Future[None] | None"


class Journal:
    """Files `PREFIX-TIME-HOST-PROCESS-NUMBER.jsonl` to which one process adds lines."""

    _numbers = itertools.count()

    def __init__(
        self, folder: Path, prefix: str, *, most_waiting: int, file_bytes: int = FILE_BYTES
    ) -> None:
        self.folder, self.prefix = folder, prefix
        self.most_waiting, self.file_bytes = most_waiting, file_bytes
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=prefix)
        self._queue: list[Entry] = []
        self._num_waiting = 0
        self._worker: asyncio.Task[None] | None = None  # while the queue is being written
        self._file: Appending | None = None
        self._day = ""

    async def add(self, lines: Sequence[bytes]) -> None:
        """Return when the lines are on the disk. If they cannot be written, none is."""
        written = asyncio.get_running_loop().create_future()
        if not self._enqueue(Entry(lines, written)):
            raise Overloaded
        await written

    def add_later(self, lines: Sequence[bytes]) -> bool:
        """Write lines soon; return whether there is room for them."""
        return self._enqueue(Entry(lines, None))

    def _enqueue(self, entry: Entry) -> bool:
        if self._num_waiting + len(entry.lines) > self.most_waiting:
            return False
        self._queue.append(entry)
        self._num_waiting += len(entry.lines)
        if self._worker is None:
            self._worker = asyncio.get_running_loop().create_task(self._work())
        return True

    async def _work(self) -> None:
        """Write until the queue is empty."""
        loop = asyncio.get_running_loop()
        try:
            while self._queue:
                group, self._queue = self._queue, []
                text = b"".join(line for entry in group for line in entry.lines)
                failure: Exception | None = None
                try:
                    await loop.run_in_executor(self._thread, self._write, text)
                except OSError as error:
                    reason = system_failure(error)
                    log.error("the %s log cannot be written: %s", self.prefix, reason)
                    message = f"the {self.prefix} log cannot be written, so nothing was stored"
                    failure = HTTPException(503, f"{message}; try again", {"Retry-After": "5"})
                self._num_waiting -= sum(len(entry.lines) for entry in group)
                for entry in group:
                    if entry.written is None or entry.written.done():  # the client has gone
                        continue
                    if failure is None:
                        entry.written.set_result(None)
                    else:
                        entry.written.set_exception(failure)
        finally:
            self._worker = None

    def _write(self, text: bytes) -> None:
        file = self._open_file()
        try:
            while not file.add(text):  # `mgformer forget` has rewritten the file
                self._close_file()
                file = self._open_file()
        except OSError:
            if not file.is_usable:
                self._close_file()
            raise

    def _open_file(self) -> Appending:
        """Return the file to write to: a new one if the last is large or of another day."""
        now = time.gmtime()
        day = time.strftime("%Y%m%d", now)
        if self._file is not None and (self._file.size >= self.file_bytes or day != self._day):
            self._close_file()
        if self._file is None:
            moment = time.strftime("%Y%m%d-%H%M%S", now)
            name = f"{self.prefix}-{moment}-{HOST}-{os.getpid()}-{next(self._numbers):06d}.jsonl"
            self._file, self._day = Appending(self.folder / name), day
        return self._file

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    async def close(self) -> None:
        """Write what waits, and close the file."""
        while self._worker is not None:
            await asyncio.wait([self._worker])
        await asyncio.get_running_loop().run_in_executor(self._thread, self._close_file)
        self._thread.shutdown(wait=True)
