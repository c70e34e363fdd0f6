"""What is chosen on validation, and by whom."""

import numpy as np
import torch

from mgformer.config import build_config
from mgformer.fitting import Among, fit
from mgformer.opening import open_data
from mgformer.ranking.scorers import DotScorer, Scorer

EPOCHS = 5


def small(**score: object):
    return build_config(
        {
            "model": {"name": "mgformer", "dim": 4, "rank": 4, "num_neighbors": 3},
            "train": {"epochs": EPOCHS, "patience": EPOCHS, "batch_size": 4096},
            "score": score,
        }
    )


def test_scores_are_compared_by_few_epochs_by_some_and_the_result_by_all():
    config = small()
    asked: list[Among] = []

    def measure(scorer: Scorer, among: Among) -> dict[str, float]:
        asked.append(among)
        return {"ndcg@20": 0.1}

    fit(config, open_data(config).split.train, np.random.default_rng(0), measure=measure)
    assert asked.count("some") == EPOCHS
    last = len(asked) - 1 - asked[::-1].index("some")
    assert set(asked[:last]) == {"few", "some"}
    assert set(asked[last + 1 :]) == {"all"}
    # The search is made in the 1st, 2nd and 4th validation, and not in the others.
    places = [n for n, among in enumerate(asked) if among == "some"]
    searched = [b - a > 1 for a, b in zip([-1, *places], places, strict=False)]
    assert searched == [True, True, False, True, False]


def test_an_epoch_is_judged_by_the_score_that_few_found_best():
    config = small(kind="prior")
    split = open_data(config).split
    weights: list[float] = []

    def measure(scorer: Scorer, among: Among) -> dict[str, float]:
        assert isinstance(scorer, DotScorer)
        spread = scorer.items[:, -1].min()  # γ log of the least share of the largest degree
        if among == "some":
            weights.append(spread.item())
        return {"ndcg@20": -abs(spread.item() + 1.0)}

    chosen = fit(config, split.train, np.random.default_rng(0), measure=measure).choice
    degrees = torch.bincount(torch.from_numpy(split.train.indices).long()).clamp_min(1)
    step = 0.02 * (degrees.max() / degrees.min()).log().item()
    assert len(weights) == EPOCHS
    assert all(abs(weight + 1.0) <= step for weight in weights)
    assert chosen.gamma is not None
