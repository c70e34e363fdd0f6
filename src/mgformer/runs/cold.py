"""Predictions from attributes, in a run and in a bundle.

A bundle keeps the vectors that predictions have changed as the model learned them. So when pairs,
items or attributes change, everything is predicted again: the result is what it would be if they
had been so from the start.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from mgformer.data.attribute_features import features_of
from mgformer.data.attributes import Attributes
from mgformer.graph.feature_ridge import Setting
from mgformer.progress import phase
from mgformer.ranking.cold import (
    Known,
    Predicted,
    own_vectors,
    with_cold_items,
    with_own_vectors,
)
from mgformer.ranking.cold_users import with_cold_users
from mgformer.ranking.scorers import Scorer
from mgformer.runs.bundle import Bundle
from mgformer.runs.record import ColdSetting


def predicted(
    scorer: Scorer,
    about: Attributes,
    degrees: NDArray[np.int64],
    *,
    wanted: bool,
    given: Mapping[str, Setting] | None = None,
) -> Predicted:
    """Return a scorer with predictions for items without or with few interactions.

    Args:
        scorer: What a model has learned.
        about: [I] attributes of its items.
        degrees: [I] pairs of each item that it has learned from.
        wanted: Whether the config of the run asks for predictions.
        given: Settings that were chosen before.
    """
    if not wanted or not about:
        return Predicted(scorer, {})
    with phase("cold items", None):
        return with_cold_items(scorer, Known(features_of(about, len(degrees)), degrees), given)


def settings_of(filled: Predicted) -> dict[str, ColdSetting] | None:
    """Return how something was predicted, for the record; None if nothing was."""
    found = {part: ColdSetting(**own._asdict()) for part, own in filled.settings.items()}
    return found or None


def wants_predictions(bundle: Bundle) -> bool:
    """Return whether the run of a bundle asks for predictions from attributes."""
    return bool(bundle.record.config.get("score", {}).get("cold", True))


def as_learned(bundle: Bundle) -> Bundle:
    """Return the recommender before its predictions; items without interactions keep theirs."""
    scorer = with_own_vectors(bundle.scorer, bundle.own_vectors)
    return replace(bundle, scorer=scorer, own_vectors=None)


def with_predictions(bundle: Bundle) -> Bundle:
    """Return a recommender `as_learned` with predictions for its items and its users."""
    return with_predicted_users(with_predicted_items(bundle))


def with_predicted_items(bundle: Bundle) -> Bundle:
    """Return a recommender `as_learned` with predictions for its items."""
    degrees, wanted = bundle.item_degrees, wants_predictions(bundle)
    given = _chosen(bundle)
    found = predicted(bundle.scorer, bundle.about_items, degrees, wanted=wanted, given=given)
    if found.scorer is bundle.scorer:
        return replace(bundle, own_vectors=None)
    own = own_vectors(bundle.scorer, degrees)
    return replace(_recorded(bundle, found), scorer=found.scorer, own_vectors=own)


def with_predicted_users(bundle: Bundle) -> Bundle:
    """Return the recommender with predictions for users without pairs, if they have attributes."""
    nobody: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
    bundle = replace(bundle, predicted_users=nobody)
    without = np.diff(bundle.all_pairs.indptr) == 0
    if not bundle.about_users or not wants_predictions(bundle) or not without.any():
        return bundle
    features = features_of(bundle.about_users, len(bundle.users))
    # The first channel is a one for everybody: it tells nothing.
    asked = np.flatnonzero(without & (np.diff(features.table.indptr) > 1))
    degrees = np.where(bundle.is_folded, 0, np.diff(bundle.train.indptr))
    if not len(asked) or (degrees > 0).sum() < 2:
        return bundle
    with phase("cold users", None):
        known = Known(features, degrees)
        found = with_cold_users(bundle.scorer, known, asked, _chosen(bundle))
    if found.scorer is bundle.scorer:  # popularity: it is the same for everybody
        return bundle
    return replace(_recorded(bundle, found), scorer=found.scorer, predicted_users=asked)


def _chosen(bundle: Bundle) -> dict[str, Setting]:
    """Return the settings of the record: cross-validation need not choose them again."""
    return {
        part: Setting(own.penalty, own.factor) for part, own in (bundle.record.cold or {}).items()
    }


def _recorded(bundle: Bundle, found: Predicted) -> Bundle:
    return replace(bundle, record=bundle.record.model_copy(update={"cold": settings_of(found)}))
