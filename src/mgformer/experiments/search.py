"""Propose the next trial and prune bad ones, with optuna.

A proposal depends only on the earlier trials and the seed, so a tuning that was killed and resumed
makes the same trials as one that was not.
"""

from collections.abc import Collection, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict

from mgformer.errors import ConfigError
from mgformer.models.space import Choice, Dimension, Float, searched
from mgformer.ranking.metrics import SELECTION_METRIC
from mgformer.runs.config import RunConfig
from mgformer.training.options import SPACE

if TYPE_CHECKING:
    import optuna

RANDOM_TRIALS = 10
"""Trials that are drawn at random before the search learns from results."""
NEVER_PRUNED = 4
"""Complete trials that pruning needs to compare with."""
FIRST_JUDGED = 3
"""The first epoch at which a trial may be pruned: a low learning rate starts slowly."""


class Trial(BaseModel):
    """One set of options and its result."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    state: Literal["complete", "pruned", "failed"]
    """pruned: stopped early, because it was worse than earlier trials at the same epoch."""
    options: dict[str, Any]
    """Options that were tried, by dotted name."""
    seconds: float
    curve: dict[int, float] = {}
    """Epoch → validation NDCG@20, over the users that epochs are compared on."""
    valid: dict[str, float] = {}
    """Validation figures of all users; empty if the trial is not complete."""
    epochs: int = 0
    """The best epoch."""
    error: str | None = None
    """Why it failed."""

    @property
    def value(self) -> float:
        """The validation NDCG@20, which trials are compared by."""
        return self.valid[SELECTION_METRIC]


def search_space(config: RunConfig, fixed: Collection[str] = ()) -> dict[str, Dimension]:
    """Return the options that tuning changes, by dotted name, without those in `fixed`."""
    model = config.model_class
    found = {f"model.{n}": d for n, d in searched(model.space, config.model.model_dump()).items()}
    if config.trainable:
        training = searched(SPACE, config.train.model_dump())
        if "l2" in model.space:  # a second penalty on the same norms adds nothing
            training.pop("weight_decay", None)
        found |= {f"train.{name}": dimension for name, dimension in training.items()}
    return {name: dimension for name, dimension in found.items() if name not in fixed}


def propose(
    space: Mapping[str, Dimension], start: Mapping[str, Any], seed: int, past: Sequence[Trial]
) -> "optuna.Trial":
    """Return a trial with the options to try (`params`) after the trials in `past`.

    The first trial has the options of the given run (`start`). The search learns nothing from
    those that lie outside the space.
    """
    optuna = import_optuna()
    ranges = {name: _distribution(optuna, dimension) for name, dimension in space.items()}
    loudness = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)  # it announces every study
    sampler_seed = int(np.random.default_rng([seed, len(past)]).integers(2**31))
    study = optuna.create_study(
        direction="maximize",
        sampler=optuna.samplers.TPESampler(n_startup_trials=RANDOM_TRIALS, seed=sampler_seed),
        pruner=optuna.pruners.MedianPruner(NEVER_PRUNED, FIRST_JUDGED),
    )
    optuna.logging.set_verbosity(loudness)
    for trial in past:
        state = "FAIL" if trial.state == "failed" else trial.state.upper()
        study.add_trial(
            optuna.create_trial(
                state=optuna.trial.TrialState[state],
                value=trial.valid.get(SELECTION_METRIC),
                params=trial.options,
                distributions={name: ranges[name] for name in trial.options},
                intermediate_values=trial.curve,
            )
        )
    if past:
        return study.ask(ranges)
    inside = {n: start[n] for n, dimension in space.items() if start.get(n) in dimension}
    study.enqueue_trial(inside)
    return study.ask({name: ranges[name] for name in inside})


def import_optuna() -> ModuleType:
    """Return the package; if it is missing, raise an error that says how to install it."""
    try:
        import optuna
    except ImportError as error:
        raise ConfigError(
            "tuning needs the package optuna, which is not installed; pip install 'mgformer[tune]'"
        ) from error
    return optuna


def _distribution(optuna: ModuleType, dimension: Dimension) -> Any:
    kinds = optuna.distributions
    if isinstance(dimension, Choice):
        return kinds.CategoricalDistribution(dimension.options)
    kind = kinds.FloatDistribution if isinstance(dimension, Float) else kinds.IntDistribution
    return kind(dimension.low, dimension.high, log=dimension.log)
