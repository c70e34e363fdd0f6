"""Checkpoints: one file with everything a run needs to resume as if it had never stopped.

A checkpoint is a safetensors file: tensors by name, and a JSON object with the plain values in its
header, with a checksum of both. It is replaced in one step, so there is always a whole one. Reading
it runs no code.
"""

import json
import logging
from pathlib import Path
from typing import Any, NamedTuple

import safetensors
import safetensors.torch
from torch import Tensor

from mgformer.checksums import checksum_of_tensors
from mgformer.errors import BundleError
from mgformer.files import replacing

NAME = "checkpoint.safetensors"
KEY, CHECKSUM = "mgformer", "checksum"

log = logging.getLogger("mgformer")


class Checkpoint(NamedTuple):
    """The state of an unfinished run."""

    state: dict[str, Any]
    tensors: dict[str, Tensor]
    source: str = "the checkpoint"
    """Where it was read from, for error messages."""

    def unusable(self, why: object) -> BundleError:
        """Return the error for a checkpoint that cannot be resumed."""
        return _unusable(self.source, why)


def save_checkpoint(folder: Path, checkpoint: Checkpoint) -> None:
    """Write the checkpoint of the run in `folder`, replacing an earlier one."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: tensor.contiguous() for name, tensor in checkpoint.tensors.items()}
    with replacing(folder / NAME) as draft:
        text = json.dumps(checkpoint.state)
        header = {KEY: text, CHECKSUM: checksum_of_tensors(text, tensors)}
        safetensors.torch.save_file(tensors, draft, header)


def apart(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Copy tensors that lie in the memory of another one, such as tied weights.

    safetensors refuses to write those.
    """
    shared, end = set[str](), 0
    for name, tensor in sorted(tensors.items(), key=lambda named: named[1].data_ptr()):
        if tensor.data_ptr() < end:
            shared.add(name)
        end = max(end, tensor.data_ptr() + tensor.nbytes)
    return {name: t.clone() if name in shared else t for name, t in tensors.items()}


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
            header = file.metadata()
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        state = json.loads(header[KEY])
        others = header.keys() - {KEY, CHECKSUM}
    except (safetensors.SafetensorError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise _unusable(path, error) from None
    if others or not isinstance(state, dict):
        raise _unusable(path, "its header is not one that mgformer writes")
    if CHECKSUM not in header:
        # Older versions wrote no checksum, and a long training must survive an upgrade.
        log.warning("%s: an older version wrote it, without a checksum: it is not checked", path)
    elif header[CHECKSUM] != checksum_of_tensors(header[KEY], tensors):
        raise _unusable(path, "changed since it was written (checksum)")
    return Checkpoint(state, tensors, str(path))


def remove_checkpoint(folder: Path) -> None:
    """Remove the checkpoint of a finished run."""
    (folder / NAME).unlink(missing_ok=True)


def _unusable(source: object, why: object) -> BundleError:
    text = ascii(" ".join(str(why).split()))[1:-1][:200]
    return BundleError(
        f"{source}: not a usable checkpoint ({text}); delete it and train from the start"
    )
