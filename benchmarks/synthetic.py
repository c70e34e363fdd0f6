"""Bundles of random vectors with the size of real ones: their lists are noise, at full cost.

Pairs are random too: a few items have many pairs and most have few.
"""

import numpy as np
import polars as pl
import torch

from mgformer.data.ids import Ids
from mgformer.data.interactions import Interactions
from mgformer.ranking.scorers import DotScorer
from mgformer.runs.bundle import Bundle
from mgformer.runs.record import Record

YELP2018 = {"num_users": 31_668, "num_items": 38_048, "num_pairs": 1_561_406}


def synthetic_bundle(
    num_users: int, num_items: int, dim: int, num_pairs: int, seed: int = 0
) -> Bundle:
    """Return random vectors and pairs, with text ids."""
    rng = np.random.default_rng(seed)
    users, items = (
        Ids(pl.select(pl.format(f"{kind}-{{}}", pl.int_range(count) + 10_000_000)).to_series())
        for kind, count in (("user", num_users), ("item", num_items))
    )
    train = Interactions.from_numbers(
        users,
        items,
        rng.integers(0, num_users, num_pairs).astype(np.int32),
        (num_items * rng.random(num_pairs) ** 2).astype(np.int32),
    )
    valid, test = (train.subset(np.zeros(len(train), dtype=bool)) for _ in range(2))
    vectors = [
        torch.from_numpy(rng.standard_normal((count, dim), dtype=np.float32))
        for count in (num_users, num_items)
    ]
    record = Record(
        model="synthetic", dataset="synthetic", fingerprint="", protocol="", seed=seed, config={}
    )
    scorer = DotScorer(vectors[0], vectors[1])
    return Bundle(
        scorer=scorer,
        train=train,
        valid=valid,
        test=test,
        history=None,
        record=record,
    )
