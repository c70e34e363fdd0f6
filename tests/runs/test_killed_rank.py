"""A killed process of several: one line, and the same result in the end."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mgformer.data.dataset import open_dataset
from mgformer.runs.bundle_files import load_bundle
from mgformer.training.checkpoint import load_checkpoint
from tests.command import mgformer
from tests.ranks import free_port

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parent.parent.parent
OPTIONS = ["--model", "guided", "--device", "cpu", "--set", "model.dim=16", "--set",
           "train.epochs=3", "--set", "train.batch_size=512"]  # fmt: skip


def environment(**more: object) -> dict[str, str]:
    paths = f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    settings = {"PYTHONPATH": paths, "OMP_NUM_THREADS": 1, **more}
    return {**os.environ, **{name: str(value) for name, value in settings.items()}}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    assert mgformer("train", "demo", *OPTIONS, "--out", folder).returncode == 0
    return load_bundle(folder).record


def in_the_second_epoch() -> int:
    """The step of the kill: with four fifths of the pairs for training, not the first epoch."""
    steps = -(-len(open_dataset("demo").interactions) // 512)
    return steps + steps // 3


def test_the_others_end_with_a_line_and_one_process_goes_on(tmp_path, undisturbed):
    port, run = free_port(), tmp_path / "run"
    command = [sys.executable, "-m", "tests.killed_rank", "train", "demo", *OPTIONS, "--out", run]
    each = [
        subprocess.Popen(
            [*map(str, command)],
            env=environment(RANK=rank, WORLD_SIZE=2, MASTER_ADDR="127.0.0.1", MASTER_PORT=port,
                            KILLED_AT=in_the_second_epoch()),
            cwd=tmp_path, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    said = [process.communicate(timeout=600)[1] for process in each]
    assert [process.returncode for process in each] == [3, -9], said[0]
    line = said[0].splitlines()[-1]
    assert line.startswith("error: another process of this training ended or cannot be reached")
    assert "--resume" in line
    assert load_checkpoint(run).state["epochs"] == 1
    # The checkpoint of two processes loads in one.
    assert mgformer("train", "--resume", "--out", run).returncode == 0
    same(load_bundle(run).record, undisturbed)


def test_torchrun_restarts_and_reaches_the_same_result(tmp_path, undisturbed):
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2"]
    launcher += ["--max-restarts=1", f"--master-port={free_port()}", "-m", "tests.killed_rank"]
    done = subprocess.run(
        [*launcher, "train", "demo", *OPTIONS, "--out", str(tmp_path / "run")],
        env=environment(KILLED_AT=in_the_second_epoch()),
        cwd=tmp_path, capture_output=True, text=True, timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "exitcode: -9" in done.stderr  # it was killed indeed
    same(load_bundle(tmp_path / "run").record, undisturbed)
    assert done.stdout.count("saved in") == 1  # one process prints


def same(found, expected):
    for part in ("test", "valid", "popularity", "epochs", "delta", "gamma"):
        assert getattr(found, part) == getattr(expected, part), part
