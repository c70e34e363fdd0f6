"""Checkpoints: one file with everything a run needs to resume as if it had never stopped.

A checkpoint is a safetensors file: tensors by name, and a JSON object with the plain values in its
header. It is replaced in one step, so there is always a whole one. Reading it runs no code.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

import safetensors
import safetensors.torch
from torch import Tensor

from mgformer.errors import BundleError
from mgformer.files import replacing

NAME = "checkpoint.safetensors"
KEY = "mgformer"


class Checkpoint(NamedTuple):
    """The state of an unfinished run."""

    state: dict[str, Any]
    tensors: dict[str, Tensor]


def save_checkpoint(folder: Path, checkpoint: Checkpoint) -> None:
    """Write the checkpoint of the run in `folder`, replacing an earlier one."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: tensor.contiguous() for name, tensor in checkpoint.tensors.items()}
    with replacing(folder / NAME) as draft:
        safetensors.torch.save_file(tensors, draft, {KEY: json.dumps(checkpoint.state)})


def has_checkpoint(folder: Path) -> bool:
    """Return whether `folder` holds a checkpoint."""
    return (folder / NAME).is_file()


def load_checkpoint(folder: Path) -> Checkpoint | None:
    """Read the checkpoint in `folder`; None if there is none."""
    path = folder / NAME
    if not path.is_file():
        return None
    try:
        with safetensors.safe_open(path, "pt") as file:
            state = json.loads(file.metadata()[KEY])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (safetensors.SafetensorError, KeyError, TypeError, ValueError) as error:
        raise BundleError(
            f"{path}: not a usable checkpoint ({error}); delete it and train from the start"
        ) from None
    return Checkpoint(state, tensors)


def remove_checkpoint(folder: Path) -> None:
    """Remove the checkpoint of a finished run."""
    (folder / NAME).unlink(missing_ok=True)
