"""Everything a run needs before it trains: the data, its split, and the random streams."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from mgformer.data.dataset import Dataset, open_dataset
from mgformer.data.splits import Split, split_dataset
from mgformer.errors import DataError
from mgformer.runs.bundle import Bundle
from mgformer.runs.bundle_files import load_bundle
from mgformer.runs.config import RunConfig
from mgformer.runs.warm_start import check_split, check_trained, together, without_leak


class Prepared(NamedTuple):
    """The data of a run, split."""

    dataset: Dataset
    split: Split
    before: Bundle | None
    """The trained recommender that the run continues from, if there is one."""


class Streams(NamedTuple):
    """Random streams of a seed. The split has its own: another model gets the same split."""

    split: np.random.Generator
    select: np.random.Generator
    """For the training that chooses on validation."""
    refit: np.random.Generator
    """For the training on train and validation, before the test."""
    whole: np.random.Generator
    """For a training on everything, after the test."""


def prepare(config: RunConfig, dataset: Dataset | None = None) -> Prepared:
    """Read and split the data of a run.

    Args:
        config: The run.
        dataset: Used instead of reading `config.dataset`.
    """
    dataset = dataset or open_dataset(config.dataset, config.data)
    before = load_bundle(Path(config.warm_start)) if config.warm_start else None
    if before is not None:
        check_split(config.split.kind)
        if config.trainable:
            check_trained(before)
        dataset = together(before, dataset)
    split = split_dataset(dataset, config.split, streams_of(config.seed).split)
    split = without_leak(split, before) if before else split
    if not len(split.train):
        raise DataError(f"{dataset.name}: no pairs are left to train on; add interactions")
    return Prepared(dataset, split, before)


def streams_of(seed: int) -> Streams:
    """Return the random streams of a seed."""
    split, model = np.random.default_rng(seed).spawn(2)
    return Streams(split, *model.spawn(3))
