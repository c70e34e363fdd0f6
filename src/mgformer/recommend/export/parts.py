"""What the forms of an export share: files, vectors, and the matrix of what items give to items.

Shapes: I items.
"""

from collections.abc import Callable
from pathlib import Path

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
MOST_WEIGHTS = 100_000_000
"""Largest number of entries of an item-item matrix; about 1 GB."""


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


def guide_of(bundle: Bundle) -> sp.csr_array | None:
    """Return the weights [I, I] by which histories add to scores of vectors; None without."""
    return item_weights(bundle) if isinstance(bundle.scorer, SumScorer) else None


def item_weights(bundle: Bundle) -> sp.csr_array:
    """Return what an item of a history gives to the score of each item, [I, I]."""
    history = history_of(bundle)
    assert history is not None
    weights = history.weights
    if not isinstance(weights, sp.csr_array) or history.through is not None:
        check_size(bundle)
        weights = sp.csr_array(added_up(history))
    if history.item_factors is not None:
        weights = sp.csr_array(weights * history.item_factors.numpy())
    return weights.astype(np.float32)


def check_size(bundle: Bundle) -> None:
    """Refuse a dense item-item matrix that is too large for a file."""
    if (entries := len(bundle.items) ** 2) > MOST_WEIGHTS:
        raise ConfigError(
            f"{bundle.record.model}: its item-item matrix has {entries:,} entries, expected at most"
            f" {MOST_WEIGHTS:,}; train a model with a sparse one, as ridge or itemknn"
        )


def added_up(history: HistoryScorer, *, low_rank: bool = True) -> NDArray[np.float32]:
    """Return W + TᵀT + L Rᵀ as one dense matrix [I, I], without the factors of items."""
    total = np.zeros((history.num_items, history.num_items), np.float32)
    if isinstance(history.weights, Tensor):
        total += history.weights.numpy()
    elif history.weights is not None:
        total += history.weights.toarray()
    if history.through is not None:
        total += (history.through.T @ history.through).toarray()
    if low_rank and history.left is not None and history.right is not None:
        total += (history.left.double() @ history.right.double().T).numpy()
    return total


def sparse_file(name: str, weights: sp.csr_array) -> Files:
    """Return a file with a sparse matrix, which scipy.sparse.load_npz reads."""

    def write(draft: Path) -> None:
        with draft.open("wb") as file:
            sp.save_npz(file, weights)

    return {name: write}


def item_ids(bundle: Bundle) -> Files:
    """Return a file with the id of each item number."""
    table = pl.DataFrame({"number": np.arange(len(bundle.items)), "id": bundle.items.values})
    return {"item_ids.parquet": table.write_parquet}
