"""Bundles that somebody made to be wrong: changed, with all checksums right again."""

import json
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import safetensors.torch
import scipy.sparse as sp
import torch
from torch import Tensor

from mgformer.checksums import checksum_of_file
from mgformer.data.attributes import Attribute, Attributes
from mgformer.data.ids import Ids
from mgformer.data.interactions import Interactions
from mgformer.ranking.cold import Own
from mgformer.ranking.scorers import DotScorer, HistoryScorer, SumScorer
from mgformer.recommend.recommender import Recommender
from mgformer.runs.bundle import Bundle
from mgformer.runs.bundle_files import MANIFEST
from mgformer.runs.bundle_manifest import sealed
from mgformer.runs.record import Record

NUM_USERS, NUM_ITEMS, DIM = 12, 10, 4


def whole_bundle(*, dense: bool = False) -> Bundle:
    """A small bundle that has everything a bundle can have."""
    rng = np.random.default_rng(3)
    users = Ids(pl.Series("id", [f"u{n:02}" for n in range(NUM_USERS)]))
    items = Ids(pl.Series("id", [3 * n for n in range(NUM_ITEMS)], dtype=pl.Int64))
    labels = rng.integers(0, 8, (NUM_USERS, NUM_ITEMS))
    labels[-2:] = 7  # users without training pairs
    labels[-2, :3] = 3

    def part(*wanted: int) -> Interactions:
        rows, columns = np.nonzero(np.isin(labels, wanted))
        times = rng.integers(0, 1000, len(rows))
        return Interactions.from_numbers(
            users, items, rows.astype(np.int32), columns.astype(np.int32), times, None, times + 1
        )

    def floats(*shape: int) -> Tensor:
        return torch.from_numpy(rng.random(shape, dtype=np.float32))

    train = part(0, 4, 5)
    weights = (
        rng.random((NUM_ITEMS, NUM_ITEMS)) * (rng.random((NUM_ITEMS, NUM_ITEMS)) < 0.5)
    ).astype(np.float32)
    history = HistoryScorer(
        train.matrix,
        torch.from_numpy(weights) if dense else sp.csr_array(weights),
        sp.csr_array(rng.random((5, NUM_ITEMS)).astype(np.float32)),
        floats(NUM_ITEMS, 2),
        floats(NUM_ITEMS, 2),
        floats(NUM_ITEMS) + 0.5,
    )
    vectors = DotScorer(floats(NUM_USERS, DIM), floats(NUM_ITEMS, DIM), constant=1)
    record = Record(
        model="guided", dataset="made", fingerprint="", protocol="made", seed=0, score="prior",
        gamma=0.1, delta=1.0, eta=0.1, kappa=0.5, config={"evaluation": {"ks": [5]}},
    )  # fmt: skip
    others = range(1, NUM_ITEMS)
    genres = [[f"g{n % 3}"] for n in range(2, NUM_ITEMS)]
    return Bundle(
        scorer=SumScorer(vectors, history),
        train=train,
        valid=part(1),
        test=part(2),
        history=part(3),
        about_items=Attributes(
            {
                "name": Attribute("text", pl.Series([None, *(f"item {n}" for n in others)])),
                "genres": Attribute("categories", pl.Series([["a", "b"], None, *genres])),
                "price": Attribute("number", pl.Series(range(NUM_ITEMS)), private=True),
                "released": Attribute("date", pl.Series([date(2020, 1, 1)] * NUM_ITEMS)),
                "sold": Attribute("flag", pl.Series([True, *[None] * (NUM_ITEMS - 1)])),
                "look": Attribute(
                    "embedding", pl.Series(rng.random((NUM_ITEMS, 3), dtype=np.float32))
                ),
            }
        ),
        record=record,
        per_user=pl.DataFrame({"user": users.values[:3], "ndcg@5": [0.1, 0.2, 0.3]}),
        weights={"embeddings": floats(3, 2)},
        folded_users=np.array([4, 11]),
        predicted_users=np.array([10, 11]),
        own_vectors=Own(np.array([1, 3]), floats(2, DIM - 1)),
        missing=np.ones(NUM_USERS, dtype=np.int64),
    )


def use(folder: Path, key: bytes | None = None) -> None:
    """Load a bundle and ask all that a service asks."""
    recommender = Recommender.load(folder, key)
    bundle = recommender.bundle
    lists = recommender.recommend(bundle.users.values, 5)
    assert lists["score"].is_not_nan().all()
    recommender.recommend_for(bundle.items.values[:2].to_list(), 5)
    recommender.explain(bundle.users.values[0], bundle.items.values[0])
    recommender.similar_items(bundle.items.values[-1], 3)
    recommender.similar_users(bundle.users.values[-1], 3)


def change_manifest(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the manifest in place, and seal it."""
    manifest = json.loads((folder / MANIFEST).read_text())
    change(manifest)
    (folder / MANIFEST).write_text(sealed(manifest))


def change_file(folder: Path, kind: str, change: Callable[[Path], object]) -> None:
    """Change a file of the bundle, and seal it."""

    def resealed(manifest: dict[str, Any]) -> None:
        file = manifest["files"][kind]
        path = folder / file["name"]
        change(path)
        file["bytes"], file["checksum"] = path.stat().st_size, checksum_of_file(path)

    change_manifest(folder, resealed)


def change_tensors(folder: Path, kind: str, change: Callable[[dict[str, Tensor]], object]) -> None:
    """Change the tensors of a file, and seal it."""

    def rewritten(path: Path) -> None:
        tensors = {name: t.clone() for name, t in safetensors.torch.load_file(path).items()}
        change(tensors)
        whole = {name: tensor.contiguous() for name, tensor in tensors.items()}
        safetensors.torch.save_file(whole, path)

    change_file(folder, kind, rewritten)


def change_table(folder: Path, kind: str, change: Callable[[pl.DataFrame], pl.DataFrame]) -> None:
    """Change a table, and seal it."""
    change_file(folder, kind, lambda path: change(pl.read_parquet(path)).write_parquet(path))
