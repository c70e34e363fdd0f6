"""Pairs at the moment of a cut belong to the later part."""

import numpy as np

from mgformer.data.dataset import read_dataset
from mgformer.data.options import SplitConfig
from mgformer.data.splits import split_dataset


def test_pairs_at_the_cut_are_held_out() -> None:
    times = np.arange(20)
    dataset = read_dataset((np.zeros(20, int), np.arange(20), times), name="one")
    options = SplitConfig(kind="time", valid=0.1, test=0.2)
    split = split_dataset(dataset, options, np.random.default_rng(0))
    parts = [part.times.tolist() for part in (split.train, split.valid, split.test)]  # type: ignore[union-attr]
    assert parts == [[*range(14)], [14, 15], [16, 17, 18, 19]]


def test_pairs_of_the_same_moment_stay_together() -> None:
    times = np.array([0] * 4 + [1] * 12 + [2] * 4)
    dataset = read_dataset((np.zeros(20, int), np.arange(20), times), name="one")
    options = SplitConfig(kind="time", valid=0, test=0.5)
    split = split_dataset(dataset, options, np.random.default_rng(0))
    assert set(split.train.times.tolist()) == {0}  # type: ignore[union-attr]
    assert set(split.test.times.tolist()) == {1, 2}  # type: ignore[union-attr]
