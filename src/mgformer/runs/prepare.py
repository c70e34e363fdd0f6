"""The data of a run, read and divided, and the sources of all that is random in it."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mgformer.runs.bundle import load_bundle
from mgformer.runs.config import RunConfig
from mgformer.data.catalog import open_dataset
from mgformer.data.dataset import Dataset
from mgformer.data.splits import Split, split_dataset
from mgformer.errors import DataError
from mgformer.models import MODELS
from mgformer.models.base import TrainableModel
from mgformer.runs.warm_start import adopt, check_split, check_trained, together, without_leak

Prepare = Callable[[TrainableModel], None]


class Opened(NamedTuple):
    """The data of a run, divided."""

    dataset: Dataset
    split: Split
    prepare: Prepare | None
    """Hands a model what the run before has learned; None if there is no run before."""


class Streams(NamedTuple):
    """Sources of randomness. The split has its own: trying another model keeps the split."""

    split: np.random.Generator
    select: np.random.Generator
    refit: np.random.Generator
    whole: np.random.Generator
    """Of a training on everything, after the test."""


def open_data(config: RunConfig, dataset: Dataset | None = None) -> Opened:
    """Read and divide the data of a run; `dataset` stands in for `config.dataset`."""
    dataset = dataset or open_dataset(config.dataset, config.data)
    before = load_bundle(Path(config.warm_start)) if config.warm_start else None
    prepare: Prepare | None = None
    if before is not None:
        check_split(config.split.kind)
        if issubclass(MODELS[config.model_name], TrainableModel):
            check_trained(before)
        dataset = together(before, dataset)
        table = dataset.interactions
        prepare = partial(adopt, before=before, users=table.users, items=table.items)
    split = split_dataset(dataset, config.split, streams_of(config.seed).split)
    split = without_leak(split, before) if before else split
    if not len(split.train):
        raise DataError(f"{dataset.name}: no pairs are left to train on; add interactions")
    return Opened(dataset, split, prepare)


def streams_of(seed: int) -> Streams:
    """Return the sources that a seed stands for."""
    split, model = np.random.default_rng(seed).spawn(2)
    return Streams(split, *model.spawn(3))
