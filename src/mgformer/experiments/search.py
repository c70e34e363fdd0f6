"""What to try next, and when to give up on it: optuna, behind two functions.

A proposal depends on the trials before it and the seed, and on nothing else: a tuning that goes on
after it was killed makes the trials that it would have made.
"""

from collections.abc import Collection, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from mgformer.errors import ConfigError
from mgformer.experiments.trials import Trial
from mgformer.models.space import Choice, Dimension, Float, searched
from mgformer.runs.config import RunConfig
from mgformer.training.options import SPACE

if TYPE_CHECKING:
    import optuna

RANDOM_TRIALS = 10
"""Trials that are drawn at random before the search goes by what they gave."""
NEVER_PRUNED = 4
"""Trials that are complete before one is compared with them and given up."""
FIRST_JUDGED = 3
"""The first epoch at which one may be given up: a low learning rate begins slowly."""


class GivenUp(Exception):
    """The trial does worse than most did at this epoch."""


class Attempt:
    """Options to try."""

    def __init__(self, trial: "optuna.Trial") -> None:
        self.options: dict[str, Any] = dict(trial.params)
        self._trial = trial

    def report(self, epoch: int, value: float) -> None:
        """Say how it does; raises `GivenUp` where that is below the median of the trials before."""
        self._trial.report(value, epoch)
        if self._trial.should_prune():
            raise GivenUp


def space_of(config: RunConfig, held: Collection[str] = ()) -> dict[str, Dimension]:
    """Return what is looked for in tuning a run, by dotted name, without what is `held`."""
    model = config.model_class
    found = {f"model.{n}": d for n, d in searched(model.space, config.model.model_dump()).items()}
    if config.trainable:
        training = searched(SPACE, config.train.model_dump())
        if "l2" in model.space:  # a penalty of its own: a second one on the same norms adds nothing
            training.pop("weight_decay", None)
        found |= {f"train.{name}": dimension for name, dimension in training.items()}
    return {name: dimension for name, dimension in found.items() if name not in held}


def propose(
    space: Mapping[str, Dimension], start: Mapping[str, Any], seed: int, past: Sequence[Trial]
) -> Attempt:
    """Return what to try after the trials in `past`; the first is where the search starts.

    Args:
        space: What is looked for.
        start: Options of the run that was given; what lies outside of the space is tried, but
            nothing is learned from it.
        seed: Of the sampler.
        past: All trials before.
    """
    optuna = import_optuna()
    ranges = {name: _distribution(optuna, dimension) for name, dimension in space.items()}
    study = _study(optuna, int(np.random.default_rng([seed, len(past)]).integers(2**31)))
    states = {
        "complete": optuna.trial.TrialState.COMPLETE,
        "pruned": optuna.trial.TrialState.PRUNED,
        "failed": optuna.trial.TrialState.FAIL,
    }
    for trial in past:
        study.add_trial(
            optuna.create_trial(
                state=states[trial.state],
                value=trial.value if trial.state == "complete" else None,
                params=trial.options,
                distributions={name: ranges[name] for name in trial.options},
                intermediate_values=trial.curve,
            )
        )
    if past:
        return Attempt(study.ask(ranges))
    inside = {n: start[n] for n, dimension in space.items() if start.get(n) in dimension}
    study.enqueue_trial(inside)
    return Attempt(study.ask({name: ranges[name] for name in inside}))


def import_optuna() -> ModuleType:
    """Return the package, or say how to get it."""
    try:
        import optuna
    except ImportError as error:
        raise ConfigError(
            "tuning needs the package optuna, which is not installed; pip install 'mgformer[tune]'"
        ) from error
    return optuna


def _study(optuna: ModuleType, seed: int) -> "optuna.Study":
    loudness = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)  # it announces every study
    try:
        return optuna.create_study(
            direction="maximize",
            sampler=optuna.samplers.TPESampler(n_startup_trials=RANDOM_TRIALS, seed=seed),
            pruner=optuna.pruners.MedianPruner(NEVER_PRUNED, FIRST_JUDGED),
        )
    finally:
        optuna.logging.set_verbosity(loudness)


def _distribution(optuna: ModuleType, dimension: Dimension) -> Any:
    kinds = optuna.distributions
    if isinstance(dimension, Choice):
        return kinds.CategoricalDistribution(dimension.options)
    kind = kinds.FloatDistribution if isinstance(dimension, Float) else kinds.IntDistribution
    return kind(dimension.low, dimension.high, log=dimension.log)
