"""The folder of a run while it trains: its log, and the checkpoint from which it can resume."""

import logging
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from mgformer.errors import ConfigError, system_failure
from mgformer.ranking.score import Kind
from mgformer.runs.bundle import Bundle
from mgformer.runs.bundle_files import MANIFEST, save_bundle
from mgformer.runs.config import different_options, flat_options
from mgformer.runs.record import Auto
from mgformer.training.checkpoint import (
    Checkpoint,
    has_checkpoint,
    load_checkpoint,
    remove_checkpoint,
    save_checkpoint,
)
from mgformer.training.log import Entry, Log, keep_log
from mgformer.training.loop import Hooks
from mgformer.world import current

logger = logging.getLogger("mgformer")


class _Results(BaseModel):
    """What the stage before has found; empty if there was none."""

    model_config = ConfigDict(extra="forbid", strict=True)

    valid: dict[str, float] = {}
    choice: dict[Literal["epochs", "kind", "gamma", "delta", "eta", "kappa"], Any] = {}
    auto: Auto | None = None
    """How the model was chosen, if the user named none."""

    @model_validator(mode="after")
    def _is_a_choice(self) -> "_Results":
        if not self.model_fields_set:
            return self
        epochs = self.choice.get("epochs")
        if type(epochs) is not int or epochs < 0:
            raise ValueError(f"the choice has {epochs!r} epochs")
        for name, value in self.choice.items():
            fits = value is None or type(value) in (int, float)
            if name == "kind":
                fits = value is None or value in get_args(Kind)
            if not fits:
                raise ValueError(f"the choice has {name} = {value!r}")
        return self


class _State(BaseModel):
    """The plain values of a checkpoint that say which run it belongs to."""

    model_config = ConfigDict(strict=True)

    config: dict[str, Any]
    fingerprint: str
    stage: Literal["select", "refit"]
    results: _Results
    log: list[dict[str, Any]]

    @model_validator(mode="after")
    def _has_a_model_and_times(self) -> "_State":
        model = self.config.get("model")
        if not isinstance(model, dict) or not isinstance(model.get("name"), str):
            raise ValueError("its config names no model")
        for entry in self.log:
            times = [entry.get("seconds"), entry.get("validation_seconds", 0.0)]
            if any(type(value) not in (int, float) for value in times):
                raise ValueError("its log has an entry without a time")
        return self


def load_unfinished(folder: Path) -> Checkpoint | None:
    """Read the checkpoint in `folder` and check which run it belongs to; None if there is none."""
    found = load_checkpoint(folder)
    if found is None:
        return None
    try:
        _State.model_validate(found.state)
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(map(str, problem["loc"]))
        raise found.unusable(f"{where}: {problem['msg']}") from None
    return found


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
        self.entries: list[Entry] = list(self.found.state["log"]) if self.found else []
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
        if not current().leads:
            return
        finished = (self.folder / MANIFEST).is_file()
        train = self.config["train"]
        self.log = Log(
            self.folder,
            train["tensorboard"],
            self.entries,
            beside=finished,
            mlflow=train["mlflow"],
            about={name: str(value) for name, value in flat_options(self.config).items()},
        )

    def hooks(self, stage: str) -> Hooks:
        """Return what the training loop needs to write the log and checkpoints of a stage."""
        self.stage = stage
        start = self.found if self.found and self.found.state["stage"] == stage else None
        if not current().leads:  # the first process writes for all
            return {"write": lambda entry: None, "save": lambda checkpoint: None, "start": start}
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
        found = load_unfinished(self.folder)
        if found is None:
            logger.info("%s: no checkpoint; starting from the beginning", self.folder)
            return None
        for name, (old, new) in different_options(found.state["config"], self.config).items():
            if name == "train.device":  # a run may go on elsewhere
                continue
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


def save_run(bundle: Bundle, folder: Path, key: bytes | None = None) -> None:
    """Save a finished run: its bundle, signed if a key is given, and its log.

    Its checkpoint is not needed any more.
    """
    save_bundle(bundle, folder, key)
    if bundle.record.epochs:
        keep_log(folder)
    remove_checkpoint(folder)
