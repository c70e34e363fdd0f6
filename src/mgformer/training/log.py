"""The log of a run: one line of JSON per epoch, and optionally the same for other programs.

A writer takes figures by name and step. There is one for TensorBoard and one for MLflow.

The log of a finished run stays until another run takes its place in the folder: a new run writes
`log.new.jsonl` there, and `keep_log` renames it.
"""

import json
import logging
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from mgformer.errors import ConfigError, system_failure
from mgformer.files import append_line, make_folder, sync_folder, write_text
from mgformer.training.mlflow_log import mlflow_writer

NAME = "log.jsonl"
NEW = "log.new.jsonl"
Entry = dict[str, Any]
logger = logging.getLogger("mgformer")


class Writer(Protocol):
    """What another program must offer to get the log."""

    def add_scalar(self, tag: str, value: float, step: int) -> None:
        """Take a figure; `tag` is the stage and the name, as select/ndcg@20."""

    def close(self) -> None:
        """Flush what was taken."""


class Log:
    """Writes the figures of each epoch of a run."""

    def __init__(
        self,
        folder: Path,
        tensorboard: bool = False,
        past: Sequence[Entry] = (),
        *,
        beside: bool = False,
        mlflow: bool = False,
        about: Mapping[str, str] | None = None,
    ) -> None:
        """Start the log of the run in `folder`, or continue it after the epochs in `past`.

        With `beside`, the log that is there stays until `keep_log` replaces it. MLflow is told
        what the run is `about`: its options by name.
        """
        make_folder(folder)
        self._path = folder / (NEW if beside else NAME)
        self._lines = [json.dumps(entry) for entry in past]
        self._reported = self._behind = False
        # Epochs after the last checkpoint are trained again, and would be logged twice.
        self._write_all()
        self._writers: list[Writer] = []
        if tensorboard:
            self._writers.append(_tensorboard(folder / "tensorboard", len(past)))
        if mlflow:
            self._writers.append(mlflow_writer(folder, about or {}, resume=bool(past)))

    def write(self, entry: Entry) -> None:
        """Add the figures of an epoch. If the disk fails, say so once, and try again later."""
        self._lines.append(json.dumps(entry))  # ASCII, so that no other character ends a line
        try:
            if self._behind:  # half a line may be there
                self._write_all()
            else:
                append_line(self._path, self._lines[-1])
            self._behind = False
        except OSError as error:
            self._behind = True
            if not self._reported:
                logger.warning("the log is not written: %s; going on", system_failure(error))
            self._reported = True
        for name, value in entry.items():
            if isinstance(value, float):
                for writer in self._writers:
                    writer.add_scalar(f"{entry['stage']}/{name}", value, len(self._lines))

    def _write_all(self) -> None:
        write_text(self._path, "".join(f"{line}\n" for line in self._lines))

    def close(self) -> None:
        """Flush and close the writers for other programs."""
        for writer in self._writers:
            writer.close()


def read_log(folder: Path) -> list[Entry]:
    """Return what was logged of each epoch of the run in `folder`; empty if there is no log."""
    path = folder / NAME
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    whole, _, _ = text.rpartition("\n")  # the last line may be incomplete
    entries = [json.loads(line) for line in whole.split("\n") if line]
    for entry in entries:
        if not isinstance(entry, dict) or not {"stage", "epoch", "seconds"} <= entry.keys():
            raise ValueError(f"not a log entry: {entry!r}")
    return entries


def keep_log(folder: Path) -> None:
    """Let the log of a run that is saved now take the place of the log before it."""
    with suppress(FileNotFoundError):
        os.replace(folder / NEW, folder / NAME)
        sync_folder(folder)


def _tensorboard(folder: Path, done: int) -> Writer:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise ConfigError(
            "train.tensorboard: the package tensorboard is not installed;"
            " pip install 'mgformer[tensorboard]'"
        ) from error
    writer: Writer = SummaryWriter(str(folder), purge_step=done + 1)
    return writer
