"""Find the options of a model that do best on validation.

A trial trains on the training set and is measured on validation. The test part is emptied before
the first trial, so that no trial can see it.
"""

import logging
import math
import time
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from mgformer.data.dataset import Dataset
from mgformer.data.splits import Split
from mgformer.errors import BundleError, ConfigError, DataError, MgformerError
from mgformer.experiments.search import Trial, import_optuna, propose, search_space
from mgformer.files import write_text
from mgformer.locks import locked
from mgformer.models.space import Dimension
from mgformer.progress import phase
from mgformer.ranking.metrics import SELECTION_METRIC
from mgformer.runs.bundle import Bundle
from mgformer.runs.config import RunConfig, build_config, flat_options, to_toml
from mgformer.runs.finish import protocol_of
from mgformer.runs.folder import check_config, check_data
from mgformer.runs.train import prepare, validate
from mgformer.training.log import Entry

if TYPE_CHECKING:
    import optuna

BEST = "best.toml"
TRIALS = "trials.json"
log = logging.getLogger("mgformer")


class Tuning(BaseModel):
    """The trials of a tuning, on disk: one file, rewritten whole after every trial.

    The file holds finished trials only: a trial that was killed is made again. (Optuna's own
    storages keep a killed trial as running for ever; its journal cannot be read after a truncated
    line, and one report to SQLite takes a tenth of a second.)
    """

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    config: dict[str, Any]
    """The given run, which is the first trial."""
    fingerprint: str
    held: list[str]
    """Options that tuning does not change."""
    trials: list[Trial] = []


class TuningResult(NamedTuple):
    """All trials of a tuning, and the best options."""

    config: RunConfig
    """The run with the best options."""
    trials: list[Trial]
    ranked: list[int]
    """Numbers of the complete trials, the best first; equal trials in the order they were made."""
    dataset: str
    fingerprint: str
    protocol: str

    @property
    def best(self) -> Trial:
        """The trial that did best on validation."""
        return self.trials[self.ranked[0]]

    def changes(self, trial: Trial) -> dict[str, Any]:
        """Return the options of a trial that differ from those of the given run."""
        given = self.trials[0].options
        return {name: v for name, v in trial.options.items() if given.get(name) != v}

    def counts(self) -> str:
        """Say how many trials were made, pruned and failed."""
        states = Counter(trial.state for trial in self.trials)
        return f"{len(self.trials)} trials, {states['pruned']} pruned, {states['failed']} failed"

    def to_toml(self) -> str:
        """Return the best run as TOML, headed by how it was found."""
        number, first = self.ranked[0], self.trials[0]
        found = f"Validation NDCG@20: {self.best.value:.4f} in trial {number}"
        if number:
            before = f"{first.value:.4f}" if first.state == "complete" else first.state
            found += f"; with the given options: {before}"
        lines = [
            f"{self.config.model_name}, tuned by mgformer tune.",
            f"Data: {self.dataset}, {self.fingerprint}.",
            f"Protocol: {self.protocol}.",
            f"Trials: {self.counts()}; seed {self.config.seed}; the test part was not used.",
            f"{found}.",
        ]
        return "".join(f"# {line}\n" for line in lines) + to_toml(self.config)


def tune(
    config: RunConfig,
    folder: Path,
    trials: int,
    *,
    fixed: Collection[str] = (),
    timeout: float = math.inf,
    dataset: Dataset | None = None,
) -> TuningResult:
    """Find the options of a run that do best on validation, and write them to `best.toml`.

    Args:
        config: The run; it is the first trial, so the result is never worse on validation.
        folder: Where trials are stored. Trials that exist count, and are not repeated.
        trials: Number of trials in all.
        fixed: Options that tuning does not change, by dotted name.
        timeout: Seconds after which no trial is started; at least one is made.
        dataset: Used instead of reading `config.dataset`.
    """
    began = time.monotonic()
    space = search_space(config, fixed)
    if not space:
        why = "; --set fixes all of them" if search_space(config) else ""
        raise ConfigError(
            f"{config.model_name} has no options to tune{why}; train it with: mgformer train"
        )
    import_optuna()  # before the data are read
    with locked(folder):
        return _tune(config, folder, trials, space, fixed, began + timeout, dataset)


