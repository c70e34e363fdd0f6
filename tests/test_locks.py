"""One writer at a time: the second is told who is writing, and a killed writer holds no lock."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from mgformer import locks
from mgformer.errors import BusyError
from mgformer.locks import locked, locked_file

pytestmark = pytest.mark.skipif(locks.fcntl is None, reason="Windows has no such locks")
HOLD = """
import sys
from pathlib import Path
from mgformer.locks import locked
with locked(Path(sys.argv[1])):
    print("locked", flush=True)
    sys.stdin.read()
"""


def holder(folder: Path) -> "subprocess.Popen[str]":
    """Start a process that holds the lock of a folder until it ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "locked\n"
    return process


def test_a_second_writer_is_told_the_process_and_a_kill_ends_the_lock(tmp_path: Path) -> None:
    with holder(tmp_path) as process:
        with pytest.raises(BusyError) as caught, locked(tmp_path):
            pass
        assert str(caught.value) == (
            f"{tmp_path}: process {process.pid} is writing there; wait until it ends, or choose"
            " another --out"
        )
        process.kill()
    assert (tmp_path / ".lock").exists()
    with locked(tmp_path):
        assert (tmp_path / ".lock").read_text() == f"{os.getpid()}\n"
    assert list(tmp_path.iterdir()) == []


def test_a_thread_may_lock_again_and_another_thread_may_not(tmp_path: Path) -> None:
    errors = []

    def other() -> None:
        try:
            with locked(tmp_path):
                pass
        except BusyError as error:
            errors.append(str(error))

    with locked(tmp_path):
        with locked(tmp_path / "." / "x" / ".."):
            pass
        assert (tmp_path / ".lock").exists()
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert len(errors) == 1
    assert f"process {os.getpid()} is writing" in errors[0]


def test_a_lock_leaves_no_empty_folder_and_keeps_a_full_one(tmp_path: Path) -> None:
    with locked(tmp_path / "empty" / "run"):
        pass
    assert not (tmp_path / "empty" / "run").exists()
    with locked(tmp_path / "run"):
        (tmp_path / "run" / "notes").write_text("mine")
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["notes"]


def test_a_file_has_a_lock_of_its_own(tmp_path: Path) -> None:
    with locked_file(tmp_path / "a.csv"), locked_file(tmp_path / "b.csv"):
        assert {path.name for path in tmp_path.iterdir()} == {".a.csv.lock", ".b.csv.lock"}
    assert list(tmp_path.iterdir()) == []


def test_without_locks_writers_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with holder(tmp_path) as process:
        monkeypatch.setattr(locks, "fcntl", None)
        with locked(tmp_path):
            (tmp_path / "notes").write_text("mine")
        process.kill()
    assert (tmp_path / "notes").exists()


def test_a_lock_file_that_was_removed_before_it_was_locked_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock = locks.fcntl.flock
    locked_files: list[int] = []

    def after_a_removal(descriptor: int, operation: int) -> None:
        if not locked_files:
            (tmp_path / locks.NAME).unlink()  # the holder before ends between opening and locking
        locked_files.append(descriptor)
        flock(descriptor, operation)

    monkeypatch.setattr(locks.fcntl, "flock", after_a_removal)
    with locked(tmp_path):
        assert len(locked_files) == 2
        assert (tmp_path / locks.NAME).read_text() == f"{os.getpid()}\n"
