"""The device that trains and ranks: the processor, a GPU, or Apple's chip.

Most code runs on the device that its tensors are on and never asks for it. Two things differ. Some
operations have sizes that depend on values, such as finding distinct nodes. On a GPU the program
would have to wait for these sizes, so code asks `on_host` and works with fixed sizes elsewhere. The
other is float64, which exact ranking needs and MPS lacks.

Shapes: n numbers.
"""

import os
import re

import torch
from torch import Tensor

from mgformer.errors import ConfigError

HOST = torch.device("cpu")
PATTERN = r"^(auto|cpu|cuda(:\d{1,3})?|mps)$"
"""The names that a user may give."""


def resolve(name: str) -> torch.device:
    """Return the device of a name, or an error in one line if this computer lacks it.

    auto: the first GPU, or else MPS, or else the processor.
    """
    if not re.match(PATTERN, name):
        raise ConfigError(f"device: got {name!r}, expected auto, cpu, cuda, cuda:1 or mps")
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    has_mps = torch.backends.mps.is_available()
    if name == "auto":
        name = "cuda" if gpus else "mps" if has_mps else "cpu"
    if name == "cuda" and "LOCAL_RANK" in os.environ:
        name = f"cuda:{os.environ['LOCAL_RANK']}"  # torchrun starts a process for each GPU
    device = torch.device(name)
    missing = None
    if device.type == "cuda" and (device.index or 0) >= gpus:
        build = "" if torch.version.cuda else "; this build of torch has no CUDA"
        missing = f"{gpus or 'no'} usable CUDA device{'s' * (gpus != 1)}{build}"
    elif device.type == "mps" and not has_mps:
        missing = "no usable MPS device"
    if missing:
        raise ConfigError(f"device: got {name}, but this computer has {missing}; use --device cpu")
    return device


def for_ranking(device: torch.device) -> torch.device:
    """Return the device that ranks if `device` trains: MPS has no float64, so the processor."""
    return torch.device("cpu") if device.type == "mps" else device


def on_host(tensor: Tensor) -> bool:
    """Return whether a tensor is in the memory of the processor."""
    return tensor.device.type == "cpu"


def double_on(device: torch.device) -> torch.dtype:
    """Return float64, or float32 on MPS."""
    return torch.float32 if device.type == "mps" else torch.float64


def generator_on(device: torch.device, seed: int) -> torch.Generator:
    """Return a source of random numbers for tensors on a device."""
    # The meta device has no generator; it takes that of the processor.
    return torch.Generator("cpu" if device.type == "meta" else device).manual_seed(seed)


def first_of_each(numbers: Tensor) -> Tensor:
    """Return which numbers [n] have not occurred before, as a mask [n] of fixed size."""
    ordered, places = numbers.sort(stable=True)
    new = torch.ones_like(ordered, dtype=torch.bool)
    new[1:] = ordered[1:] != ordered[:-1]
    return torch.empty_like(new).scatter_(0, places, new)
