"""The folder of a run while it trains: its log, and the checkpoint from which it can go on."""

import logging
from pathlib import Path
from typing import Any

from mgformer.errors import ConfigError
from mgformer.training.checkpoint import (
    Checkpoint,
    load_checkpoint,
    save_checkpoint,
)
from mgformer.training.journal import Journal

log = logging.getLogger("mgformer")


class Workspace:
    """Keeps what one run needs to be continued.

    A run has stages (select, and perhaps refit). A checkpoint says which one it is of, and carries
    the results of the stages before it.
    """

    def __init__(self, folder: Path, config: dict[str, Any], *, resume: bool) -> None:
        """Open the folder; with `resume`, find the checkpoint of a run of the same config."""
        self.folder, self.config = folder, config
        self.fingerprint, self.stage = "", ""
        self.results: dict[str, Any] = {}
        found = load_checkpoint(folder)
        if found and not resume:
            log.warning("%s: starting over; --resume would go on with what is there", folder)
        elif found and found.state["config"] != config:
            raise ConfigError(
                f"{folder}: the unfinished run there has other options"
                f" ({_first_difference(found.state['config'], config)}); give the same ones,"
                " leave out --resume, or choose another --out"
            )
        elif resume and not found:
            log.info("%s: no checkpoint; starting from the beginning", folder)
        self.found = found if resume else None
        if self.found:
            self.results = self.found.state["results"]
        past = self.found.state["history"] if self.found else []
        self.journal = Journal(folder, config["train"]["tensorboard"], past)

    def opened(self, fingerprint: str) -> None:
        """Take note of the data, and refuse to go on with other data than before."""
        self.fingerprint = fingerprint
        if self.found and self.found.state["fingerprint"] != fingerprint:
            raise ConfigError(
                f"{self.folder}: the unfinished run there is on data"
                f" {self.found.state['fingerprint']}, and these are {fingerprint}; give the same"
                " data, or choose another --out"
            )

    def hooks(self) -> dict[str, Any]:
        """Return what the training loop takes to write its log and checkpoints."""
        start = self.found if self.found and self.found.state["stage"] == self.stage else None
        return {"write": self.journal.write, "save": self._save, "start": start}

    def close(self) -> None:
        """Finish the log; the checkpoint stays until the result is saved (`remove_checkpoint`)."""
        self.journal.close()

    def _save(self, checkpoint: Checkpoint) -> None:
        state = {
            **checkpoint.state,
            "config": self.config,
            "fingerprint": self.fingerprint,
            "stage": self.stage,
            "results": self.results,
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
