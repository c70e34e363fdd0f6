"""Choosing on validation: how good a scorer is, and which score serves it best.

The training loop calls a `Validator` after an epoch, and a run calls it once more in the end. An
epoch is judged by a sample of the validation users, the final choice by all of them.
"""

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import torch

from mgformer.data.chronology import Chronology
from mgformer.data.interactions import Interactions
from mgformer.data.splits import Split
from mgformer.progress import quietly
from mgformer.ranking.evaluation import EvaluationConfig, evaluate_part
from mgformer.ranking.metrics import SELECTION_K, SELECTION_METRIC, SELECTION_METRICS
from mgformer.ranking.score import (
    ADDED_TREND,
    DELTAS,
    GRIDS,
    KAPPAS,
    TREND_FACTOR,
    Ingredients,
    Kind,
    ScoreConfig,
    Scored,
    Weights,
    climb,
)
from mgformer.ranking.scorers import DotScorer, HistoryScorer, Scorer

Figures = dict[str, float]
SEARCH_USERS = 2_000
"""Users of the sample that a search for weights looks at during the training."""
LOGGED = {"kind": "score", "gamma": "gamma", "delta": "delta", "eta": "eta", "kappa": "kappa"}
"""Names of the weights in the log of an epoch."""


class Validator:
    """Measures scorers on the validation part of a split."""

    def __init__(
        self,
        split: Split,
        kinds: Sequence[Kind],
        score: ScoreConfig,
        *,
        num_users: int,
        memory_mb: int,
    ) -> None:
        """Keep the split; it must have validation pairs.

        Args:
            split: Train and validation; test is never looked at.
            kinds: How embeddings may be compared; empty if the model has none.
            score: Weights that are given, and whether time is used.
            num_users: Size of the sample of users that judges epochs; 0 means all.
            memory_mb: Bound on the working memory of ranking.
        """
        self.split, self.kinds, self.given = split, tuple(kinds), score
        self.seconds = 0.0
        """Time that measuring has taken so far."""
        self.sample = replace(split, valid=sample_users(split.valid, num_users))
        few = sample_users(self.sample.valid, SEARCH_USERS)
        enough = len(few) == len(self.sample.valid)
        self.few = self.sample if enough else replace(split, valid=few)
        self.options = EvaluationConfig(ks=(SELECTION_K,), memory_mb=memory_mb)
        degrees = np.bincount(split.train.indices, minlength=split.train.num_items)
        self.ingredients = Ingredients(
            torch.from_numpy(degrees), None, chronology_of(split.train, split, score)
        )

    def use_guide(self, guide: HistoryScorer | None) -> None:
        """Let a guide add to scores; it is known only when the model is built."""
        self.ingredients = self.ingredients._replace(guide=guide)

    def validate(self, scorer: Scorer, before: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Return figures of a scorer after an epoch, with the score behind them.

        A search for weights costs several validations. It starts from those of the validation
        before, and it is made in the 1st, 2nd, 4th, 8th, … validation only.

        Args:
            scorer: The model as it is.
            before: What was logged of the epochs that were validated before.
        """
        with quietly():
            starts = self._starts(scorer)
            if before and before[-1]["score"]:
                known = Weights(**{name: before[-1].get(at) for name, at in LOGGED.items()})
                starts = [self.ingredients.useful(scorer, known)]
            searched = _is_power_of_two(len(before) + 1)
            search = _Search(self, scorer, self.few)
            best = search.best(starts, searched=searched, fine=False)
            if self.few is not self.sample:
                search = _Search(self, scorer, self.sample)
            return {**search.figures(best), **logged(best)}

    def choose(self, scorer: Scorer) -> Scored:
        """Return the scorer with the score that is best on validation.

        All users decide, but a search of many weights looks at samples of them.
        """
        starts = self._starts(scorer)
        if starts == [Weights()]:
            return Scored(scorer)
        timed = self.ingredients.chronology is not None
        search = _Search(self, scorer, self.sample if timed else self.split)
        if len(search.axes(starts[0])) > 1:
            starts = [_Search(self, scorer, self.few).best(starts, searched=True, fine=False)]
        return self.ingredients.compose(scorer, search.best(starts, searched=True, fine=True))

    def _starts(self, scorer: Scorer) -> list[Weights]:
        """Return where the search for the weights of each kind of score starts."""
        kinds: Sequence[Kind | None] = self.kinds if isinstance(scorer, DotScorer) else ()
        return [
            self.ingredients.useful(scorer, Weights(kind, *self.given.given_weights))
            for kind in kinds or (None,)
        ]

    def measure(self, scorer: Scorer, split: Split | None = None) -> Figures:
        """Return Recall@20 and NDCG@20 on validation; of all users, unless a sample is given."""
        began = time.monotonic()
        result = evaluate_part(scorer, split or self.split, "valid", self.options)
        self.seconds += time.monotonic() - began
        assert result is not None, "a validator needs validation pairs"
        return {name: result.means[name] for name in reversed(SELECTION_METRICS)}


def chronology_of(
    pairs: Interactions, split: Split | None, score: ScoreConfig
) -> Chronology | None:
    """Return the order of training pairs if the score may use it, or None.

    Without a split, the pairs are those of a refit, and the order may be used.
    """
    if pairs.order is None or score.time == "off":
        return None
    if split is not None and score.time == "auto" and not split.chronological:
        return None
    return Chronology(pairs)


def logged(weights: Weights) -> dict[str, Any]:
    """Return weights as the log of an epoch has them."""
    named = {at: getattr(weights, name) for name, at in LOGGED.items()}
    return {
        at: value for at, value in named.items() if value is not None or at in ("score", "gamma")
    }


class _Search:
    """The search for the best score of one scorer; no score is measured twice."""

    def __init__(self, validator: Validator, scorer: Scorer, split: Split) -> None:
        self.validator, self.scorer, self.split = validator, scorer, split
        self.figures = cache(self._figures)

    def _figures(self, weights: Weights) -> Figures:
        scorer = self.validator.ingredients.compose(self.scorer, weights).scorer
        return self.validator.measure(scorer, self.split)

    def value(self, weights: Weights) -> float:
        """Return what is to be as large as possible."""
        return self.figures(weights)[SELECTION_METRIC]

    def best(self, starts: Sequence[Weights], *, searched: bool, fine: bool) -> Weights:
        """Return the best score.

        Args:
            starts: Scores of the kinds to choose from.
            searched: Whether weights are searched for, or stay where the search would start.
            fine: Whether a second search follows, with half the steps.
        """
        found = [self._climb(start, fine) for start in starts] if searched else [*starts]
        return found[0] if len(found) == 1 else max(found, key=self.value)

    def _climb(self, weights: Weights, fine: bool) -> Weights:
        """Change one weight after the other, until none gets better."""
        before = None
        while weights != before:
            before = weights
            for name, values in self.axes(weights).items():
                weights = self._along(name, values, weights)
        if fine:
            for name, values in self.axes(weights, parts=2).items():
                weights = self._along(name, values, weights)
        return weights

    def _along(self, name: str, values: Sequence[float], weights: Weights) -> Weights:
        def changed(value: float) -> Weights:
            return Weights(**{**weights._asdict(), name: value})

        start = getattr(weights, name)
        return changed(climb(lambda value: self.value(changed(value)), values, start))

    def axes(self, weights: Weights, parts: int = 1) -> dict[str, Sequence[float]]:
        """Return the weights to search for and the values to try; `parts` divides the steps."""
        found: dict[str, Sequence[float]] = {}
        if weights.gamma is not None and weights.kind is not None:
            found["gamma"] = GRIDS[weights.kind].values(parts)
        if weights.delta is not None:
            between = (0.5**0.5 * delta for delta in DELTAS) if parts > 1 else ()
            found["delta"] = sorted({*DELTAS, *between})
        if weights.eta is not None:
            power = weights.kind in (None, "degree")
            found["eta"] = (TREND_FACTOR if power else ADDED_TREND).values(parts)
        if weights.kappa is not None:
            found["kappa"] = KAPPAS
        given = self.validator.given
        return {name: values for name, values in found.items() if getattr(given, name) is None}


def sample_users(pairs: Interactions, num_users: int) -> Interactions:
    """Return the pairs of at most so many users, evenly spaced among those who have any; 0: all."""
    if not num_users:
        return pairs
    users = np.flatnonzero(np.diff(pairs.indptr))
    kept = users[:: max(1, -(-len(users) // num_users))]
    return pairs.subset(np.isin(pairs.rows, kept))


def _is_power_of_two(number: int) -> bool:
    return number & (number - 1) == 0
