"""Scores for users without interactions: predicted from their attributes.

As for items (`cold.py`), what a model has learned about the trained users is regressed on their
attributes. That is the direction of a user's vector or, for models that score by histories, the
history itself: how much each item counts. So a predicted user is scored as fast as any other.

Shapes: U users, I items, n users to predict, D channels.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from mgformer.graph.feature_ridge import Setting
from mgformer.ranking.cold import Known, Predicted, predicted_rows, predictor
from mgformer.ranking.scorers import DotScorer, HistoryScorer, Scorer, SumScorer


def with_cold_users(
    scorer: Scorer,
    known: Known,
    asked: NDArray[np.int64],
    given: Mapping[str, Setting] | None = None,
) -> Predicted:
    """Return the scorer with predicted rows of users.

    Args:
        scorer: What a model has learned.
        known: [U, F] attributes as numbers, and the number of interactions of each user.
        asked: [n] users to predict, by number.
        given: Settings that were chosen before; others are chosen by cross-validation.
    """
    settings = dict(given or {})
    if isinstance(scorer, SumScorer):
        vectors = _vectors(scorer.vectors, known, asked, settings)
        scorer = SumScorer(vectors, _rows(scorer.history, known, asked, settings))
    elif isinstance(scorer, HistoryScorer):
        scorer = _rows(scorer, known, asked, settings)
    elif isinstance(scorer, DotScorer) and scorer.num_varying > 1:
        scorer = _vectors(scorer, known, asked, settings)
    return Predicted(scorer, settings)


def _vectors(
    scorer: DotScorer, known: Known, asked: NDArray[np.int64], settings: dict[str, Setting]
) -> DotScorer:
    users, varying = scorer.users.clone(), scorer.num_varying
    own = users[torch.from_numpy(known.warm), :varying].double().numpy()
    predict, usual, settings["users"] = predictor(own, known, settings.get("users"))
    users[torch.from_numpy(asked), :varying] = torch.from_numpy(usual * predict(asked)).to(users)
    users[torch.from_numpy(asked), varying:] = 1
    return replace(scorer, users=users)


def _rows(
    scorer: HistoryScorer, known: Known, asked: NDArray[np.int64], settings: dict[str, Setting]
) -> HistoryScorer:
    targets = sp.csr_array(scorer.histories[known.warm])
    given = settings.get("histories")
    found, settings["histories"] = predicted_rows(targets, known, asked, given)
    place = (np.ones(len(asked), dtype=np.float32), (asked, np.arange(len(asked))))
    spread = sp.csr_array(place, shape=(scorer.num_users, len(asked)))
    others = np.ones(scorer.num_users, dtype=np.float32)
    others[asked] = 0
    histories = sp.csr_array(sp.diags_array(others) @ scorer.histories + spread @ found)
    histories.eliminate_zeros()
    histories.sort_indices()
    return replace(scorer, histories=histories.astype(np.float32))
