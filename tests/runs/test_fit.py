"""What is chosen on validation, and by which users."""

from collections.abc import Callable

import numpy as np
import torch

from mgformer.data.splits import Split
from mgformer.ranking.scorers import DotScorer, Scorer
from mgformer.ranking.selection import Validator
from mgformer.runs.config import RunConfig, build_config
from mgformer.runs.fit import fit
from mgformer.runs.train import prepare
from mgformer.training.log import Entry
from mgformer.training.loop import Hooks

EPOCHS = 5


def small(**score: object) -> RunConfig:
    return build_config(
        {
            "model": {"name": "mgformer", "dim": 4, "rank": 4, "key_sample": 64},
            "train": {"epochs": EPOCHS, "patience": EPOCHS, "batch_size": 4096},
            "score": score,
            "split": {"kind": "ratio"},
        }
    )


class Scripted(Validator):
    """A validator whose figures the test makes up; it notes whether a sample or all are asked."""

    def __init__(self, config: RunConfig, split: Split, value: Callable[[Scorer], float]) -> None:
        super().__init__(split, config.score_kinds, config.score, num_users=100, memory_mb=64)
        self.asked: list[str] = []
        self.value = value

    def measure(self, scorer: Scorer, split: Split | None = None) -> dict[str, float]:
        self.asked.append("sample" if split is self.sample else "all")
        return {"ndcg@20": self.value(scorer)}


def test_a_sample_of_users_judges_epochs_and_all_users_the_result() -> None:
    config = small(kind="prior")
    split = prepare(config).split
    validator = Scripted(config, split, lambda scorer: 0.1)
    validations: list[int] = []
    hooks: Hooks = {"write": lambda entry: validations.append(len(validator.asked))}
    fit(config, split.train, np.random.default_rng(0), validator=validator, hooks=hooks)
    assert set(validator.asked[: validations[-1]]) == {"sample"}
    assert set(validator.asked[validations[-1] :]) == {"all"}
    # The search is made in the 1st, 2nd and 4th validation, and not in the others.
    assert np.diff(validations, prepend=0).tolist() == [3, 3, 1, 3, 1]


def test_the_final_search_for_gamma_is_finer_than_that_of_an_epoch() -> None:
    config = small(kind="prior")
    split = prepare(config).split
    degrees = torch.bincount(torch.from_numpy(split.train.indices).long()).clamp_min(1)
    spread = (degrees.max() / degrees.min()).log().item()
    tried: list[float] = []

    def value(scorer: Scorer) -> float:
        assert isinstance(scorer, DotScorer)
        gamma = -scorer.items[:, -1].min().item() / spread
        tried.append(round(gamma, 4))
        return -abs(gamma - 0.131)

    validator = Scripted(config, split, value)
    entries: list[Entry] = []
    hooks: Hooks = {"write": entries.append}
    rng = np.random.default_rng(0)
    chosen = fit(config, split.train, rng, validator=validator, hooks=hooks).chosen
    assert [entry["gamma"] for entry in entries] == [0.14] * EPOCHS
    assert chosen.weights.gamma == 0.13
    sampled = {g for g, who in zip(tried, validator.asked, strict=True) if who == "sample"}
    assert 0.13 not in sampled