def _tune(
    config: RunConfig,
    folder: Path,
    trials: int,
    space: Mapping[str, Dimension],
    fixed: Collection[str],
    until: float,
    dataset: Dataset | None,
) -> TuningResult:
    data, split, before = prepare(config, dataset)
    if not len(split.valid):
        raise DataError(f"{data.name}: has no validation part to tune on; set split.valid above 0")
    blind = replace(split, test=split.test.subset(np.zeros(len(split.test), dtype=bool)))
    given = config.to_mapping()
    new = Tuning(config=given, fingerprint=data.fingerprint, held=sorted(fixed))
    tuning = load_tuning(folder) or new
    _check_continues(folder, tuning, new, config, space)
    done = tuning.trials
    with phase("trials", trials) as advance:
        advance(min(len(done), trials))
        while len(done) < trials and not (done and time.monotonic() > until):
            attempt = propose(space, flat_options(given), config.seed, done)
            trial = _make_trial(config, attempt, blind, before)
            outcome = f"failed: {trial.error}" if trial.error else trial.state
            if trial.state == "complete":
                outcome = f"validation NDCG@20 {trial.value:.4f}"
            log.info("trial %d: %s  %s", len(done), outcome, option_list(trial.options, "  "))
            done.append(trial)
            write_text(folder / TRIALS, tuning.model_dump_json(indent=1) + "\n")
            advance(1)
    complete = [number for number, trial in enumerate(done) if trial.state == "complete"]
    ranked = sorted(complete, key=lambda number: -done[number].value)
    if not ranked:
        raise ConfigError(f"{folder}: all {len(done)} trials failed; the first: {done[0].error}")
    best, protocol = with_options(config, done[ranked[0]].options), protocol_of(blind)
    result = TuningResult(best, done, ranked, data.name, data.fingerprint, protocol)
    write_text(folder / BEST, result.to_toml())
    return result


def load_tuning(folder: Path) -> Tuning | None:
    """Return the tuning in `folder`; None if there is none."""
    path = folder / TRIALS
    if not path.exists():
        return None
    try:
        return Tuning.model_validate_json(path.read_bytes())
    except ValidationError as error:
        problem = error.errors()[0]["msg"]
        raise BundleError(f"{path}: damaged, not a list of trials ({problem}); delete it") from None


def with_options(config: RunConfig, options: Mapping[str, Any]) -> RunConfig:
    """Return the run with other values for options by dotted name."""
    raw = config.to_mapping()
    for name, value in options.items():
        section, _, option = name.partition(".")
        raw[section][option] = value
    return build_config(raw, "trial")


def option_list(options: Mapping[str, Any], separator: str = ", ") -> str:
    """Return options as one line, numbers with four digits."""
    return separator.join(
        f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}"
        for name, value in options.items()
    )


def _check_continues(
    folder: Path, found: Tuning, new: Tuning, config: RunConfig, space: Mapping[str, Dimension]
) -> None:
    """Refuse to continue a tuning of other options or data."""
    check_config(folder, found.config, config)
    check_data(folder, found.fingerprint, new.fingerprint)
    if found.held != new.held:
        raise ConfigError(
            f"{folder}: the trials there have {found.held} fixed, expected {new.held}; delete it,"
            " or choose another folder"
        )
    tried = [pair for trial in found.trials for pair in trial.options.items()]
    if any(name not in space or value not in space[name] for name, value in tried):
        raise ConfigError(
            f"{folder}: the trials there lie outside the search space of this version of mgformer;"
            " delete it, or choose another folder"
        )


def _make_trial(
    config: RunConfig, attempt: "optuna.Trial", split: Split, before: Bundle | None
) -> Trial:
    """Make a trial. Some options cannot be built or diverge: the trial then counts as failed."""
    optuna, began = import_optuna(), time.perf_counter()
    curve: dict[int, float] = {}

    def follow(entry: Entry) -> None:
        if SELECTION_METRIC in entry:
            curve[entry["epoch"]] = entry[SELECTION_METRIC]
            attempt.report(entry[SELECTION_METRIC], entry["epoch"])
            if attempt.should_prune():
                raise optuna.TrialPruned

    outcome: dict[str, Any]
    try:
        run = with_options(config, attempt.params)
        found = validate(run, split, before=before, write=follow)
        outcome = {"state": "complete", "valid": found.figures, "epochs": found.epochs}
    except optuna.TrialPruned:
        outcome = {"state": "pruned"}
    except (MgformerError, MemoryError, np.linalg.LinAlgError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "allocate" not in str(error):
            raise  # torch raises a RuntimeError when memory runs out
        outcome = {"state": "failed", "error": str(error) or type(error).__name__}
    seconds = round(time.perf_counter() - began, 3)
    return Trial(options=attempt.params, curve=curve, seconds=seconds, **outcome)
