"""Predictions from attributes, in a run and in a bundle."""

import numpy as np

from mgformer.data.attribute_features import features_of
from mgformer.data.attributes import Attributes
from mgformer.data.interactions import Interactions
from mgformer.progress import phase
from mgformer.ranking.cold import Known, with_cold_items
from mgformer.ranking.scorers import Scorer


def predicted(scorer: Scorer, about: Attributes, train: Interactions, *, wanted: bool) -> Scorer:
    """Return a scorer with predictions for items without interactions.

    Args:
        scorer: What a model has learned.
        about: [I] attributes of its items.
        train: The pairs that it has learned from.
        wanted: Whether the config of the run asks for predictions.
    """
    degrees = np.bincount(train.indices, minlength=train.num_items)
    if not wanted or not about:
        return scorer
    with phase("cold items", None):
        return with_cold_items(scorer, Known(features_of(about, train.num_items), degrees))
