"""What is chosen on validation, and by whom."""

import numpy as np
import torch

from mgformer.runs.config import build_config
from mgformer.runs.fit import Among, fit
from mgformer.runs.prepare import prepare
from mgformer.ranking.scorers import DotScorer, Scorer
from mgformer.training.log import Entry
from mgformer.training.loop import Hooks

EPOCHS = 5


def small(**score: object):
    return build_config(
        {
            "model": {"name": "mgformer", "dim": 4, "rank": 4, "num_neighbors": 3},
            "train": {"epochs": EPOCHS, "patience": EPOCHS, "batch_size": 4096},
            "score": score,
        }
    )


def test_epochs_and_their_scores_are_compared_by_some_and_the_result_by_all():
    config = small(kind="prior")
    asked: list[Among] = []
    validations: list[int] = []
    hooks: Hooks = {"write": lambda entry: validations.append(len(asked))}

    def measure(scorer: Scorer, among: Among) -> dict[str, float]:
        asked.append(among)
        return {"ndcg@20": 0.1}

    train = prepare(config).split.train
    fit(config, train, np.random.default_rng(0), measure=measure, hooks=hooks)
    assert set(asked[: validations[-1]]) == {"some"}
    assert set(asked[validations[-1] :]) == {"all"}
    # The search is made in the 1st, 2nd and 4th validation, and not in the others.
    assert np.diff(validations, prepend=0).tolist() == [3, 3, 1, 3, 1]


def test_an_epoch_is_judged_by_the_best_score_and_the_result_by_a_finer_one():
    config = small(kind="prior")
    split = prepare(config).split
    degrees = torch.bincount(torch.from_numpy(split.train.indices).long()).clamp_min(1)
    spread = (degrees.max() / degrees.min()).log().item()
    best = 0.131
    asked: dict[Among, set[float]] = {"some": set(), "all": set()}

    def measure(scorer: Scorer, among: Among) -> dict[str, float]:
        assert isinstance(scorer, DotScorer)
        gamma = -scorer.items[:, -1].min().item() / spread
        asked[among].add(round(gamma, 4))
        return {"ndcg@20": -abs(gamma - best)}

    entries: list[Entry] = []
    hooks: Hooks = {"write": entries.append}
    rng = np.random.default_rng(0)
    chosen = fit(config, split.train, rng, measure=measure, hooks=hooks).choice
    assert [entry["gamma"] for entry in entries] == [0.14] * EPOCHS
    assert chosen.gamma == 0.13
    assert 0.13 not in asked["some"]
