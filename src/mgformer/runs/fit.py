"""From training pairs to a scorer: builds the model, trains it, and chooses how it scores.

Everything that is chosen (the epoch, the exponent of popularity) is chosen on validation.
"""

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from mgformer.runs.config import RunConfig
from mgformer.data.interactions import Interactions
from mgformer.graph.bipartite import Graph
from mgformer.models import MODELS
from mgformer.models.base import TrainableModel
from mgformer.progress import phase, quietly
from mgformer.ranking.scorers import DotScorer, Scorer
from mgformer.ranking.score import GRIDS, Kind, best_gamma, rescored
from mgformer.training import loop
from mgformer.training.log import Entry

Among = Literal["all", "some"]
"""Validation users: all of them, or those by whom epochs, and scores of an epoch, are compared."""
Measure = Callable[[Scorer, Among], dict[str, float] | None]
"""Validation figures of a scorer among users; None if there are none."""


class Choice(NamedTuple):
    """What was chosen on validation, so that a refit can do the same."""

    epochs: int = 0
    kind: Kind | None = None
    """How embeddings are compared; None if the model has none."""
    gamma: float | None = None


class Fitted(NamedTuple):
    """A trained recommender."""

    scorer: Scorer
    choice: Choice
    weights: dict[str, Tensor]
    """The model's parameters; empty if it is not trained step by step."""


class Scored(NamedTuple):
    """A scorer with what was chosen for it, and its validation figures if they were taken."""

    scorer: Scorer
    kind: Kind | None
    gamma: float | None
    figures: dict[str, float] | None


def fit(
    config: RunConfig,
    pairs: Interactions,
    rng: np.random.Generator,
    *,
    measure: Measure | None = None,
    choice: Choice | None = None,
    hooks: loop.Hooks | None = None,
    prepare: Callable[[TrainableModel], None] | None = None,
) -> Fitted:
    """Train the configured model on `pairs` and nothing else.

    Args:
        config: The run.
        pairs: Training pairs.
        rng: Source of all that is random.
        measure: Validation; without it nothing is chosen, and training takes all its epochs.
        choice: What to take instead of choosing.
        hooks: Where log and checkpoints of a training go, and a checkpoint to go on from.
        prepare: Called with a model that is to be trained, before it is.
    """
    graph = Graph(pairs.matrix)
    degrees = torch.from_numpy(graph.item_degrees)

    def scored(scorer: Scorer, before: Sequence[Entry] = (), *, sampled: bool) -> Scored:
        """Return the scorer with the kind of score and γ that are given, or best on validation.

        `before` holds what was best for the epochs before. The search begins there, and as it
        costs several validations it is made in the 1st, 2nd, 4th, 8th, … of them only. The last
        search, by all users, is the finest.
        """
        near = before[-1] if before else None
        settled = bool(len(before) & (len(before) + 1))
        kinds: tuple[Kind, ...] = config.score_kinds
        if choice is not None:
            kinds = (choice.kind,) if choice.kind else ()
        elif near and near["score"]:
            kinds = (near["score"],)
        among: Among = "some" if sampled else "all"
        if not isinstance(scorer, DotScorer) or not kinds:
            return Scored(
                scorer, None, None, measure(scorer, among) if measure and sampled else None
            )

        @cache
        def figures(kind: Kind, gamma: float) -> dict[str, float] | None:
            return measure(rescored(scorer, kind, gamma, degrees), among) if measure else None

        def value(kind: Kind, gamma: float) -> float:
            return (figures(kind, gamma) or {}).get(loop.SELECTED_BY, 0.0)

        options: list[tuple[Kind, float]] = []
        for kind in kinds:
            gamma = config.score.gamma if choice is None else choice.gamma
            if kind in GRIDS and gamma is None:
                grid = GRIDS[kind]
                if near and near["gamma"] is not None:
                    grid = grid._replace(start=near["gamma"])
                gamma = grid.start
                if measure is not None and choice is None and not settled:
                    gamma = best_gamma(partial(value, kind), grid)
                    if not sampled:
                        grid = grid._replace(start=gamma, step=grid.step / 2)
                        gamma = best_gamma(partial(value, kind), grid)
            options.append((kind, gamma or 0.0))
        kind, gamma = options[0] if len(options) == 1 else max(options, key=lambda o: value(*o))
        best = rescored(scorer, kind, gamma, degrees)
        weight = gamma if kind in GRIDS else None
        return Scored(best, kind, weight, figures(kind, gamma) if sampled else None)

    def validate(model: TrainableModel, before: Sequence[Entry]) -> Entry:
        with quietly():
            done = scored(model.scorer(), before, sampled=True)
        return {**(done.figures or {}), "score": done.kind, "gamma": done.gamma}

    with phase(f"preparing {config.model_name}", None):
        model = MODELS[config.model_name](config.model, graph, rng)
        if not isinstance(model, TrainableModel):
            scorer, kind, gamma, _ = scored(model.scorer(), sampled=False)
            return Fitted(scorer, Choice(0, kind, gamma), {})
    if prepare is not None:
        prepare(model)
    done = loop.fit(
        model,
        pairs,
        config.train,
        rng,
        validate=validate if measure is not None and choice is None else None,
        epochs=choice.epochs if choice else None,
        **(hooks or {}),
    )
    with quietly():
        scorer, kind, gamma, _ = scored(model.scorer(), sampled=False)
    weights = {name: value.detach().clone() for name, value in model.state_dict().items()}
    return Fitted(scorer, Choice(done.best_epoch, kind, gamma), weights)
