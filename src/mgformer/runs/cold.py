"""Predictions from attributes, in a run and in a bundle."""

import numpy as np

from mgformer.data.attribute_features import features_of
from mgformer.data.attributes import Attributes
from mgformer.data.interactions import Interactions
from mgformer.progress import phase
from mgformer.ranking.cold import Known, Predicted, with_cold_items
from mgformer.ranking.scorers import Scorer
from mgformer.runs.record import ColdSetting


def predicted(scorer: Scorer, about: Attributes, train: Interactions, *, wanted: bool) -> Predicted:
    """Return a scorer with predictions for items without interactions.

    Args:
        scorer: What a model has learned.
        about: [I] attributes of its items.
        train: The pairs that it has learned from.
        wanted: Whether the config of the run asks for predictions.
    """
    degrees = np.bincount(train.indices, minlength=train.num_items)
    if not wanted or not about:
        return Predicted(scorer, {})
    with phase("cold items", None):
        return with_cold_items(scorer, Known(features_of(about, train.num_items), degrees))


def settings_of(filled: Predicted) -> dict[str, ColdSetting] | None:
    """Return how something was predicted, for the record; None if nothing was."""
    found = {part: ColdSetting(**own._asdict()) for part, own in filled.settings.items()}
    return found or None
