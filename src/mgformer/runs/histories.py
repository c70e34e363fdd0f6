"""Bundles without histories: nobody's pairs leave the house with the recommender."""

from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from mgformer.data.attributes import NO_ATTRIBUTES
from mgformer.errors import ConfigError
from mgformer.ranking.scorers import HistoryScorer, Scorer, SumScorer
from mgformer.runs.bundle import Bundle
from mgformer.runs.config import RunConfig


def without_histories(bundle: Bundle) -> Bundle:
    """Return the recommender without pairs, figures and attributes of single users.

    User vectors, what the model learned, and the number of users of each item stay. Users without
    training pairs are folded in first, because their items are left out.
    """
    scorer = _without_rows(bundle.complete_scorer, bundle.record.model)
    return replace(
        bundle,
        scorer=scorer,
        train=bundle.train.no_pairs(),
        valid=bundle.valid.no_pairs(),
        test=bundle.test.no_pairs(),
        history=None,
        per_user=None,
        missing=None,
        about_users=NO_ATTRIBUTES,
        folded_users=np.zeros(0, dtype=np.int64),
        stored_degrees=bundle.item_degrees,
        record=bundle.record.model_copy(update={"histories": False}),
    )


def check_leaves_them_out(config: RunConfig) -> None:
    """Refuse a model that keeps the pairs of users in itself, before it is trained."""
    if "gfcf" in (config.model_name, config.score.guide, getattr(config.model, "guide", None)):
        raise ConfigError(
            "--no-histories: gfcf keeps the pairs of users inside the model; choose another model,"
            " such as ease or ridge"
        )


def check_histories(bundle: Bundle, task: str) -> None:
    """Refuse a task that needs pairs, if the bundle was saved without them."""
    if not bundle.record.histories:
        raise ConfigError(
            f"cannot {task} a recommender that was saved without histories, because it has no"
            " pairs; use the run that was saved with them, or train again"
        )


def _without_rows(scorer: Scorer, model: str) -> Scorer:
    if isinstance(scorer, SumScorer):
        history = _without_rows(scorer.history, model)
        assert isinstance(history, HistoryScorer)
        return SumScorer(scorer.vectors, history)
    if not isinstance(scorer, HistoryScorer):
        return scorer
    if scorer.through is not None:
        raise ConfigError(
            f"{model} keeps the pairs of users inside the model: it cannot be saved without"
            " histories"
        )
    nothing = sp.csr_array(scorer.histories.shape, dtype=scorer.histories.dtype)
    return replace(scorer, histories=nothing)
