"""The folder of a run while it trains: its log, and the checkpoint from which it can go on."""

import logging
from pathlib import Path
from typing import Any

from mgformer.errors import ConfigError
from mgformer.training.checkpoint import (
    Checkpoint,
    has_checkpoint,
    load_checkpoint,
    remove_checkpoint,
    save_checkpoint,
)
from mgformer.training.log import Entry, Journal
from mgformer.training.loop import Hooks

log = logging.getLogger("mgformer")


class Workspace:
    """Keeps what one run needs to be continued.

    A run has stages (select, and perhaps refit). A checkpoint says which one it is of, and carries
    the results of the stages before it.
    """

    def __init__(self, folder: Path, config: dict[str, Any], *, resume: bool) -> None:
        """Open the folder; with `resume`, find the checkpoint of a run of the same config."""
        self.folder, self.config = folder, config
        self.fingerprint, self.stage = "", "select"
        self.results: dict[str, Any] = {}
        self.found = self._found(resume)
        self.log: list[Entry] = self.found.state["log"] if self.found else []
        if self.found:
            self.results = self.found.state["results"]
        self.journal: Journal | None = None

    @property
    def seconds_before(self) -> float:
        """How long the epochs took from whose end the run goes on."""
        return sum(entry["seconds"] + entry.get("validation_seconds", 0.0) for entry in self.log)

    def opened(self, fingerprint: str) -> None:
        """Begin on data that could be read; refuse to go on with other data than before."""
        self.fingerprint = fingerprint
        if self.found and self.found.state["fingerprint"] != fingerprint:
            raise ConfigError(
                f"{self.folder}: the unfinished run there is on data"
                f" {self.found.state['fingerprint']}, and these are {fingerprint}; give the same"
                " data, or choose another --out"
            )
        self.journal = Journal(self.folder, self.config["train"]["tensorboard"], self.log)

    def hooks(self) -> Hooks:
        """Return what the training loop takes to write its log and checkpoints."""
        start = self.found if self.found and self.found.state["stage"] == self.stage else None
        return {"write": self._write, "save": self._save, "start": start}

    def close(self) -> None:
        """Finish the log; the checkpoint stays until the result is saved (`remove_checkpoint`)."""
        if self.journal is not None:
            self.journal.close()

    def _found(self, resume: bool) -> Checkpoint | None:
        """Return the checkpoint to go on from, if that is wanted and there is one."""
        if not resume:
            if has_checkpoint(self.folder):
                log.warning("%s: starting over; --resume goes on with what is there", self.folder)
            return None
        found = load_checkpoint(self.folder)
        if found is None:
            log.info("%s: no checkpoint; starting from the beginning", self.folder)
        elif found.state["config"] != self.config:
            raise ConfigError(
                f"{self.folder}: the unfinished run there has other options"
                f" ({_first_difference(found.state['config'], self.config)}); give the same ones,"
                " delete it, or choose another --out"
            )
        return found

    def _write(self, entry: Entry) -> None:
        assert self.journal is not None
        if self.found is None and not self.log:
            remove_checkpoint(self.folder)  # of the run that this one has now taken the place of
        entry = {"stage": self.stage, **entry}
        self.log.append(entry)
        self.journal.write(entry)

    def _save(self, checkpoint: Checkpoint) -> None:
        state = {
            **checkpoint.state,
            "config": self.config,
            "fingerprint": self.fingerprint,
            "stage": self.stage,
            "results": self.results,
            "log": self.log,
        }
        save_checkpoint(self.folder, Checkpoint(state, checkpoint.tensors))


def _first_difference(before: dict[str, Any], now: dict[str, Any], prefix: str = "") -> str:
    for name in sorted({*before, *now}):
        old, new = before.get(name), now.get(name)
        if isinstance(old, dict) and isinstance(new, dict) and old != new:
            return _first_difference(old, new, f"{prefix}{name}.")
        if old != new:
            return f"{prefix}{name} was {old!r}, now {new!r}"
    return "none"
