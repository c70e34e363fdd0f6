"""Tuning: options that do best on validation, among as many trials as are granted.

A trial trains on train and is measured on validation. The test part is taken away before the first
one begins: what is not there cannot be looked at.
"""

import logging
import math
import time
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mgformer.data.dataset import Dataset
from mgformer.data.splits import Split
from mgformer.errors import ConfigError, DataError, MgformerError
from mgformer.experiments.search import Attempt, GivenUp, import_optuna, propose, space_of
from mgformer.experiments.trials import Trial, Tuning, load_tuning, save_tuning
from mgformer.files import write_text
from mgformer.models.space import Dimension
from mgformer.progress import phase
from mgformer.ranking.metrics import SELECTION_METRIC
from mgformer.runs.bundle import Bundle
from mgformer.runs.config import RunConfig, build_config, flat_options, to_toml
from mgformer.runs.folder import check_config, check_data
from mgformer.runs.prepare import prepare
from mgformer.runs.train import protocol_of, validate
from mgformer.training.log import Entry

BEST = "best.toml"
log = logging.getLogger("mgformer")


class Tuned(NamedTuple):
    """What tuning found."""

    given: RunConfig
    config: RunConfig
    """The run with the best options."""
    trials: list[Trial]
    ranked: list[int]
    """Numbers of the complete trials, the best first, and the earlier of equals."""
    dataset: str
    fingerprint: str
    protocol: str

    @property
    def best(self) -> Trial:
        """The trial that did best on validation."""
        return self.trials[self.ranked[0]]

    def changes(self, trial: Trial) -> dict[str, Any]:
        """Return the options of a trial that are not those of the run that was given."""
        given = flat_options(self.given.to_mapping())
        return {name: v for name, v in trial.options.items() if given.get(name) != v}

    def counts(self) -> str:
        """Say how many trials there were, and what became of them."""
        states = Counter(trial.state for trial in self.trials)
        return f"{len(self.trials)} trials, {states['pruned']} given up, {states['failed']} failed"


def tune(
    config: RunConfig,
    folder: Path,
    trials: int,
    *,
    held: Collection[str] = (),
    timeout: float = math.inf,
    dataset: Dataset | None = None,
) -> Tuned:
    """Look for the options of a run that do best on validation, and write them to `best.toml`.

    Args:
        config: The run; it is the first trial, so that what is found is not worse.
        folder: Where trials are kept. Those that are there count, and are not made again.
        trials: How many to make in all.
        held: Options to leave as they are, by dotted name.
        timeout: Seconds after which no trial is begun; one is made in any case.
        dataset: Stands in for `config.dataset`.
    """
    began = time.monotonic()
    space = space_of(config, held)
    if not space:
        left = "; all that it has are held by --set" if space_of(config) else ""
        raise ConfigError(
            f"{config.model_name} has no options to look for{left}; train it with: mgformer train"
        )
    import_optuna()
    prepared = prepare(config, dataset)
    blind = without_test(prepared.split)
    if not len(blind.valid):
        raise DataError(
            f"{prepared.dataset.name}: has no validation part to tune on; set split.valid above 0"
        )
    tuning = _begun(folder, config, prepared.dataset.fingerprint, sorted(held), space)
    done, start = tuning.trials, flat_options(config.to_mapping())
    with phase("trials", trials) as advance:
        advance(min(len(done), trials))
        while len(done) < trials and not (done and time.monotonic() - began > timeout):
            attempt = propose(space, start, config.seed, done)
            trial = _make_trial(config, attempt, blind, prepared.before)
            log.info("trial %d: %s", len(done), _told(trial))
            done.append(trial)
            save_tuning(tuning, folder)
            advance(1)
    complete = [number for number, trial in enumerate(done) if trial.state == "complete"]
    if not complete:
        raise ConfigError(f"{folder}: all {len(done)} trials failed; the first: {done[0].error}")
    ranked = sorted(complete, key=lambda number: -done[number].value)
    tuned = Tuned(
        config,
        with_options(config, done[ranked[0]].options),
        done,
        ranked,
        prepared.dataset.name,
        tuning.fingerprint,
        protocol_of(config, blind),
    )
    write_text(folder / BEST, described(tuned))
    return tuned


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


def described(tuned: Tuned) -> str:
    """Return the best run as TOML, with how it was found."""
    number, first = tuned.ranked[0], tuned.trials[0]
    found = f"Validation NDCG@20: {tuned.best.value:.4f} in trial {number}"
    if number:
        before = f"{first.value:.4f}" if first.state == "complete" else first.state
        found += f"; with the options that were given {before}"
    lines = [
        f"{tuned.config.model_name}, tuned by mgformer tune.",
        f"Data: {tuned.dataset}, {tuned.fingerprint}.",
        f"Protocol: {tuned.protocol}.",
        f"Trials: {tuned.counts()}; seed {tuned.config.seed}; test was not looked at.",
        f"{found}.",
    ]
    return "".join(f"# {line}\n" for line in lines) + to_toml(tuned.config)


def _begun(
    folder: Path,
    config: RunConfig,
    fingerprint: str,
    held: list[str],
    space: Mapping[str, Dimension],
) -> Tuning:
    """Return the tuning in `folder` to go on with, or a new one; refuse one of something else."""
    found = load_tuning(folder)
    if found is None:
        return Tuning(config=config.to_mapping(), fingerprint=fingerprint, held=held)
    check_config(folder, found.config, config)
    check_data(folder, found.fingerprint, fingerprint)
    if found.held != held:
        raise ConfigError(
            f"{folder}: what is there was made with {found.held} held, wanted is {held};"
            " delete it, or choose another folder"
        )
    tried = [pair for trial in found.trials for pair in trial.options.items()]
    if any(name not in space or value not in space[name] for name, value in tried):
        raise ConfigError(
            f"{folder}: the trials there looked elsewhere, as those of another version of mgformer;"
            " delete it, or choose another folder"
        )
    return found


def _make_trial(config: RunConfig, attempt: Attempt, split: Split, before: Bundle | None) -> Trial:
    """Make a trial. What makes it fail is part of the result: options may be impossible."""
    began = time.perf_counter()
    curve: dict[int, float] = {}

    def follow(entry: Entry) -> None:
        if SELECTION_METRIC in entry:
            curve[entry["epoch"]] = entry[SELECTION_METRIC]
            attempt.report(entry["epoch"], entry[SELECTION_METRIC])

    def ended(**how: Any) -> Trial:
        seconds = round(time.perf_counter() - began, 3)
        return Trial(options=attempt.options, curve=curve, seconds=seconds, **how)

    try:
        run = with_options(config, attempt.options)
        found = validate(run, split, before=before, write=follow)
    except GivenUp:
        return ended(state="pruned")
    except (MgformerError, MemoryError, np.linalg.LinAlgError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "allocate" not in str(error):
            raise  # torch has no class of its own for memory that is not there
        return ended(state="failed", error=str(error) or type(error).__name__)
    return ended(state="complete", valid=found.figures, epochs=found.epochs)


def _told(trial: Trial) -> str:
    what = {"complete": "", "pruned": "given up", "failed": f"failed: {trial.error}"}[trial.state]
    options = "  ".join(f"{name}={shown(value)}" for name, value in trial.options.items())
    return f"{what or f'validation NDCG@20 {trial.value:.4f}'}  {options}"


def shown(value: Any) -> str:
    """Return the value of an option in as many digits as tell it apart."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
