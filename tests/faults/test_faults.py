"""Faults at every operation: nothing that was saved is lost, and nothing is left behind."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.checks import cut_power, fail_every, kill_every, race
from tests.faults.injection import unsynced
from tests.faults.scenes import SCENES

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc and RLIMIT_FSIZE")
QUICK = ("save", "checkpoint", "lists", "export")


@pytest.fixture(autouse=True)
def quickly() -> Iterator[None]:
    with unsynced():
        yield


@pytest.mark.parametrize("name", QUICK)
def test_every_failed_operation_leaves_the_old_state_or_the_new_one(name: str, tmp_path: Path):
    counts = fail_every(SCENES[name], tmp_path)
    assert {"open", "write", "fsync", "rename"} <= counts.keys()


@pytest.mark.parametrize(
    ("name", "every"), [("train", 11), ("tune", 4), ("add-items", 2), ("rules", 2)]
)
def test_commands_end_with_one_line_when_an_operation_fails(
    name: str, every: int, tmp_path: Path
) -> None:
    assert fail_every(SCENES[name], tmp_path, every=every).total() > 3


@pytest.mark.parametrize("name", QUICK)
def test_a_power_cut_leaves_the_old_state_or_the_new_one(name: str, tmp_path: Path):
    assert cut_power(SCENES[name], tmp_path) > 3


@pytest.mark.parametrize("name", ["save", "lists"])
def test_a_kill_leaves_the_old_state_or_the_new_one(name: str, tmp_path: Path):
    assert kill_every(SCENES[name], tmp_path, most=8) == 8


@pytest.mark.parametrize("with_locks", [True, False])
def test_two_writers_never_destroy_a_bundle(with_locks: bool, tmp_path: Path):
    counts = race(tmp_path, with_locks=with_locks)
    assert counts.total() == 8
    assert with_locks or not counts["refused"]
