"""Faults at every operation of a scene, and what must hold after each."""

import errno
import multiprocessing
import random
import shutil
from collections import Counter
from multiprocessing.context import ForkServerContext
from multiprocessing.synchronize import Barrier
from pathlib import Path

from mgformer import locks
from mgformer.errors import BusyError
from mgformer.runs.bundle_files import load_bundle, save_bundle
from tests.faults.disk import Disk, put
from tests.faults.injection import DRAFTED, Operation, failing, killed, operations_of
from tests.faults.scenes import NEW, OLD, SCENES, Scene, SystemFailed, bundle_of, names_in

CODES = (errno.ENOSPC, errno.EIO, errno.EPERM)
SAVES = 4
"""How often each writer of a race saves."""


def prepare(scene: Scene, place: Path) -> tuple[Path, list[Operation], set[str]]:
    """Return a folder with the old state, the operations of the act, and what it leaves."""
    old, run = place / "old" / "run", place / "run"
    old.parent.mkdir(parents=True)
    scene.before(old)
    start_again(old, run)
    operations = operations_of(run, lambda: scene.act(run))
    assert scene.state(run) == NEW
    return old, operations, names_in(run)


def start_again(old: Path, run: Path) -> None:
    """Make the folder hold the old state."""
    shutil.rmtree(run, ignore_errors=True)
    shutil.copytree(old, run)


def recovers(scene: Scene, run: Path, expected: set[str]) -> None:
    """The folder is whole; writing once more gives the new state and leaves nothing else."""
    assert scene.state(run) in (OLD, NEW)
    scene.act(run)
    assert scene.state(run) == NEW
    assert names_in(run) == expected


def fail_every(
    scene: Scene, place: Path, *, every: int = 1, thorough: bool = False
) -> Counter[str]:
    """Fail each operation of an act, or `every` n-th; if thorough, with each error."""
    old, operations, expected = prepare(scene, place)
    run, counts = place / "run", Counter[str]()
    for number, operation in enumerate(operations):
        if number % every:
            continue
        once = operation.kind == DRAFTED or not thorough
        for code in [CODES[number // every % len(CODES)]] if once else CODES:
            start_again(old, run)
            failed = False
            try:
                with failing(run, number, code):
                    scene.act(run)
            except (OSError, SystemFailed):
                failed = True
            assert failed or scene.state(run) == NEW, (operation, code)
            if operation.kind != "rmdir" and operation.kind != "remove":
                left = [name for name in names_in(run) if name.startswith(".drafts")]
                assert not left, (operation, code)
            recovers(scene, run, expected)
            counts[operation.kind] += 1
    return counts


def cut_power(scene: Scene, place: Path, seed: int = 0) -> int:
    """Check every state that a power cut during an act may leave; return how many there are."""
    old, _, expected = prepare(scene, place)
    run, count = place / "run", 0
    start_again(old, run)
    disk = Disk(run)
    disk.record(lambda: scene.act(run))
    # What the act has reported as done is sure.
    put(disk.sure, run)
    assert scene.state(run) == NEW
    for state in disk.states(random.Random(seed)):
        put(state, run)
        recovers(scene, run, expected)
        count += 1
    return count


def processes() -> ForkServerContext:
    """Return what starts processes with everything imported, and no threads yet."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.faults.checks"])
    return context


def kill_every(
    scene: Scene, place: Path, most: int | None = None, rng: random.Random | None = None
) -> int:
    """Kill a process before each operation of an act, and while it writes each draft."""
    old, operations, expected = prepare(scene, place)
    run, context = place / "run", processes()
    numbers = range(len(operations))
    chosen = (rng or random.Random(0)).sample(numbers, min(most or len(numbers), len(numbers)))
    for number in chosen:
        start_again(old, run)
        process = context.Process(target=_act_killed, args=(scene.name, run, number))
        process.start()
        process.join()
        assert process.exitcode is not None
        assert process.exitcode < 0, f"{scene.name}: {operations[number]} did not end the process"
        recovers(scene, run, expected)
    return len(chosen)


def _act_killed(name: str, run: Path, number: int) -> None:
    with killed(run, number):
        SCENES[name].act(run)


def race(place: Path, *, with_locks: bool = True) -> Counter[str]:
    """Let two processes save into one folder at once; return how often each outcome came."""
    run, context = place / "run", processes()
    shutil.rmtree(run, ignore_errors=True)
    save_bundle(bundle_of(0), run)
    barrier, outcomes = context.Barrier(2), context.SimpleQueue()
    writers = [
        context.Process(target=_save_often, args=(run, seed, with_locks, barrier, outcomes))
        for seed in (0, 1)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    counts: Counter[str] = Counter()
    while not outcomes.empty():
        outcome, pid, message = outcomes.get()
        counts[outcome] += 1
        if outcome == "refused":
            others = {writer.pid for writer in writers} - {pid}
            assert any(f"process {other} is writing there" in message for other in others), message
    assert counts["saved"] >= 1
    load_bundle(run)
    save_bundle(bundle_of(0), run)
    assert not [name for name in names_in(run) if name.startswith(".")]
    return counts


def _save_often(run: Path, seed: int, with_locks: bool, barrier: Barrier, outcomes) -> None:  # type: ignore[no-untyped-def]
    if not with_locks:
        locks.fcntl = None  # type: ignore[assignment, attr-defined]
    bundle = bundle_of(seed)
    pid = multiprocessing.current_process().pid
    barrier.wait()
    for _ in range(SAVES):
        try:
            save_bundle(bundle, run)
            outcomes.put(("saved", pid, ""))
        except BusyError as error:
            outcomes.put(("refused", pid, str(error)))
