"""Similar items and similar users, as tables."""

import numpy as np
import polars as pl
from numpy.typing import NDArray

from mgformer.data.ids import ExternalId
from mgformer.errors import ConfigError
from mgformer.ranking.scorers import cosines, vectors_of
from mgformer.recommend.lists import numbers_of, with_names
from mgformer.runs.bundle import Bundle


def similar_items(bundle: Bundle, item: ExternalId, k: int) -> pl.DataFrame:
    """Return the k items most similar to an item: item, name (if items have names), score."""
    (number,) = numbers_of("item", bundle.items, item)
    is_trained = bundle.item_degrees > 0
    scores = bundle.scorer.similarities(int(number)).numpy()
    scores = np.where(is_trained & is_trained[number], scores, np.float32(0))
    items, highest = _highest(bundle, "items", scores, number, k)
    return with_names(bundle, items).with_columns(score=pl.Series(highest))


def similar_users(bundle: Bundle, user: ExternalId, k: int) -> pl.DataFrame:
    """Return the k users most similar to a user: user, score.

    Users without vectors are compared by their items.
    """
    (number,) = numbers_of("user", bundle.users, user)
    scorer = vectors_of(bundle.complete_scorer)
    if scorer is not None:
        scores = cosines(scorer.users[:, : scorer.num_varying], int(number)).numpy()
    else:
        matrix = bundle.known
        common = (matrix @ matrix[[number]].T).toarray()[:, 0]
        lengths = np.sqrt(np.diff(matrix.indptr))
        scores = common / np.maximum(lengths * lengths[number], 1e-12)
    users, highest = _highest(bundle, "users", scores.astype(np.float32), number, k)
    return pl.DataFrame({"user": bundle.users.decode(users), "score": highest})


def _highest(
    bundle: Bundle, what: str, scores: NDArray[np.float32], number: int, k: int
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return the k highest scores above zero, except that of `number`: positions and values."""
    scorer = vectors_of(bundle.scorer)
    if scorer is not None and scorer.num_varying < 2:
        # By a single channel, everything would be equally similar.
        raise ConfigError(
            f"{bundle.record.model} cannot find similar {what} because it has one"
            " number for each; train another model, such as mgformer"
        )
    if k < 1:
        raise ConfigError(f"k must be at least 1, got {k}")
    order = np.argsort(-scores, kind="stable")
    order = order[(order != number) & (scores[order] > 0)][:k]
    return order, scores[order]
