"""Vectors and item-item matrices as Parquet, and as arrays of numpy and scipy."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import scipy.sparse as sp

from mgformer.graph.sparse import row_numbers
from mgformer.ranking.scorers import HistoryScorer
from mgformer.recommend.export.parts import (
    Export,
    Files,
    ItemWeights,
    guide_of,
    item_weights,
    vectors_to_export,
    weights_file,
)
from mgformer.runs.bundle import Bundle


def to_parquet(bundle: Bundle) -> Export:
    """Return tables of vectors, or of what items give to items."""
    if isinstance(bundle.scorer, HistoryScorer):
        table = _weights_table(bundle, item_weights(bundle))
        return {"item_weights.parquet": table.write_parquet}, {"kappa": bundle.record.kappa or 0.0}
    scorer, files = vectors_to_export(bundle), Files()
    sides = {"user": (bundle.users, scorer.users), "item": (bundle.items, scorer.items)}
    for side, (ids, vectors) in sides.items():
        array = pl.Series(vectors.numpy(), dtype=pl.Array(pl.Float32, vectors.shape[1]))
        table = pl.DataFrame({"id": ids.values, "vector": array})
        if side == "item" and bundle.about_items.names is not None:
            table = table.with_columns(bundle.about_items.names)
        files[f"{side}_vectors.parquet"] = table.write_parquet
    if (guide := guide_of(bundle)) is not None:
        files["guide.parquet"] = _weights_table(bundle, guide).write_parquet
    return files, {}


def _weights_table(bundle: Bundle, weights: ItemWeights) -> pl.DataFrame:
    """Return a row for each pair with a weight, or for each item if all pairs have one."""
    if not isinstance(weights, sp.csr_array):
        rows = pl.Series(weights, dtype=pl.Array(pl.Float32, weights.shape[1]))
        return pl.DataFrame({"item": bundle.items.values, "weights": rows})
    columns = {
        "item": bundle.items.decode(row_numbers(weights)),
        "adds_to": bundle.items.decode(weights.indices),
        "weight": weights.data,
    }
    return pl.DataFrame(columns)


def to_npz(bundle: Bundle) -> Export:
    """Return arrays of vectors, or of what items give to items."""
    # Ids are integers or text of fixed width; reading objects would need pickle.
    user_ids, item_ids = (np.array(ids.values.to_list()) for ids in (bundle.users, bundle.items))
    arrays: dict[str, Any] = {"item_ids": item_ids, "kappa": bundle.record.kappa or 0.0}
    if isinstance(bundle.scorer, HistoryScorer):
        name, weights = "items.npz", weights_file("item_weights", item_weights(bundle))
    else:
        scorer = vectors_to_export(bundle)
        name, weights = "vectors.npz", weights_file("guide", guide_of(bundle))
        users, items = scorer.users.numpy(), scorer.items.numpy()
        arrays |= {"users": users, "items": items, "user_ids": user_ids}

    def write(draft: Path) -> None:
        with draft.open("wb") as file:
            np.savez(file, **arrays)

    return {name: write} | weights, {}
