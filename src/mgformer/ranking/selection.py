"""Choosing on validation: how good a scorer is, and which kind of score, γ and δ serve it best.

The training loop calls a `Validator` after an epoch, and a run calls it once more in the end. An
epoch is judged by a sample of the validation users, the final choice by all of them.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch

from mgformer.data.interactions import Interactions
from mgformer.data.splits import Split
from mgformer.progress import quietly
from mgformer.ranking.evaluation import EvaluationConfig, evaluate_part
from mgformer.ranking.metrics import SELECTION_K, SELECTION_METRIC, SELECTION_METRICS
from mgformer.ranking.score import (
    DELTA,
    DELTAS,
    GRIDS,
    Kind,
    ScoreConfig,
    Scored,
    best_gamma,
    climb,
    guided,
    rescored,
)
from mgformer.ranking.scorers import DotScorer, HistoryScorer, Scorer

Figures = dict[str, float]


class Weights(NamedTuple):
    """What a score is made of."""

    kind: Kind
    gamma: float = 0.0
    """Weight of popularity; without effect on kinds that have none."""
    delta: float = 0.0
    """Weight of the guide."""


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
            score: γ and δ, if they are given.
            num_users: Size of the sample of users that judges epochs; 0 means all.
            memory_mb: Bound on the working memory of ranking.
        """
        self.split, self.kinds = split, tuple(kinds)
        self.gamma, self.delta = score.gamma, score.delta
        self.guide: HistoryScorer | None = None  # known only when the model is built
        self.sample = replace(split, valid=sample_users(split.valid, num_users))
        self.options = EvaluationConfig(ks=(SELECTION_K,), memory_mb=memory_mb)
        self.degrees = torch.from_numpy(
            np.bincount(split.train.indices, minlength=split.train.num_items)
        )

    def validate(self, scorer: Scorer, before: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Return figures of a scorer after an epoch, with the score behind them.

        A search for γ and δ costs several validations. It starts from those of the validation
        before, and it is made in the 1st, 2nd, 4th, 8th, … validation only.

        Args:
            scorer: The model as it is.
            before: What was logged of the epochs that were validated before.
        """
        last = before[-1] if before else None
        with quietly():
            if not isinstance(scorer, DotScorer) or not self.kinds:
                return {**self.measure(scorer, self.sample), **self._named(Scored(scorer))}
            search = _Search(self, scorer, self.sample)
            starts = [self._start(kind) for kind in self.kinds]
            if last and last["score"]:
                known = [last["score"], last["gamma"] or 0.0, last.get("delta") or 0.0]
                starts = [Weights(*known)]
            best = search.best(starts, searched=_is_power_of_two(len(before) + 1), fine=False)
            return {**search.figures(best), **self._named(search.scored(best))}

    def choose(self, scorer: Scorer) -> Scored:
        """Return the scorer with the score that is best by all validation users."""
        if not isinstance(scorer, DotScorer) or not self.kinds:
            return Scored(scorer)
        search = _Search(self, scorer, self.split)
        starts = [self._start(kind) for kind in self.kinds]
        if self.guide is not None:  # a score with a guide takes longer: begin with the sample
            starts = [_Search(self, scorer, self.sample).best(starts, searched=True, fine=False)]
        return search.scored(search.best(starts, searched=True, fine=True))

    def _start(self, kind: Kind) -> Weights:
        """Return where the search for the weights of a kind of score starts."""
        gamma = GRIDS[kind].start if self.gamma is None and kind in GRIDS else self.gamma
        delta = DELTA if self.delta is None else self.delta
        return Weights(kind, gamma or 0.0, delta if self.guide else 0.0)

    @staticmethod
    def _named(scored: Scored) -> dict[str, Any]:
        """Return the score as the log of an epoch has it."""
        named = {"score": scored.kind, "gamma": scored.gamma}
        return named if scored.delta is None else {**named, "delta": scored.delta}

    def measure(self, scorer: Scorer, split: Split | None = None) -> Figures:
        """Return Recall@20 and NDCG@20 on validation; of all users, unless a sample is given."""
        result = evaluate_part(scorer, split or self.split, "valid", self.options)
        assert result is not None, "a validator needs validation pairs"
        return {name: result.means[name] for name in reversed(SELECTION_METRICS)}


class _Search:
    """The search for the best score of one scorer; no score is measured twice."""

    def __init__(self, validator: Validator, scorer: DotScorer, split: Split) -> None:
        self.validator, self.scorer, self.split = validator, scorer, split
        self.figures = cache(self._figures)

    def scored(self, weights: Weights) -> Scored:
        """Return the scorer with a score of these weights."""
        kind, gamma, delta = weights
        vectors = rescored(self.scorer, kind, gamma, self.validator.degrees)
        guide = self.validator.guide
        return Scored(
            guided(vectors, guide, delta),
            kind,
            gamma if kind in GRIDS else None,
            delta if guide else None,
        )

    def _figures(self, weights: Weights) -> Figures:
        return self.validator.measure(self.scored(weights).scorer, self.split)

    def value(self, weights: Weights) -> float:
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
        """Change γ and δ in turn, until neither gets better."""
        before = None
        while weights != before:
            before = weights
            weights = self._with_delta(self._with_gamma(weights, 1), DELTAS)
        if fine:
            between = (0.5**0.5 * delta for delta in DELTAS)
            weights = self._with_delta(weights, sorted({*DELTAS, *between}))
            weights = self._with_gamma(weights, 2)
        return weights

    def _with_gamma(self, weights: Weights, parts: int) -> Weights:
        """Climb along γ; `parts` divides the steps of the grid."""
        if weights.kind not in GRIDS or self.validator.gamma is not None:
            return weights
        grid = GRIDS[weights.kind]
        grid = grid._replace(start=weights.gamma, step=grid.step / parts)
        return weights._replace(
            gamma=best_gamma(lambda gamma: self.value(weights._replace(gamma=gamma)), grid)
        )

    def _with_delta(self, weights: Weights, deltas: Sequence[float]) -> Weights:
        if self.validator.guide is None or self.validator.delta is not None:
            return weights
        return weights._replace(
            delta=climb(
                lambda delta: self.value(weights._replace(delta=delta)), deltas, weights.delta
            )
        )


def sample_users(pairs: Interactions, num_users: int) -> Interactions:
    """Return the pairs of at most so many users, evenly spaced among those who have any; 0: all."""
    if not num_users:
        return pairs
    users = np.flatnonzero(np.diff(pairs.indptr))
    kept = users[:: max(1, -(-len(users) // num_users))]
    return pairs.subset(np.isin(pairs.rows, kept))


def _is_power_of_two(number: int) -> bool:
    return number & (number - 1) == 0
