"""Scores for items that nobody, or hardly anybody, has interacted with: predicted from attributes.

What a model has learned about items with interactions is regressed on their attributes, and the
regression predicts it for the others. That is the direction of an item's vector, and how much each
item of a history adds to the score of an item: its column of an item-item matrix. A predicted
direction is the shorter, the less the attributes tell.

An item with n interactions keeps n / (n + 1) of its own vector. Columns of item-item matrices are
predicted only for items without interactions. The low-pass matrix of gfcf stays as it is.

The penalty of a regression, and how much words of text count beside other attributes, are chosen by
cross-validation among the items with interactions.

Shapes: I items, n items to predict, F features, D channels.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from mgformer.data.attribute_features import Features
from mgformer.graph.feature_ridge import Ridge, Setting, best_setting
from mgformer.ranking.scorers import (
    DotScorer,
    HistoryScorer,
    Scorer,
    SumScorer,
    vectors_of,
    with_vectors,
)

RELIABLE = 10.0
"""Interactions by which an item counts half in the regression."""
FEW = 1.0
"""c: an item with n interactions keeps n / (n + c) of its own vector."""
MOST_FEW = 5
"""Items with more interactions than this keep their vectors as they are."""
SKETCH = 64
"""Random directions by which the penalty for columns is chosen: they keep distances."""
MOST_KEPT = 200
"""Predicted entries that a column of a sparse matrix keeps: the largest."""
BLOCK = 2_048
Rows = NDArray[np.float64]
Predictor = Callable[[NDArray[np.int64]], Rows]
"""Items → what is predicted for them."""


class Known(NamedTuple):
    """The items (or users), and what is known about them."""

    features: Features
    """[I, F] attributes as numbers."""
    degrees: NDArray[np.int64]
    """[I] interactions of each item."""

    @property
    def warm(self) -> NDArray[np.int64]:
        """Items with interactions."""
        return np.flatnonzero(self.degrees > 0)

    @property
    def cold(self) -> NDArray[np.int64]:
        """Items without interactions."""
        return np.flatnonzero(self.degrees == 0)


class Predicted(NamedTuple):
    """A scorer with predictions."""

    scorer: Scorer
    settings: dict[str, Setting]
    """What was predicted → how; empty if nothing was."""


class Own(NamedTuple):
    """Vectors of items with few interactions, as the model has learned them."""

    items: NDArray[np.int64]
    """[n] by number, ascending."""
    vectors: Tensor
    """[n, D]"""


def own_vectors(scorer: Scorer, degrees: NDArray[np.int64]) -> Own | None:
    """Return the learned vectors that a prediction is going to change; None if there are none."""
    vectors, few = vectors_of(scorer), np.flatnonzero((degrees > 0) & (degrees <= MOST_FEW))
    if vectors is None or not len(few):
        return None
    return Own(few, vectors.items[torch.from_numpy(few), : vectors.num_varying].clone())


def with_own_vectors(scorer: Scorer, own: Own | None) -> Scorer:
    """Return the scorer before the prediction; items without interactions stay predicted."""
    vectors = vectors_of(scorer)
    if own is None or vectors is None:
        return scorer
    items = vectors.items.clone()
    items[torch.from_numpy(own.items), : vectors.num_varying] = own.vectors
    return with_vectors(scorer, replace(vectors, items=items))


def with_cold_items(
    scorer: Scorer, known: Known, given: Mapping[str, Setting] | None = None
) -> Predicted:
    """Return the scorer with predictions for items without or with few interactions.

    Args:
        scorer: What a model has learned.
        known: Its items.
        given: Settings that were chosen before; others are chosen by cross-validation.
    """
    useful = known.features.table.shape[1] > 1 and len(known.warm) > 1
    if not useful or not (known.degrees <= MOST_FEW).any():
        return Predicted(scorer, {})
    settings = dict(given or {})
    if isinstance(scorer, SumScorer):
        vectors = _vectors(scorer.vectors, known, settings)
        scorer = SumScorer(vectors, _history(scorer.history, known, settings))
    elif isinstance(scorer, HistoryScorer):
        scorer = _history(scorer, known, settings)
    elif isinstance(scorer, DotScorer) and scorer.num_varying > 1:
        scorer = _vectors(scorer, known, settings)
    return Predicted(scorer, settings)


def _vectors(scorer: DotScorer, known: Known, settings: dict[str, Setting]) -> DotScorer:
    items = scorer.items.clone()
    varying, warm = scorer.num_varying, known.warm
    few = np.flatnonzero(known.degrees <= MOST_FEW)
    own = items[:, :varying].double().numpy()
    predict, usual, settings["vectors"] = predictor(own[warm], known, settings.get("vectors"))
    counts = known.degrees[few][:, None]
    lengths = np.linalg.norm(own[few], axis=1, keepdims=True)
    directions = own[few] / np.maximum(lengths, 1e-12)
    blended = (counts * directions + FEW * predict(few)) / (counts + FEW)
    lengths = np.where(counts > 0, lengths, usual)
    items[torch.from_numpy(few), :varying] = _as(items, blended * lengths)
    if scorer.constant:  # popularity and trend, as those of the least popular items
        items[torch.from_numpy(known.cold), varying:] = items[_least(known), varying:].mean(0)
    return replace(scorer, items=items)


def _history(scorer: HistoryScorer, known: Known, settings: dict[str, Setting]) -> HistoryScorer:
    cold = known.cold
    if not len(cold):
        return scorer
    changes: dict[str, object] = {}
    if isinstance(scorer.weights, Tensor):
        weights = scorer.weights.clone()
        targets = sp.csr_array(scorer.weights.numpy().T[known.warm])
        blocks, settings["columns"] = _blocks(targets, known, cold, settings.get("columns"))
        for rows, block in blocks:
            weights[rows.start : rows.stop, torch.from_numpy(cold)] = _as(weights, block.T)
        changes["weights"] = weights
    elif scorer.weights is not None:
        changes["weights"], settings["columns"] = _with_columns(
            scorer.weights, known, settings.get("columns")
        )
    if scorer.right is not None:
        right = scorer.right.clone()
        targets = right[torch.from_numpy(known.warm)].double().numpy()
        predict, usual, settings["factors"] = predictor(targets, known, settings.get("factors"))
        right[torch.from_numpy(cold)] = _as(right, usual * predict(cold))
        changes["right"] = right
    if scorer.item_factors is not None:
        factors = scorer.item_factors.clone()
        factors[torch.from_numpy(cold)] = factors[_least(known)].mean()
        changes["item_factors"] = factors
    return replace(scorer, **changes)  # type: ignore[arg-type]


def _with_columns(
    weights: sp.csr_array, known: Known, given: Setting | None
) -> tuple[sp.csr_array, Setting]:
    """Return a sparse matrix with predicted columns of cold items."""
    cold, targets = known.cold, sp.csr_array(weights.T.tocsr()[known.warm])
    columns, setting = predicted_rows(targets, known, cold, given)  # [n, I]
    spread = sp.csr_array(
        (np.ones(len(cold), dtype=np.float32), (cold, np.arange(len(cold)))),
        shape=(weights.shape[0], len(cold)),
    )
    keep = sp.diags_array((known.degrees > 0).astype(np.float32))
    found = sp.csr_array(weights @ keep + (spread @ columns).T, dtype=np.float32)
    found.eliminate_zeros()
    found.sort_indices()
    return found, setting


def predicted_rows(
    targets: sp.csr_array, known: Known, asked: NDArray[np.int64], given: Setting | None
) -> tuple[sp.csr_array, Setting]:
    """Return the rows [n, I] that attributes predict for `asked`, with their largest entries.

    `targets` [warm, I] are the rows of what is known.
    """
    blocks, setting = _blocks(targets, known, asked, given)
    parts = [_largest(block) for _, block in blocks]
    return _largest(sp.csr_array(sp.hstack(parts, format="csr"))), setting


def _blocks(
    targets: sp.csr_array, known: Known, asked: NDArray[np.int64], given: Setting | None
) -> tuple[Iterator[tuple[slice, Rows]], Setting]:
    """Return the predicted rows [n, b] in blocks of columns: all may not fit into memory."""
    counts = _counts(known)
    lengths = np.sqrt(targets.multiply(targets).sum(1))
    unit = sp.csr_array(targets.multiply((1 / np.maximum(lengths, 1e-12))[:, None]))
    features, rng = known.features.of(known.warm), np.random.default_rng(0)
    sketch = unit @ rng.standard_normal((targets.shape[1], SKETCH)) / SKETCH**0.5
    setting = given or best_setting(features, sketch, counts, rng)
    ridge = Ridge(features.scaled(setting.factor), counts, setting.penalty)
    rows = known.features.of(asked).scaled(setting.factor)
    usual = float(np.median(lengths))

    def blocks() -> Iterator[tuple[slice, Rows]]:
        for start in range(0, targets.shape[1], BLOCK):
            columns = slice(start, min(start + BLOCK, targets.shape[1]))
            solution = ridge.solve(unit[:, columns].toarray())
            yield columns, usual * np.asarray(rows @ solution)

    return blocks(), setting


def predictor(
    targets: Rows, known: Known, given: Setting | None
) -> tuple[Predictor, float, Setting]:
    """Return what predicts directions, the usual length, and how it was chosen.

    `targets` [warm, D] are the vectors of what is known.
    """
    counts, features = _counts(known), known.features.of(known.warm)
    lengths = np.linalg.norm(targets, axis=1, keepdims=True)
    unit = targets / np.maximum(lengths, 1e-12)
    setting = given or best_setting(features, unit, counts, np.random.default_rng(0))
    solution = Ridge(features.scaled(setting.factor), counts, setting.penalty).solve(unit)
    least = lengths[known.degrees[known.warm] == known.degrees[known.warm].min()]

    def predict(rows: NDArray[np.int64]) -> Rows:
        return np.asarray(known.features.of(rows).scaled(setting.factor) @ solution)

    return predict, float(least.mean()), setting


def _counts(known: Known) -> Rows:
    """Return how much each warm item counts in a regression."""
    degrees = known.degrees[known.warm]
    return degrees / (degrees + RELIABLE)


def _least(known: Known) -> Tensor:
    """Return the warm items with the fewest interactions."""
    degrees = known.degrees[known.warm]
    return torch.from_numpy(known.warm[degrees == degrees.min()])


def _largest(block: "sp.csr_array | Rows") -> sp.csr_array:
    """Return the largest entries of each row, as a sparse matrix."""
    rows = sp.csr_array(block, dtype=np.float32)
    sizes = np.abs(rows.data)
    owners = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
    order = np.lexsort((-sizes, owners))
    rank = np.arange(len(order)) - rows.indptr[owners[order]]
    kept = np.sort(order[rank < MOST_KEPT])
    places = (owners[kept], rows.indices[kept])
    return sp.csr_array((rows.data[kept], places), shape=rows.shape)


def _as(table: Tensor, values: Rows) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values)).to(table.dtype)
