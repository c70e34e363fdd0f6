"""What the forms of an export share: files, vectors, and the matrix of what items give to items.

Shapes: I items.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import numpy as np
import polars as pl
import scipy.sparse as sp
from numpy.typing import NDArray
from torch import Tensor

from mgformer.errors import ConfigError
from mgformer.ranking.scorers import DotScorer, HistoryScorer, SumScorer, vectors_of
from mgformer.runs.bundle import Bundle

Files = dict[str, Callable[[Path], object]]
"""Names of files, and what writes them."""
Export = tuple[Files, dict[str, float | str]]
"""The files of a form, and what was measured."""
ItemWeights: TypeAlias = sp.csr_array | NDArray[np.float32]
"""What an item of the history (row) gives to the score of each item (column), [I, I]."""
MOST_WEIGHTS = 400_000_000
"""Largest number of entries of a dense item-item matrix; an ONNX file may have 2 GB."""
BLOCK_ROWS = 1 << 10


def vectors_to_export(bundle: Bundle) -> DotScorer:
    """Return the vectors of users and items; refuse models without."""
    scorer = vectors_of(bundle.complete_scorer)
    if scorer is None:
        raise ConfigError(
            f"{bundle.record.model} has no vectors to search among, because it compares items with"
            " items; use --format npz, parquet or onnx, or train a model with embeddings, such as"
            " guided"
        )
    return scorer


def history_of(bundle: Bundle) -> HistoryScorer | None:
    """Return the part of the score that comes from a history: a guide, or the whole model."""
    if isinstance(bundle.scorer, SumScorer):
        return bundle.scorer.history
    return bundle.scorer if isinstance(bundle.scorer, HistoryScorer) else None


def guide_of(bundle: Bundle) -> ItemWeights | None:
    """Return the weights [I, I] by which histories add to scores of vectors; None without."""
    return item_weights(bundle) if isinstance(bundle.scorer, SumScorer) else None


def item_weights(bundle: Bundle) -> ItemWeights:
    """Return what an item of a history gives to the score of each item, [I, I]."""
    history = history_of(bundle)
    assert history is not None
    weights = summed(bundle, history)
    if weights is None:
        weights = np.zeros((history.num_items, history.num_items), np.float32)
    if history.left is not None and history.right is not None:
        check_size(bundle)
        weights = weights.toarray() if isinstance(weights, sp.csr_array) else weights
        right = history.right.double().T
        for start in range(0, len(weights), BLOCK_ROWS):
            block = slice(start, start + BLOCK_ROWS)
            weights[block] += (history.left[block].double() @ right).numpy()
    if history.item_factors is not None:
        factors = history.item_factors.numpy()
        weights = sp.csr_array(weights * factors) if sp.issparse(weights) else weights * factors
    return weights.astype(np.float32)


def summed(bundle: Bundle, history: HistoryScorer) -> ItemWeights | None:
    """Return W + TᵀT, dense unless there is only a sparse W; None if there is neither."""
    if history.through is None and not isinstance(history.weights, Tensor):
        return history.weights
    check_size(bundle)
    total = np.zeros((history.num_items, history.num_items), np.float32)
    if history.through is not None:
        total += (history.through.T @ history.through).toarray()
    if isinstance(history.weights, Tensor):
        total += history.weights.numpy()
    elif history.weights is not None:
        total += history.weights.toarray()
    return total


def check_size(bundle: Bundle) -> None:
    """Refuse a dense item-item matrix that is too large for a file."""
    if (entries := len(bundle.items) ** 2) > MOST_WEIGHTS:
        raise ConfigError(
            f"{bundle.record.model}: its item-item matrix has {entries:,} entries, expected at most"
            f" {MOST_WEIGHTS:,}; train a model with a sparse one, as ridge or itemknn"
        )


def weights_file(name: str, weights: ItemWeights | None) -> Files:
    """Return a sparse matrix as .npz, for scipy.sparse.load_npz, or a dense one as .npy."""
    if weights is None:
        return {}
    is_sparse = isinstance(weights, sp.csr_array)
    save = sp.save_npz if is_sparse else np.save

    def write(draft: Path) -> None:
        with draft.open("wb") as file:
            save(file, weights)

    return {f"{name}.{'npz' if is_sparse else 'npy'}": write}


def item_ids(bundle: Bundle) -> Files:
    """Return a file with the id of each item number."""
    table = pl.DataFrame({"number": np.arange(len(bundle.items)), "id": bundle.items.values})
    return {"item_ids.parquet": table.write_parquet}
