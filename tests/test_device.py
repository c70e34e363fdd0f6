"""Names of devices, and what differs between them."""

import numpy as np
import pytest
import torch

from mgformer import device
from mgformer.errors import ConfigError
from mgformer.runs.config import build_config
from tests.command import mgformer

CUDA = {"model": {"name": "guided"}, "train": {"device": "cuda:1"}}


@pytest.fixture
def machine(monkeypatch):
    def has(gpus: int, mps: bool) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)

    return has


@pytest.mark.parametrize(
    ("gpus", "mps", "chosen"),
    [(2, False, "cuda"), (1, True, "cuda"), (0, True, "mps"), (0, False, "cpu")],
)
def test_auto_takes_the_best_there_is(machine, gpus, mps, chosen):
    machine(gpus, mps)
    assert device.resolve("auto") == torch.device(chosen)


@pytest.mark.parametrize(
    ("name", "gpus", "message"),
    [
        ("cuda", 0, "got cuda, but this computer has no usable CUDA devices"),
        ("cuda:1", 1, "got cuda:1, but this computer has 1 usable CUDA device"),
        ("mps", 2, "got mps, but this computer has no usable MPS device"),
    ],
)
def test_a_missing_device_is_one_line(machine, name, gpus, message):
    machine(gpus, False)
    with pytest.raises(ConfigError, match=message) as caught:
        device.resolve(name)
    assert str(caught.value).endswith("use --device cpu")
    assert "\n" not in str(caught.value)


def test_the_command_names_the_device(table, tmp_path):
    for name, said in (
        ("cuda:99", "got cuda:99, but this computer has"),
        ("gpu", "got 'gpu', expected auto"),
    ):
        done = mgformer("train", table, "--device", name, "--out", tmp_path / "run")
        assert done.returncode == 2
        assert said in done.stderr
        assert done.stderr.count("\n") == 1
    assert not (tmp_path / "run" / "manifest.json").exists()
    assert build_config(CUDA).train.device == "cuda:1"


def test_mps_trains_and_the_processor_ranks():
    assert device.for_ranking(torch.device("mps")) == device.HOST
    assert device.for_ranking(torch.device("cuda:1")) == torch.device("cuda:1")
    assert device.double_on(torch.device("mps")) == torch.float32


def test_the_first_of_each_number(rng):
    for size in (0, 1, 2, 33):
        numbers = torch.from_numpy(rng.integers(0, 9, size))
        expected = [n not in numbers[:place].tolist() for place, n in enumerate(numbers.tolist())]
        assert device.first_of_each(numbers).tolist() == expected
    assert np.unique(numbers.numpy()).size == device.first_of_each(numbers).sum()
