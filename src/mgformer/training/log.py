"""The log of a run: one line of JSON per epoch, and optionally the same for TensorBoard."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from mgformer.errors import ConfigError

NAME = "log.jsonl"
Entry = dict[str, Any]


class _Writer(Protocol):
    def add_scalar(self, tag: str, value: float, step: int) -> None: ...
    def close(self) -> None: ...


class Log:
    """Writes the figures of each epoch of a run."""

    def __init__(self, folder: Path, tensorboard: bool, past: Sequence[Entry] = ()) -> None:
        """Start the log of the run in `folder`, or continue it after the epochs in `past`."""
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / NAME
        # Epochs after the last checkpoint are trained again, and would be logged twice.
        self._path.write_text("".join(json.dumps(entry) + "\n" for entry in past))
        self._written = len(past)
        self._writer = _tensorboard(folder / "tensorboard", len(past)) if tensorboard else None

    def write(self, entry: Entry) -> None:
        """Add the figures of an epoch."""
        with self._path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(entry) + "\n")
        self._written += 1
        if self._writer is not None:
            for name, value in entry.items():
                if isinstance(value, float):
                    tag = f"{entry['stage']}/{name}"
                    self._writer.add_scalar(tag, value, self._written)

    def close(self) -> None:
        """Flush and close the TensorBoard writer, if there is one."""
        if self._writer is not None:
            self._writer.close()


def read_log(folder: Path) -> list[Entry]:
    """Return what was logged of each epoch of the run in `folder`; empty if there is no log."""
    path = folder / NAME
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    whole, _, _ = text.rpartition("\n")  # the last line may be incomplete
    return [json.loads(line) for line in whole.splitlines()]


def _tensorboard(folder: Path, done: int) -> _Writer:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise ConfigError(
            "train.tensorboard: the package tensorboard is not installed;"
            " pip install 'mgformer[tensorboard]'"
        ) from error
    writer: _Writer = SummaryWriter(str(folder), purge_step=done + 1)
    return writer
