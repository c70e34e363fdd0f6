"""Choosing on validation: how good a scorer is, and which kind of score and γ serve it best.

The training loop calls a `Validator` after an epoch, and a run calls it once more in the end. An
epoch is judged by a sample of the validation users, the final choice by all of them.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
import torch

from mgformer.data.interactions import Interactions
from mgformer.data.splits import Split
from mgformer.progress import quietly
from mgformer.ranking.evaluation import EvaluationConfig, evaluate_part
from mgformer.ranking.metrics import SELECTION_K, SELECTION_METRIC, SELECTION_METRICS
from mgformer.ranking.score import GRIDS, Kind, ScoreConfig, Scored, best_gamma, rescored
from mgformer.ranking.scorers import DotScorer, Scorer

Figures = dict[str, float]


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
            score: γ, if it is given.
            num_users: Size of the sample of users that judges epochs; 0 means all.
            memory_mb: Bound on the working memory of ranking.
        """
        self.split, self.kinds, self.gamma = split, tuple(kinds), score.gamma
        self.sample = replace(split, valid=sample_users(split.valid, num_users))
        self.options = EvaluationConfig(ks=(SELECTION_K,), memory_mb=memory_mb)
        self.degrees = torch.from_numpy(
            np.bincount(split.train.indices, minlength=split.train.num_items)
        )

    def validate(self, scorer: Scorer, before: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Return figures of a scorer after an epoch, with the kind of score and γ behind them.

        A search for γ costs several validations. It starts from the γ of the validation before, and
        it is made in the 1st, 2nd, 4th, 8th, … validation only.

        Args:
            scorer: The model as it is.
            before: What was logged of the epochs that were validated before.
        """
        last = before[-1] if before else None
        with quietly():
            if not isinstance(scorer, DotScorer) or not self.kinds:
                return {**self.measure(scorer, self.sample), "score": None, "gamma": None}
            search = _Search(self, scorer, self.sample)
            kinds = (last["score"],) if last and last["score"] else self.kinds
            start = last["gamma"] if last else None
            searched = _is_power_of_two(len(before) + 1)
            kind, gamma = search.best(kinds, start, searched=searched, fine=False)
            figures = search.figures(kind, gamma)
        return {**figures, "score": kind, "gamma": gamma if kind in GRIDS else None}

    def choose(self, scorer: Scorer) -> Scored:
        """Return the scorer with the kind of score and γ that are best by all validation users."""
        if not isinstance(scorer, DotScorer) or not self.kinds:
            return Scored(scorer)
        search = _Search(self, scorer, self.split)
        kind, gamma = search.best(self.kinds, None, searched=True, fine=True)
        best = rescored(scorer, kind, gamma, self.degrees)
        return Scored(best, kind, gamma if kind in GRIDS else None)

    def measure(self, scorer: Scorer, split: Split | None = None) -> Figures:
        """Return Recall@20 and NDCG@20 on validation; of all users, unless a sample is given."""
        result = evaluate_part(scorer, split or self.split, "valid", self.options)
        assert result is not None, "a validator needs validation pairs"
        return {name: result.means[name] for name in reversed(SELECTION_METRICS)}


class _Search:
    """The search for the best score of one scorer; no pair of kind and γ is measured twice."""

    def __init__(self, validator: Validator, scorer: DotScorer, split: Split) -> None:
        self.validator, self.scorer, self.split = validator, scorer, split
        self.figures = cache(self._figures)

    def _figures(self, kind: Kind, gamma: float) -> Figures:
        scorer = rescored(self.scorer, kind, gamma, self.validator.degrees)
        return self.validator.measure(scorer, self.split)

    def value(self, kind: Kind, gamma: float) -> float:
        return self.figures(kind, gamma)[SELECTION_METRIC]

    def best(
        self, kinds: Sequence[Kind], start: float | None, *, searched: bool, fine: bool
    ) -> tuple[Kind, float]:
        """Return the best kind and γ.

        Args:
            kinds: Kinds to choose from.
            start: Where the search for γ starts; the grid's own start, if not given.
            searched: Whether γ is searched for, or stays where the search would start.
            fine: Whether a second search follows, with half the step.
        """
        options = [(kind, self._gamma(kind, start, searched, fine)) for kind in kinds]
        return options[0] if len(options) == 1 else max(options, key=lambda o: self.value(*o))

    def _gamma(self, kind: Kind, start: float | None, searched: bool, fine: bool) -> float:
        given = self.validator.gamma
        if kind not in GRIDS or given is not None:
            return given or 0.0
        grid = GRIDS[kind] if start is None else GRIDS[kind]._replace(start=start)
        if not searched:
            return grid.start
        gamma = best_gamma(partial(self.value, kind), grid)
        if fine:
            grid = grid._replace(start=gamma, step=grid.step / 2)
            gamma = best_gamma(partial(self.value, kind), grid)
        return gamma


def sample_users(pairs: Interactions, num_users: int) -> Interactions:
    """Return the pairs of at most so many users, evenly spaced among those who have any; 0: all."""
    if not num_users:
        return pairs
    users = np.flatnonzero(np.diff(pairs.indptr))
    kept = users[:: max(1, -(-len(users) // num_users))]
    return pairs.subset(np.isin(pairs.rows, kept))


def _is_power_of_two(number: int) -> bool:
    return number & (number - 1) == 0
