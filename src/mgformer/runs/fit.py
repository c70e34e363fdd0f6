"""From training pairs to a scorer: build the model, train it, choose how it scores."""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mgformer.data.chronology import Chronology, recency
from mgformer.data.interactions import Interactions
from mgformer.device import HOST, for_ranking, resolve
from mgformer.errors import ConfigError
from mgformer.graph.bipartite import Graph
from mgformer.models import build_model, model_class
from mgformer.models.base import Model, TrainableModel
from mgformer.progress import phase, quietly
from mgformer.ranking.devices import moved
from mgformer.ranking.score import Chosen, Ingredients, Scored, Weights
from mgformer.ranking.scorers import HistoryScorer, Scorer
from mgformer.ranking.selection import Validator, chronology_of
from mgformer.runs.bundle import Bundle
from mgformer.runs.config import RunConfig
from mgformer.runs.warm_start import adopt
from mgformer.training import loop


class Fitted(NamedTuple):
    """A trained recommender."""

    scorer: Scorer
    chosen: Chosen
    weights: dict[str, Tensor]
    """The model's parameters; empty if it is not trained step by step."""


def fit(
    config: RunConfig,
    pairs: Interactions,
    rng: np.random.Generator,
    *,
    validator: Validator | None = None,
    chosen: Chosen | None = None,
    hooks: loop.Hooks | None = None,
    before: Bundle | None = None,
) -> Fitted:
    """Train the configured model on `pairs` and nothing else.

    Args:
        config: The run.
        pairs: Training pairs.
        rng: Source of everything random.
        validator: Chooses the epoch, the kind of score and its weights. Without it, and without
            `chosen`, all epochs are trained and the score has its defaults.
        chosen: Epochs and score of an earlier training, to be used instead of choosing.
        hooks: Where the log and the checkpoints of the training go, and where to resume.
        before: A trained recommender whose weights the model starts from.
    """
    chronology = _chronology(config, pairs, validator, chosen)
    positions = None if chronology is None else chronology.positions
    check_weights(config, pairs)
    graph = Graph(pairs.matrix, positions, pairs.strengths)
    with phase(f"preparing {config.model_name}", None):
        model = build_model(config.model_name, config.model, graph, rng)
        guide = _guide(config, model, graph, rng) if config.score_kinds else None
        if validator is not None:
            validator.use_guide(guide)
        if not isinstance(model, TrainableModel):
            ready = on_device(model.scorer(), config)
            scored = _scored(config, pairs, ready, guide, chronology, validator, chosen)
            return Fitted(moved(scored.scorer, HOST), Chosen(0, scored.weights), {})
    if before is not None:
        adopt(model, before, pairs.users, pairs.items)
    done = loop.fit(
        model,
        pairs,
        config.train,
        rng,
        chances=_chances(config, pairs, positions),
        validate=_there(validator, config) if validator else None,
        epochs=chosen.epochs if chosen else None,
        **(hooks or {}),
    )
    with quietly():
        ready = on_device(model.scorer(), config)
        scored = _scored(config, pairs, ready, guide, chronology, validator, chosen)
    return Fitted(
        moved(scored.scorer, HOST), Chosen(done.best_epoch, scored.weights), loop.weights_of(model)
    )


def on_device(scorer: Scorer, config: RunConfig) -> Scorer:
    """Return a scorer on the device that ranks in a run."""
    return moved(scorer, for_ranking(resolve(config.train.device)))


def _there(validator: Validator, config: RunConfig) -> loop.Validate:
    return lambda scorer, before: validator.validate(on_device(scorer, config), before)


def _guide(
    config: RunConfig, model: Model, graph: Graph, rng: np.random.Generator
) -> HistoryScorer | None:
    """Return what adds to the scores of the model, or None."""
    name = config.score.guide
    if name in ("ridge", "gfcf"):
        guide = build_model(name, model_class(name).Config(), graph, rng).scorer()
        assert isinstance(guide, HistoryScorer)
        return guide
    own = model.guide() if name == "auto" else None
    if own is None and config.score.delta is not None:
        raise ConfigError(
            f"score.delta: {config.model_name} has no guide to weigh; leave it out, or set"
            " score.guide=ridge"
        )
    return own


def _chronology(
    config: RunConfig,
    pairs: Interactions,
    validator: Validator | None,
    chosen: Chosen | None,
) -> Chronology | None:
    """Return the order of the pairs if validation, an earlier choice or the config uses it."""
    if validator is not None:
        return validator.ingredients.chronology
    weights = chosen.weights if chosen else config.score
    timed = weights.eta is not None or weights.kappa is not None
    return chronology_of(pairs, None, config.score) if timed else None


def check_weights(config: RunConfig, pairs: Interactions) -> None:
    """Refuse weights of pairs that the model would ignore."""
    if pairs.weights is not None and config.model_class.weights is None:
        raise ConfigError(
            f"{config.model_name} does not use the weights of pairs, and the data have some; ignore"
            " them with --set data.weight='', or choose another model"
        )


def _chances(
    config: RunConfig, pairs: Interactions, positions: NDArray[np.float32] | None
) -> NDArray[np.float64] | None:
    """Return the chance of each pair to be drawn; None if all are drawn equally often."""
    factors: list[NDArray[np.float32]] = []
    if positions is not None and config.train.recency:
        factors.append(recency(positions, config.train.recency))
    if pairs.strengths is not None:
        factors.append(pairs.strengths)
    if not factors:
        return None
    chances = np.prod([factor.astype(np.float64) for factor in factors], axis=0)
    return np.asarray(chances / chances.sum(), dtype=np.float64)


def _scored(
    config: RunConfig,
    pairs: Interactions,
    scorer: Scorer,
    guide: HistoryScorer | None,
    chronology: Chronology | None,
    validator: Validator | None,
    chosen: Chosen | None,
) -> Scored:
    """Return the scorer with the score that was chosen before, or is best, or is the default."""
    if validator is not None:
        return validator.choose(scorer)
    weights = Weights(next(iter(config.score_kinds), None), *config.score.given_weights)
    weights = chosen.weights if chosen else weights
    degrees = np.bincount(pairs.indices, minlength=pairs.num_items)
    return Ingredients(torch.from_numpy(degrees), guide, chronology).compose(scorer, weights)
