"""The system fails: one line and exit code 3. A second writer: one line and exit code 2."""

import errno
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mgformer.locks import locked
from mgformer.runs import bundle_files
from mgformer.runs.bundle_files import load_record
from mgformer.training.log import read_log
from tests.command import Done, assert_one_line, last_line, mgformer, succeed

SMALL = ["--set", "model.dim=4", "--set", "train.batch_size=256"]


def assert_system_failed(done: Done, expected: str) -> None:
    assert (done.returncode, done.stdout) == (3, "")
    assert last_line(done) == f"error: {expected}"


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (
            OSError(errno.ENOSPC, "No space left on device", "run/bundle.json"),
            "run/bundle.json: No space left on device; free some space, or choose another --out",
        ),
        (
            OSError(errno.EIO, "Input/output error", b"run/users"),
            "run/users: Input/output error; check the disk, or choose another --out",
        ),
        (
            PermissionError(errno.EPERM, "Operation not permitted"),
            "Operation not permitted; check the permissions, or choose another --out",
        ),
        (
            MemoryError(),
            "out of memory; use less data, a smaller model, or a computer with more memory",
        ),
        (
            RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate"),
            "out of memory; use less data, a smaller model, or a computer with more memory",
        ),
    ],
)
def test_a_failing_system_is_one_line_and_exit_code_3(
    error: Exception, line: str, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> None:
        raise error

    monkeypatch.setattr(bundle_files, "write_text", fail)
    done = mgformer("train", table, "--model", "popularity", "--out", tmp_path / "run")
    assert_system_failed(done, line)


def test_a_bug_stays_a_traceback(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(bundle_files, "write_text", fail)
    with pytest.raises(RuntimeError, match="a bug"):
        mgformer("train", table, "--model", "popularity", "--out", tmp_path / "run")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("arguments", [["models", "--json"], ["--help"]])
def test_output_that_cannot_be_written_is_one_line(arguments: list[str]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "mgformer", *arguments],
            stdout=full, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
    assert done.returncode == 3, done.stderr
    assert done.stderr.startswith("error: No space left on device")
    assert len(done.stderr.splitlines()) == 1


def test_a_failed_training_leaves_the_recommender_and_its_log(table: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    asked = ["train", table, "--model", "bprmf", "--out", run, *SMALL]
    succeed(*asked, "--set", "train.epochs=3")
    before, record = read_log(run), load_record(run)
    assert len(before) == 3
    failed = mgformer(*asked, "--set", "train.lr=1e30", "--set", "train.epochs=9")
    assert failed.returncode == 2
    assert "training diverged" in failed.stderr
    assert (read_log(run), load_record(run)) == (before, record)
    succeed(*asked, "--set", "train.epochs=2")
    assert len(read_log(run)) == 2
    assert {path.name for path in run.glob("*log*")} == {"log.jsonl"}


@pytest.mark.parametrize("command", ["train", "refit", "refresh", "tune", "export"])
def test_a_second_writer_gets_one_line_with_the_process(
    command: str, table: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    if command in ("refit", "refresh", "export"):
        succeed("train", table, "--model", "bprmf", "--out", run, *SMALL, "--set", "train.epochs=1")
    arguments = {
        "train": [table, "--model", "popularity"],
        "refit": [run],
        "refresh": [run, "--with", table],
        "tune": [table, "--model", "itemknn", "--trials", 1],
        "export": [run],
    }[command]
    with ThreadPoolExecutor(1) as other, locked(tmp_path / "out"):
        done = other.submit(mgformer, command, *arguments, "--out", tmp_path / "out").result()
    assert_one_line(done, "is writing there; wait until it ends, or choose another --out")
    assert not (tmp_path / "out").exists()
