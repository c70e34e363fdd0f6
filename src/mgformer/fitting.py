"""From training pairs to a scorer: builds the model, trains it, and chooses how it scores.

Everything that is chosen (the epoch, the exponent of popularity) is chosen on validation.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch

from mgformer.config import RunConfig
from mgformer.data.interactions import Interactions
from mgformer.graph.bipartite import Graph
from mgformer.models import MODELS
from mgformer.models.base import TrainableModel
from mgformer.progress import phase, quietly
from mgformer.ranking.scorers import DotScorer, Scorer
from mgformer.ranking.scoring import GRIDS, Kind, best_gamma, rescored
from mgformer.training import loop
from mgformer.training.workspace import Workspace

Measure = Callable[[Scorer, bool], dict[str, float] | None]
"""Validation figures of a scorer, of all users or of a part of them; None if there are none."""


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


def fit(
    config: RunConfig,
    pairs: Interactions,
    rng: np.random.Generator,
    *,
    measure: Measure | None = None,
    choice: Choice | None = None,
    workspace: Workspace | None = None,
) -> Fitted:
    """Train the configured model on `pairs` and nothing else.

    Args:
        config: The run.
        pairs: Training pairs.
        rng: Source of all that is random.
        measure: Validation; without it nothing is chosen, and training takes all its epochs.
        choice: What to take instead of choosing.
        workspace: Where log and checkpoints go, and where a checkpoint to go on from is.
    """
    graph = Graph(pairs.matrix)
    degrees = torch.from_numpy(graph.item_degrees)

    def scored(scorer: Scorer, sampled: bool) -> tuple[Scorer, Kind | None, float | None]:
        """Return the scorer with the kind of score and γ that are given, or best on validation."""
        kinds = config.score_kinds if choice is None else _kinds(choice.kind)
        if not isinstance(scorer, DotScorer) or not kinds:
            return scorer, None, None
        given = config.score.gamma if choice is None else choice.gamma

        def value(kind: Kind, gamma: float) -> float:
            assert measure is not None
            figures = measure(rescored(scorer, kind, gamma, degrees), sampled)
            return figures[loop.SELECTED_BY] if figures else 0.0

        options: list[tuple[Kind, float | None]] = []
        for kind in kinds:
            gamma = given
            if kind in GRIDS and given is None:
                search = measure is not None and choice is None
                gamma = GRIDS[kind].start
                gamma = best_gamma(partial(value, kind), GRIDS[kind]) if search else gamma
            options.append((kind, gamma))
        kind, gamma = options[0]
        if len(options) > 1 and measure is not None:
            kind, gamma = max(options, key=lambda option: value(option[0], option[1] or 0.0))
        return rescored(scorer, kind, gamma or 0.0, degrees), kind, gamma

    def validate(model: TrainableModel) -> dict[str, Any]:
        with quietly():
            scorer, kind, gamma = scored(model.scorer(), True)
            figures = measure(scorer, False) if measure else None
        return {**(figures or {}), "score": kind, "gamma": gamma}

    with phase(f"preparing {config.model_name}", None):
        model = MODELS[config.model_name](config.model, graph, rng)
        if not isinstance(model, TrainableModel):
            scorer, kind, gamma = scored(model.scorer(), False)
            return Fitted(scorer, Choice(0, kind, gamma))
    done = loop.fit(
        model,
        pairs,
        config.train,
        rng,
        validate=validate if measure is not None and choice is None else None,
        epochs=choice.epochs if choice else None,
        **(workspace.hooks() if workspace else {}),
    )
    with quietly():
        scorer, kind, gamma = scored(model.scorer(), False)
    return Fitted(scorer, Choice(done.best_epoch, kind, gamma))


def _kinds(kind: Kind | None) -> tuple[Kind, ...]:
    return () if kind is None else (kind,)
