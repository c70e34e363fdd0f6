"""Checkpoints: one file with all that a run needs to go on as if it had never stopped.

A safetensors file: tensors by name, and in its header a JSON object with the plain numbers. It is
written beside its place and renamed, so there is always a whole one. Reading runs no code.
"""

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

import safetensors
import safetensors.torch
from torch import Tensor

from mgformer.errors import BundleError

NAME = "checkpoint.safetensors"
KEY = "mgformer"


class Checkpoint(NamedTuple):
    """What was kept of an unfinished run."""

    state: dict[str, Any]
    tensors: dict[str, Tensor]


def save_checkpoint(folder: Path, checkpoint: Checkpoint) -> None:
    """Write the checkpoint of the run in `folder`, in place of the one before."""
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / f".{NAME}.{os.getpid()}.tmp"
    tensors = {name: tensor.contiguous() for name, tensor in checkpoint.tensors.items()}
    try:
        safetensors.torch.save_file(tensors, draft, {KEY: json.dumps(checkpoint.state)})
        with draft.open("rb+") as stream:
            os.fsync(stream.fileno())
        draft.replace(folder / NAME)
    finally:
        draft.unlink(missing_ok=True)


def has_checkpoint(folder: Path) -> bool:
    """Return whether there is a checkpoint in `folder`."""
    return (folder / NAME).is_file()


def load_checkpoint(folder: Path) -> Checkpoint | None:
    """Read the checkpoint of the run in `folder`; None if there is none."""
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
    """Remove the checkpoint of a run that is finished."""
    (folder / NAME).unlink(missing_ok=True)
