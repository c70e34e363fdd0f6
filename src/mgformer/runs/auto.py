"""Choose a model on validation within a budget of time, and train the best.

Models are tried from the cheapest to the most expensive, on the same split and by the same protocol
as a single run. Only validation decides; the test is measured once, for the winner.

A small validation part makes the choice noisy. So, as long as the best is not clearly ahead (a
paired test over users), the models that may be the best are compared on one more window: the same
kind of split, made within the training pairs of the window before. There they keep the epochs and
the score that were chosen on validation. In the end the best mean over all windows wins. Popularity
wins only if it is clearly better than all others.

The same seed gives the same choice as long as the budget is not used up. Time decides which models
and windows fit in, so a smaller budget or a slower computer may change the choice.
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mgformer.data.dataset import Dataset
from mgformer.data.options import SplitConfig
from mgformer.data.splits import Split, split_dataset
from mgformer.errors import ConfigError, DataError, MgformerError
from mgformer.locks import locked
from mgformer.models import AUTO
from mgformer.progress import phase, quietly
from mgformer.ranking.evaluation import evaluate_part
from mgformer.ranking.metrics import SELECTION_K, SELECTION_METRIC, SELECTION_METRICS
from mgformer.ranking.score import Chosen
from mgformer.ranking.significance import paired_test
from mgformer.runs.bundle import Bundle
from mgformer.runs.config import RunConfig, build_config
from mgformer.runs.cost import guess_seconds
from mgformer.runs.finish import Selected, Stopwatch, finish
from mgformer.runs.fit import Fitted, fit, on_device
from mgformer.runs.record import Auto, Contestant, Figures
from mgformer.runs.train import prepare, streams_of, train, validator_of
from mgformer.runs.workspace import Workspace, load_unfinished
from mgformer.training.log import Entry
from mgformer.training.loop import Hooks

BUDGET = 120.0
"""Seconds for the choice, unless the caller gives another budget."""
MODELS = ("popularity", "itemknn", "rp3beta", "gfcf", "ease", "ridge", "guided")
FLOOR = "popularity"
"""It gives everyone the same list, so it must be clearly better than the others to win."""
WITHOUT_VALIDATION = "ridge"
"""The model if there is nothing to choose by."""
MOST_WINDOWS = 4
CLEAR = 0.05
"""A model is clearly worse than another if the p-value of the paired test is below this."""
KEPT = 0.5
"""Share of the budget that is kept for a model that is trained step by step, often the best one."""
log = logging.getLogger("mgformer")


@dataclass(frozen=True)
class Contest:
    """The runs to choose from."""

    configs: Mapping[str, RunConfig]
    refused: Mapping[str, str]
    """Models that the options do not fit, with the reason."""
    budget: float = BUDGET

    @property
    def first(self) -> RunConfig:
        """A run of the contest: all have the same data, split and seed."""
        return next(iter(self.configs.values()))


def contest(
    raw: Mapping[str, Any],
    source: str = "options",
    *,
    budget: float | None = None,
    trusted: bool = True,
    check: Callable[[RunConfig], None] = lambda config: None,
) -> Contest:
    """Return the runs to choose from, which differ in the model only.

    Args:
        raw: Sections and options, as `build_config` takes them.
        source: Where they come from, for error messages.
        budget: Seconds for the choice.
        trusted: As in `build_config`.
        check: Raises a ConfigError for a run that cannot be used.
    """
    section = raw.get("model", {})
    own = [name for name in section if name != "name"] if isinstance(section, Mapping) else []
    if own:
        raise ConfigError(
            f"{source}: model.{own[0]}: got an option of a model, but no model; name one of"
            f" {', '.join(MODELS)} with --model"
        )
    if raw.get("warm_start"):
        raise ConfigError(
            f"{source}: a run that goes on from another has its model; leave out --model {AUTO}"
        )
    if budget is not None and not budget > 0:
        raise ConfigError(f"the budget must be above 0 seconds, got {budget:g}")
    configs, refused = {}, {}
    for name in MODELS:
        try:
            config = build_config({**raw, "model": {"name": name}}, source, trusted=trusted)
            check(config)
        except ConfigError as error:
            refused[name] = str(error)
        else:
            configs[name] = config
    if not configs:
        raise ConfigError(refused[MODELS[0]])
    return Contest(configs, refused, BUDGET if budget is None else budget)


def train_best(
    contest: Contest,
    dataset: Dataset | None = None,
    *,
    folder: Path | None = None,
    resume: bool = False,
) -> Bundle:
    """Choose a model on validation, train it as a single run would, and test it.

    Args:
        contest: The runs to choose from.
        dataset: Used instead of reading the dataset of the runs.
        folder: Where a model that is trained step by step keeps its log and checkpoints.
        resume: Continue the training that followed an earlier choice, if it was interrupted there.
            An interrupted choice starts again.
    """
    with locked(folder):
        left = load_unfinished(folder) if resume and folder else None
        if left is not None and left.state["results"].get("auto"):
            winner = contest.configs[left.state["config"]["model"]["name"]]
            return train(winner, dataset, folder=folder, resume=True)
        watch, streams = Stopwatch(), streams_of(contest.first.seed)
        with watch.timed("prepare"):
            dataset, split, _ = prepare(contest.first, dataset)
        with watch.timed("train"):
            config, selected, workspace = _Choice(contest, dataset, split, folder).make()
        return finish(config, selected, dataset, split, streams.refit, watch, workspace=workspace)


@dataclass
class _Tried:
    """A model that was trained and measured."""

    config: RunConfig
    fitted: Fitted | None
    chosen: Chosen
    valid: Figures
    values: list[NDArray[np.float64]]
    """The NDCG@20 of each user, for each window."""
    seconds: float
    validation: float = 0.0
    """Seconds of `seconds` that measuring took."""
    stopped: bool = False
    entries: list[Entry] = field(default_factory=list)
    """The log of its training."""

    @property
    def name(self) -> str:
        return self.config.model_name

    def mean(self, num_windows: int) -> float:
        """Return the mean NDCG@20 over the users of some windows."""
        return float(np.concatenate(self.values[:num_windows]).mean())

    def clearly_worse(self, other: "_Tried") -> bool:
        """Whether another model is better by more than chance, on the windows that both have."""
        common = min(len(self.values), len(other.values))
        ours, theirs = (np.concatenate(one.values[:common]) for one in (self, other))
        return ours.mean() < theirs.mean() and paired_test(ours, theirs).p_value < CLEAR


@dataclass
class _Choice:
    """The choice while it is made."""

    contest: Contest
    dataset: Dataset
    split: Split
    folder: Path | None
    began: float = field(default_factory=time.monotonic)
    tried: list[_Tried] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    num_users: int = 0
    num_windows: int = 1

    @property
    def spent(self) -> float:
        """Seconds since the choice began."""
        return time.monotonic() - self.began

    @property
    def left(self) -> float:
        """Seconds until the budget is used up."""
        return self.contest.budget - self.spent

    @property
    def trainings(self) -> int:
        """Trainings that a winner needs: one, and one more with the validation pairs."""
        return 2 if self.split.refit else 1

    def make(self) -> tuple[RunConfig, Selected, Workspace | None]:
        """Try the models, and return the best one with what is known of it."""
        self.skipped |= self.contest.refused
        if not len(self.split.valid):
            return self._without_validation()
        guesses = guess_seconds(self.split.train)
        order = sorted(self.contest.configs, key=guesses.__getitem__)
        log.info("choosing among %s within %.0f s", ", ".join(order), self.contest.budget)
        with phase("choosing a model", len(order)) as advance:
            for place, name in enumerate(order):
                later = [self.contest.configs[other] for other in order[place + 1 :]]
                if not self.tried or self._fits(name, guesses, later):
                    self._try(self.contest.configs[name])
                advance(1)
        if not self.tried:
            raise ConfigError(f"no model could be trained: {next(iter(self.skipped.values()))}")
        candidates = self._compare_on_earlier_windows()
        best = max(candidates, key=lambda one: one.mean(self.num_windows))
        # A model that is too expensive for the other windows must be clearly ahead on validation.
        for one in self._may_be_best(best):
            if len(one.values) < self.num_windows and best.clearly_worse(one):
                best = one
        winner = self._personal(best)
        reason = self._reason(winner)
        log.info("%s: %s", winner.name, reason)
        config, fitted, auto = winner.config, winner.fitted, self._record(reason)
        if fitted is None and not self.split.refit:
            rng = streams_of(config.seed).select
            fitted = fit(config, self.split.train, rng, chosen=winner.chosen)
        selected = Selected(winner.chosen, winner.valid, fitted, auto)
        return config, selected, self._workspace(winner)

    def _fits(self, name: str, guesses: Mapping[str, float], later: Sequence[RunConfig]) -> bool:
        """Return whether a model fits into the time that is left; if not, skip it."""
        known = [one for one in self.tried if guesses[one.name] > 1]
        guessed = sum(guesses[one.name] for one in known)
        slowness = sum(one.seconds - one.validation for one in known) / guessed if known else 1.0
        training = guesses[name] * max(slowness, 0.5)
        validation = max(one.validation for one in self.tried)
        left = self.left
        if self.contest.configs[name].trainable:
            left /= self.trainings
        elif any(config.trainable for config in later):
            left = (1 - KEPT) * self.contest.budget - self.spent
        left = max(0.0, min(left, self.left - training * (self.trainings - 1)))
        if training + validation <= left:
            return True
        self._skip(
            name, f"would take about {training + validation:.0f} s of the {left:.0f} s for it"
        )
        return False

    def _try(self, config: RunConfig) -> None:
        """Train a model on train and measure it on validation."""
        name, began = config.model_name, time.monotonic()
        until = began + self.left / self.trainings
        # An interrupted choice starts again, so no checkpoint is kept.
        entries: list[Entry] = []
        hooks: Hooks = {"until": until, "write": entries.append}
        rng = streams_of(config.seed).select
        try:
            validator = validator_of(config, self.split)
            fitted = fit(config, self.split.train, rng, validator=validator, hooks=hooks)
            with quietly():
                valid, values = self._measure(config, fitted, self.split)
        except (MgformerError, MemoryError, np.linalg.LinAlgError) as error:
            if isinstance(error, DataError):  # the data are at fault, not the model
                raise
            self._skip(name, str(error) or type(error).__name__)
            return
        if config.trainable and not fitted.chosen.epochs:
            self._skip(name, "not one epoch ended within the budget")
            return
        stopped = config.trainable and time.monotonic() >= until
        seconds = time.monotonic() - began
        validation = validator.seconds if validator else 0.0
        one = _Tried(
            config, fitted, fitted.chosen, valid, [values], seconds, validation, stopped, entries
        )
        self.tried.append(one)
        self.num_users = len(values)
        log.info("%s: validation NDCG@20 %.4f, %.1f s", name, valid[SELECTION_METRIC], seconds)
        self._forget_what_lost()

    def _workspace(self, winner: _Tried) -> Workspace | None:
        """Open the folder of the run, if it needs one, and write the log of the training so far."""
        if self.folder is None or not winner.config.trainable:
            return None
        workspace = Workspace(self.folder, winner.config.to_mapping(), resume=False)
        workspace.begin(self.dataset.fingerprint)
        write = workspace.hooks("select")["write"]
        for entry in winner.entries:
            write(entry)
        return workspace

    def _skip(self, name: str, reason: str) -> None:
        self.skipped[name] = reason
        log.info("%s: skipped: %s", name, reason)

    def _measure(
        self, config: RunConfig, fitted: Fitted, split: Split
    ) -> tuple[Figures, NDArray[np.float64]]:
        """Return all validation figures, and the NDCG@20 of each user."""
        ks = tuple(sorted({*config.evaluation.ks, SELECTION_K}))
        options = config.evaluation.model_copy(update={"ks": ks})
        found = evaluate_part(on_device(fitted.scorer, config), split, "valid", options)
        assert found is not None, "a window has users"
        return found.means, found.values[SELECTION_METRIC]

    def _forget_what_lost(self) -> None:
        """Drop trained models that cannot win any more, because they take memory."""
        best = max(self.tried, key=lambda one: one.mean(1))
        for one in self.tried:
            if self.split.refit or one.clearly_worse(best):
                one.fitted = None

    def _may_be_best(self, best: _Tried) -> list[_Tried]:
        return [one for one in self.tried if one is best or not one.clearly_worse(best)]

    def _compare_on_earlier_windows(self) -> list[_Tried]:
        """Measure the models that may be the best on more windows; return those on all windows."""
        candidates, window = self.tried, self.split
        while self.num_windows < MOST_WINDOWS:
            best = max(candidates, key=lambda one: one.mean(self.num_windows))
            candidates = [one for one in candidates if not one.clearly_worse(best)]
            fitting: list[_Tried] = []
            for one in sorted(candidates, key=lambda one: one.seconds):
                again = one.seconds * (self.trainings - 1)  # if it is trained on validation too
                if sum(c.seconds for c in (*fitting, one)) + again < self.left:
                    fitting.append(one)
            if len(fitting) < 2:
                return candidates
            earlier = earlier_window(window, self.contest.first.split, self.contest.first.seed)
            if earlier is None:
                return candidates
            with phase(f"earlier window {self.num_windows}", len(fitting)) as advance, quietly():
                for one in fitting:
                    one.values.append(self._on(one, earlier))
                    advance(1)
            candidates, window = fitting, earlier
            self.num_windows += 1
            self.num_users += len(candidates[0].values[-1])
        return candidates

    def _on(self, one: _Tried, window: Split) -> NDArray[np.float64]:
        """Return the NDCG@20 of each user of a window, with the choices made on validation."""
        rng = streams_of(one.config.seed).select
        fitted = fit(one.config, window.train, rng, chosen=one.chosen)
        _, values = self._measure(one.config, fitted, window)
        return values

    def _personal(self, best: _Tried) -> _Tried:
        """Return the best model that knows users apart, unless popularity is clearly better."""
        others = [one for one in self._may_be_best(best) if one.name != FLOOR]
        full = [one for one in others if len(one.values) == len(best.values)]
        if best.name != FLOOR or not full:
            return best
        return max(full, key=lambda one: one.mean(len(best.values)))

    def _reason(self, winner: _Tried) -> str:
        num_earlier = len(winner.values) - 1
        windows = f" and {num_earlier} earlier windows" if num_earlier else ""
        if any(
            o.name == FLOOR and o.mean(1 + num_earlier) > winner.mean(1 + num_earlier)
            for o in self.tried
            if len(o.values) > num_earlier
        ):
            return (
                f"not clearly worse than {FLOOR} on validation{windows}, which is the same for all"
            )
        return f"the best NDCG@20 on validation{windows}"

    def _without_validation(self) -> tuple[RunConfig, Selected, Workspace | None]:
        config = self.contest.configs.get(WITHOUT_VALIDATION, self.contest.first)
        log.warning(
            "no validation pairs to compare models on: training %s; name another with --model",
            config.model_name,
        )
        fitted = fit(config, self.split.train, streams_of(config.seed).select)
        auto = self._record("there are no validation pairs to compare models on")
        return config, Selected(fitted.chosen, {}, fitted, auto), None

    def _record(self, reason: str) -> Auto:
        contestants = [
            Contestant(
                model=one.name,
                valid={name: one.valid[name] for name in SELECTION_METRICS},
                earlier=_mean_of(one.values[1:]),
                seconds=round(one.seconds, 3),
                epochs=one.chosen.epochs,
                stopped=one.stopped,
            )
            for one in self.tried
        ]
        contestants += [Contestant(model=n, skipped=why) for n, why in self.skipped.items()]
        return Auto(
            budget=self.contest.budget,
            seconds=round(self.spent, 3),
            windows=self.num_windows if self.tried else 0,
            users=self.num_users,
            reason=reason,
            contestants=contestants,
        )


def earlier_window(window: Split, options: SplitConfig, seed: int) -> Split | None:
    """Return a split of the training pairs of a window, of the same kind; None if it has no users.

    Its validation part is as large as that of the window. Splits from outside are not repeated.
    """
    given = window.kind == "given"
    rest = 1 - options.valid_share - (0.0 if given else options.test)
    share = min(options.valid_share / rest, 0.5)
    again = options.model_copy(update={"test": 0.0, "valid": share, "refit": False})
    parts = {"train": window.train} if given else None
    dataset = Dataset("an earlier window", window.train, parts)
    try:
        rng = np.random.default_rng([seed, len(window.train)])
        split = split_dataset(dataset, again.model_copy(update={"kind": window.kind}), rng)
    except MgformerError:
        return None
    known = split.train if split.history is None else split.history
    ranked = (np.diff(split.valid.indptr) > 0) & (np.diff(known.indptr) > 0)
    return split if ranked.any() and len(split.train) else None


def _mean_of(values: Iterable[NDArray[np.float64]]) -> float | None:
    parts = list(values)
    return float(np.concatenate(parts).mean()) if parts else None
