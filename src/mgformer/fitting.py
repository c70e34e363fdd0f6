"""From training pairs to a scorer: builds the model, trains it, and chooses how it scores.

Everything that is chosen (the epoch, the exponent of popularity) is chosen on validation.
"""

import logging
from collections.abc import Callable
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
from mgformer.ranking.scoring import GRIDS, best_gamma, rescored
from mgformer.training import loop
from mgformer.training.workspace import Workspace

Measure = Callable[[Scorer, bool], dict[str, float] | None]
"""Validation figures of a scorer, of all users or of a part of them; None if there are none."""

log = logging.getLogger("mgformer")


class Choice(NamedTuple):
    """What was chosen on validation, so that a refit can do the same."""

    epochs: int = 0
    gamma: float | None = None


class Fitted(NamedTuple):
    """A trained recommender."""

    scorer: Scorer
    choice: Choice
    history: list[dict[str, Any]]
    """What was logged of each epoch; empty for a model without training."""


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
    kind = config.score_kind

    def scored(scorer: Scorer, sampled: bool) -> tuple[Scorer, float | None]:
        """Return the scorer with the run's kind of score, γ chosen if need be."""
        if kind is None or kind == "dot":
            return scorer, None
        assert isinstance(scorer, DotScorer)
        if kind == "cosine":
            return rescored(scorer, kind, 0.0, degrees), None
        gamma = choice.gamma if choice is not None else config.score.gamma
        if gamma is None and measure is not None:

            def value(gamma: float) -> float:
                figures = measure(rescored(scorer, kind, gamma, degrees), sampled)
                return figures[loop.SELECTED_BY] if figures else 0.0

            gamma = best_gamma(value, GRIDS[kind])
        gamma = GRIDS[kind].start if gamma is None else gamma
        return rescored(scorer, kind, gamma, degrees), gamma

    def validate(model: TrainableModel) -> dict[str, float]:
        with quietly():
            scorer, gamma = scored(model.scorer(), True)
            figures = measure(scorer, False) if measure else None
        return (figures or {}) | ({} if gamma is None else {"gamma": gamma})

    with phase(f"preparing {config.model_name}", None):
        model = MODELS[config.model_name](config.model, graph, rng)
        if not isinstance(model, TrainableModel):
            scorer, gamma = scored(model.scorer(), False)
            return Fitted(scorer, Choice(0, gamma), [])
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
        scorer, gamma = scored(model.scorer(), False)
    return Fitted(scorer, Choice(done.best_epoch, gamma), done.history)
