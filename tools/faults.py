"""Break writing in every way, many times: python -m tools.faults.

The tests of tests/faults run a short version. This one fails every operation with every error, cuts
the power in every way, kills at least 500 processes and lets two writers race 100 times. It writes
what was tried and what was lost to results/reliability/faults.json.
"""

import random
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path

from tests.faults.checks import cut_power, fail_every, kill_every, race
from tests.faults.injection import unsynced
from tests.faults.scenes import SCENES

from tools.reliability import Row, save_rows

MOST_KILLS = {"save": 80, "checkpoint": 30, "lists": 80, "export": 30, "train": 8}
"""Kills of one scene in a round; 10 of the others, which take long."""
KILLS, RACES = 500, 100
SLOW = ("train",)
"""Each operation of these scenes is failed once, with one error after the other."""


class Losses:
    """Counts what was tried, and how often something was lost."""

    def __init__(self) -> None:
        self.tried = self.lost = 0

    def add(self, name: str, attempt: Callable[[], int]) -> None:
        """Make an attempt, which returns how many faults it made or raises if something is lost."""
        try:
            tried = attempt()
        except Exception:
            traceback.print_exc()
            self.lost, tried = self.lost + 1, 1
        self.tried += tried
        print(f"{name}: {tried:,}; {self.tried:,} in all, {self.lost:,} lost", flush=True)


class Rows(list[Row]):
    """Rows of results/reliability/faults.json, which is written after each of them."""

    def add(self, promise: str, kind: str, found: Losses, note: str = "") -> None:
        """Add what was tried of a promise."""
        test, counts = "tests/faults/test_faults.py", {"tried": found.tried, "lost": found.lost}
        self.append(Row(promise=promise, test=test, kind=kind, note=note, **counts))
        save_rows("faults", self)


def main() -> None:
    rng, rows = random.Random(0), Rows()
    with tempfile.TemporaryDirectory() as folder, unsynced():
        numbers = iter(range(1_000_000))

        def place() -> Path:
            return Path(folder) / str(next(numbers))

        kills = Losses()
        while kills.tried < KILLS:
            for name, scene in SCENES.items():
                most = MOST_KILLS.get(name, 10)
                kills.add(name, lambda s=scene, m=most: kill_every(s, place(), m, rng))  # type: ignore[misc]
        told = "A kill at any operation leaves the old state or the new one, and no drafts"
        rows.add(told, "kills", kills, "of train and tune a sample of their operations")

        failures = Losses()
        for name, scene in SCENES.items():
            thorough = name not in SLOW
            failures.add(
                name,
                lambda s=scene, t=thorough: fail_every(  # type: ignore[misc]
                    s, place(), thorough=t
                ).total(),
            )
        told = "A failed write, sync or rename (ENOSPC, EIO, EPERM) is one line, and loses nothing"
        rows.add(told, "faults", failures, "each operation of train with one error in turn")

        cuts = Losses()
        for name, scene in SCENES.items():
            if name != "train":  # its log is appended to, and is not synced at every epoch
                cuts.add(name, lambda s=scene: cut_power(s, place()))  # type: ignore[misc]
        rows.add(
            "A power cut leaves the old state or the new one", "power cuts", cuts, "without train"
        )

        with_locks, without = Losses(), Losses()
        for _ in range(RACES):
            with_locks.add("race", lambda: min(1, race(place()).total()))
        told = "Two writers in one folder: one writes, the other gets one line with the process"
        rows.add(told, "races", with_locks)
        for _ in range(RACES):
            without.add("no locks", lambda: min(1, race(place(), with_locks=False).total()))
        told = "Two writers without locks never lose the bundle that is current"
        rows.add(told, "races", without)
    sys.exit(any(row.lost for row in rows))


if __name__ == "__main__":
    main()
