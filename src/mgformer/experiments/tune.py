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

from mgformer.data.dataset import Dataset
from mgformer.data.splits import Split
from mgformer.errors import ConfigError, DataError, MgformerError
from mgformer.experiments.search import import_optuna, propose, search_space
from mgformer.experiments.trials import Trial, Tuning, load_tuning, save_tuning
from mgformer.files import write_text
from mgformer.models.space import Dimension
from mgformer.progress import phase
from mgformer.ranking.metrics import SELECTION_METRIC
from mgformer.runs.bundle import Bundle
from mgformer.runs.config import RunConfig, build_config, flat_options, to_toml
from mgformer.runs.folder import check_config, check_data
from mgformer.runs.train import prepare, protocol_of, validate
from mgformer.training.log import Entry

if TYPE_CHECKING:
    import optuna

BEST = "best.toml"
log = logging.getLogger("mgformer")


class TuningResult(NamedTuple):
    """All trials of a tuning, and the best options."""

    given: RunConfig
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
        given = flat_options(self.given.to_mapping())
        return {name: v for name, v in trial.options.items() if given.get(name) != v}

    def counts(self) -> str:
        """Say how many trials were made, pruned and failed."""
        states = Counter(trial.state for trial in self.trials)
        return f"{len(self.trials)} trials, {states['pruned']} pruned, {states['failed']} failed"

    def describe_best(self) -> str:
        """Say how many trials were made, and which options the best one changed."""
        return f"{self.counts()}; {option_list(self.changes(self.best)) or 'the given options'}"

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
    prepared = prepare(config, dataset)
    blind = without_test(prepared.split)
    if not len(blind.valid):
        raise DataError(
            f"{prepared.dataset.name}: has no validation part to tune on; set split.valid above 0"
        )
    tuning = _load_or_start(folder, config, prepared.dataset.fingerprint, sorted(fixed), space)
    done, start = tuning.trials, flat_options(config.to_mapping())
    with phase("trials", trials) as advance:
        advance(min(len(done), trials))
        while len(done) < trials and not (done and time.monotonic() - began > timeout):
            attempt = propose(space, start, config.seed, done)
            trial = _make_trial(config, attempt, blind, prepared.before)
            log.info("trial %d: %s", len(done), _line(trial))
            done.append(trial)
            save_tuning(tuning, folder)
            advance(1)
    complete = [number for number, trial in enumerate(done) if trial.state == "complete"]
    if not complete:
        raise ConfigError(f"{folder}: all {len(done)} trials failed; the first: {done[0].error}")
    ranked = sorted(complete, key=lambda number: -done[number].value)
    result = TuningResult(
        config,
        with_options(config, done[ranked[0]].options),
        done,
        ranked,
        prepared.dataset.name,
        tuning.fingerprint,
        protocol_of(config, blind),
    )
    write_text(folder / BEST, result.to_toml())
    return result


def without_test(split: Split) -> Split:
    """Return a split whose test part is empty."""
    return replace(split, test=split.test.subset(np.zeros(len(split.test), dtype=bool)))


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


def _load_or_start(
    folder: Path,
    config: RunConfig,
    fingerprint: str,
    fixed: list[str],
    space: Mapping[str, Dimension],
) -> Tuning:
    """Return the tuning in `folder`, or a new one; refuse one with other options or data."""
    found = load_tuning(folder)
    if found is None:
        return Tuning(config=config.to_mapping(), fingerprint=fingerprint, held=fixed)
    check_config(folder, found.config, config)
    check_data(folder, found.fingerprint, fingerprint)
    if found.held != fixed:
        raise ConfigError(
            f"{folder}: the trials there have {found.held} fixed, expected {fixed}; delete it, or"
            " choose another folder"
        )
    tried = [pair for trial in found.trials for pair in trial.options.items()]
    if any(name not in space or value not in space[name] for name, value in tried):
        raise ConfigError(
            f"{folder}: the trials there lie outside the search space of this version of mgformer;"
            " delete it, or choose another folder"
        )
    return found


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

    def ended(**how: Any) -> Trial:
        seconds = round(time.perf_counter() - began, 3)
        return Trial(options=attempt.params, curve=curve, seconds=seconds, **how)

    try:
        run = with_options(config, attempt.params)
        found = validate(run, split, before=before, write=follow)
    except optuna.TrialPruned:
        return ended(state="pruned")
    except (MgformerError, MemoryError, np.linalg.LinAlgError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "allocate" not in str(error):
            raise  # torch raises a RuntimeError when memory runs out
        return ended(state="failed", error=str(error) or type(error).__name__)
    return ended(state="complete", valid=found.figures, epochs=found.epochs)


def _line(trial: Trial) -> str:
    outcome = f"failed: {trial.error}" if trial.error else trial.state
    if trial.state == "complete":
        outcome = f"validation NDCG@20 {trial.value:.4f}"
    return f"{outcome}  {option_list(trial.options, '  ')}"
