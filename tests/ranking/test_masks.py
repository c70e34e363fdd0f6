"""What an evaluation masks, whom it ranks, and what counts as a hit: each rule on its own."""

import numpy as np
import polars as pl
import torch

from mgformer.data.interactions import Interactions
from mgformer.data.splits import Split
from mgformer.ranking.evaluation import EvaluationConfig, evaluate_part
from mgformer.ranking.scorers import DotScorer

USERS, ITEMS = 3, 6


def part(*pairs: tuple[int, int]) -> Interactions:
    every = [(u, i) for u in range(USERS) for i in range(ITEMS)]
    whole = Interactions.from_frame(pl.DataFrame(every, schema=["user", "item"], orient="row"))
    chosen = {u * ITEMS + i for u, i in pairs}
    return whole.subset(np.isin(whole.rows * ITEMS + whole.indices, list(chosen)))


def figures(which: str, k: int = 1) -> dict[int, float]:
    """Recall@k of each ranked user; every user prefers item 0, then 1, and so on."""
    scorer = DotScorer(torch.ones(USERS, 1), torch.arange(ITEMS, 0.0, -1)[:, None])
    split = Split(
        "given",
        train=part((0, 0), (1, 5)),
        valid=part((0, 1), (2, 0)),
        test=part((0, 2), (2, 1), (1, 4)),
    )
    found = evaluate_part(scorer, split, which, EvaluationConfig(ks=(k,)))  # type: ignore[arg-type]
    assert found is not None
    return dict(zip(found.users.tolist(), found.values[f"recall@{k}"].tolist(), strict=True))


def test_test_masks_train_and_validation() -> None:
    assert figures("test")[0] == 1.0  # items 0 and 1 are masked, so item 2 comes first


def test_validation_masks_train_only() -> None:
    assert figures("valid")[0] == 1.0  # item 1 comes first, and it is not masked


def test_users_without_training_pairs_are_not_ranked() -> None:
    assert 2 not in figures("test")
    assert 2 not in figures("valid")


def test_empty_places_are_misses() -> None:
    """Lists as long as the catalog end with empty places: masked items leave them."""
    scorer = DotScorer(torch.ones(USERS, 1), torch.arange(ITEMS, 0.0, -1)[:, None])
    train = part(*((0, item) for item in range(1, ITEMS)))
    split = Split("given", train=train, valid=part(), test=part((0, 0)))
    found = evaluate_part(scorer, split, "test", EvaluationConfig(ks=(1, ITEMS)))
    assert found is not None
    assert found.values[f"recall@{ITEMS}"].tolist() == [1.0]
    assert found.values[f"precision@{ITEMS}"].tolist() == [1 / ITEMS]
