"""The folder of a run while it trains: its log, and the checkpoint from which it can resume."""

import logging
from pathlib import Path
from typing import Any

from mgformer.errors import ConfigError, system_failure
from mgformer.runs.bundle import Bundle
from mgformer.runs.bundle_files import MANIFEST, save_bundle
from mgformer.runs.config import different_options
from mgformer.training.checkpoint import (
    Checkpoint,
    has_checkpoint,
    load_checkpoint,
    remove_checkpoint,
    save_checkpoint,
)
from mgformer.training.log import Entry, Log, keep_log
from mgformer.training.loop import Hooks

logger = logging.getLogger("mgformer")


class Workspace:
    """Keeps what is needed to resume one run.

    A run has one or two stages: select, and perhaps refit. A checkpoint names its stage, and it
    carries the results of the stage before.
    """

    def __init__(self, folder: Path, config: dict[str, Any], *, resume: bool) -> None:
        """Open the folder; with `resume`, find the checkpoint of a run of the same config."""
        self.folder, self.config = folder, config
        self.fingerprint, self.stage = "", "select"
        self.results: dict[str, Any] = {}
        self.found = self._found(resume)
        self.entries: list[Entry] = self.found.state["log"] if self.found else []
        if self.found:
            self.results = self.found.state["results"]
        self.log: Log | None = None
        self._reported = False

    @property
    def seconds_before(self) -> float:
        """Seconds of the epochs up to the checkpoint."""
        return sum(e["seconds"] + e.get("validation_seconds", 0.0) for e in self.entries)

    def begin(self, fingerprint: str) -> None:
        """Open the log; refuse to resume on other data than before."""
        self.fingerprint = fingerprint
        if self.found and self.found.state["fingerprint"] != fingerprint:
            raise ConfigError(
                f"{self.folder}: the unfinished run there was trained on data"
                f" {self.found.state['fingerprint']}, but got {fingerprint}; give the same data, or"
                " choose another --out"
            )
        finished = (self.folder / MANIFEST).is_file()
        tensorboard = self.config["train"]["tensorboard"]
        self.log = Log(self.folder, tensorboard, self.entries, beside=finished)

    def hooks(self, stage: str) -> Hooks:
        """Return what the training loop needs to write the log and checkpoints of a stage."""
        self.stage = stage
        start = self.found if self.found and self.found.state["stage"] == stage else None
        return {"write": self._write, "save": self._save, "start": start}

    def close(self) -> None:
        """Finish the log; the checkpoint stays until the result is saved (`save_run`)."""
        if self.log is not None:
            self.log.close()

    def _found(self, resume: bool) -> Checkpoint | None:
        """Return the checkpoint to resume from, if the caller wants to and there is one."""
        if not resume:
            if has_checkpoint(self.folder):
                logger.warning(
                    "%s: starting over; --resume would continue the unfinished run", self.folder
                )
            return None
        found = load_checkpoint(self.folder)
        if found is None:
            logger.info("%s: no checkpoint; starting from the beginning", self.folder)
            return None
        for name, (old, new) in different_options(found.state["config"], self.config).items():
            raise ConfigError(
                f"{self.folder}: the unfinished run there has other options ({name} was {old!r},"
                f" now {new!r}); give the same ones, delete it, or choose another --out"
            )
        return found

    def _write(self, entry: Entry) -> None:
        assert self.log is not None
        if self.found is None and not self.entries:
            remove_checkpoint(self.folder)  # it belongs to the run that this one replaces
        entry = {"stage": self.stage, **entry}
        self.entries.append(entry)
        self.log.write(entry)

    def _save(self, checkpoint: Checkpoint) -> None:
        state = {
            **checkpoint.state,
            "config": self.config,
            "fingerprint": self.fingerprint,
            "stage": self.stage,
            "results": self.results,
            "log": self.entries,
        }
        try:
            save_checkpoint(self.folder, Checkpoint(state, checkpoint.tensors))
        except OSError as error:  # the training is worth more than a checkpoint
            if not self._reported:
                logger.warning("no checkpoint: %s; training goes on", system_failure(error))
            self._reported = True


def save_run(bundle: Bundle, folder: Path) -> None:
    """Save a finished run: its bundle, and its log. Its checkpoint is not needed any more."""
    save_bundle(bundle, folder)
    if bundle.record.epochs:
        keep_log(folder)
    remove_checkpoint(folder)
