"""What a disk may hold after a power cut: only what was synced is sure.

The content of a file is sure once it is synced. A new name, a rename or a removal is sure once its
folder is synced. What is not sure may have happened or not: every prefix of the changes that are
still open is tried, and random subsets of them. Content that was not synced is empty or cut short.
"""

import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.faults.injection import Operation, watching

Files = dict[str, bytes | None]
"""Path below the folder → content; None for a folder."""


class Disk:
    """Records the operations of an act, with the contents at that moment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sure: Files = self._contents()
        self.moments: list[tuple[Files, list[tuple[str, bytes | None, bool]]]] = []
        self._open: list[tuple[str, bytes | None, bool]] = []
        """Changes of names that are not sure: path, content, and whether it is removed."""
        self._synced: dict[tuple[int, int], bytes] = {}

    def record(self, act: Callable[[], object]) -> None:
        """Run an act and remember what was sure before each of its operations, and at the end."""
        with watching(self.folder, self._see):
            act()
        self._remember()

    def states(self, rng: random.Random, subsets: int = 3) -> Iterator[Files]:
        """Return each state that a power cut may leave."""
        seen = set()
        for sure, still_open in self.moments:
            chosen = [list(range(length)) for length in range(len(still_open) + 1)]
            chosen += [
                [n for n in range(len(still_open)) if rng.random() < 0.5] for _ in range(subsets)
            ]
            for numbers in chosen:
                state = dict(sure)
                for number in numbers:
                    path, content, removed = still_open[number]
                    if removed:
                        state.pop(path, None)
                    else:
                        state[path] = content
                key = hash(frozenset(state.items()))
                if key not in seen:
                    seen.add(key)
                    yield state

    def _contents(self) -> Files:
        return {
            str(path.relative_to(self.folder)): path.read_bytes() if path.is_file() else None
            for path in self.folder.rglob("*")
        }

    def _remember(self) -> None:
        self.moments.append((dict(self.sure), list(self._open)))

    def _see(self, operation: Operation) -> None:
        self._remember()
        path = os.path.relpath(operation.path, self.folder)
        if operation.kind == "fsync":
            if os.path.isdir(operation.path):
                self._sync_folder("" if path == "." else path)
            else:
                self._synced[_identity(operation.path)] = Path(operation.path).read_bytes()
                if path in self.sure:  # written in place
                    self.sure[path] = Path(operation.path).read_bytes()
        elif operation.kind == "rename":
            written = Path(operation.path).read_bytes()
            content = self._synced.get(_identity(operation.path), written[: len(written) // 2])
            self._open.append((os.path.relpath(operation.target, self.folder), content, False))
        elif operation.kind in ("remove", "rmdir"):
            self._open.append((path, None, True))
        elif operation.kind == "mkdir":
            self._open.append((path, None, False))

    def _sync_folder(self, folder: str) -> None:
        for change in [c for c in self._open if os.path.dirname(c[0]) == folder]:
            path, content, removed = change
            if removed:
                self.sure.pop(path, None)
            else:
                self.sure[path] = content
            self._open.remove(change)


def put(state: Files, folder: Path) -> None:
    """Make a folder hold a state. A file without its folder is lost."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for path in sorted(state):
        content, place = state[path], folder / path
        if not place.parent.is_dir():
            continue
        if content is None:
            place.mkdir(exist_ok=True)
        else:
            place.write_bytes(content)


def _identity(path: str) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_dev, status.st_ino
