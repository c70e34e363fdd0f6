"""One run from config to bundle: prepare the data, train, choose on validation, test, record."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mgformer.data.chronology import Chronology
from mgformer.data.dataset import Dataset, open_dataset
from mgformer.data.splits import Split, split_dataset
from mgformer.errors import ConfigError, DataError
from mgformer.graph.bipartite import Graph
from mgformer.locks import locked
from mgformer.models import build_model
from mgformer.models.base import TrainableModel
from mgformer.ranking.evaluation import evaluate_part
from mgformer.ranking.score import Chosen, Weights
from mgformer.ranking.selection import Validator
from mgformer.runs.bundle import Bundle
from mgformer.runs.bundle_files import load_bundle
from mgformer.runs.config import RunConfig
from mgformer.runs.finish import Selected, Stopwatch, finish, means_of
from mgformer.runs.fit import fit, on_device
from mgformer.runs.histories import check_histories
from mgformer.runs.needs import check_fits
from mgformer.runs.record import Auto, Figures
from mgformer.runs.warm_start import check_trained, together, without_leak
from mgformer.runs.workspace import Workspace
from mgformer.training.log import Entry
from mgformer.training.profile import Profile, profile
from mgformer.world import current

log = logging.getLogger("mgformer")


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


class Validation(NamedTuple):
    """How a run does on validation."""

    figures: Figures
    """Recall@20 and NDCG@20 of all validation users."""
    epochs: int


def train(
    config: RunConfig,
    dataset: Dataset | None = None,
    *,
    split: Split | None = None,
    folder: Path | None = None,
    resume: bool = False,
) -> Bundle:
    """Train and evaluate what the config describes.

    Args:
        config: The run.
        dataset: Used instead of reading `config.dataset`.
        split: Used instead of splitting `dataset`. It may have fewer users and items.
        folder: Where a model that is trained step by step keeps its log and checkpoints. The
            checkpoint stays until the caller has saved the bundle (`save_run`).
        resume: Continue from the checkpoint in `folder`, if there is one.
    """
    with locked(folder if current().leads else None):
        return _train(config, dataset, split, folder, resume)


def _train(
    config: RunConfig,
    dataset: Dataset | None,
    split: Split | None,
    folder: Path | None,
    resume: bool,
) -> Bundle:
    workspace = None
    if folder and config.trainable:
        workspace = Workspace(folder, config.to_mapping(), resume=resume)
    watch, streams = Stopwatch(), streams_of(config.seed)
    with watch.timed("prepare"):
        dataset, split, before = prepare(config, dataset, split)
    check_fits(config, dataset.interactions, folder)
    dataset = dataset.without_pairs()  # those of a large dataset would take memory to the end
    if workspace:
        workspace.begin(dataset.fingerprint)
        watch.seconds["train"] = workspace.seconds_before
    if workspace and workspace.results:  # the run was interrupted in its refit
        valid, choice = workspace.results["valid"], _chosen(**workspace.results["choice"])
        auto = workspace.results.get("auto")
        selected = Selected(choice, valid, None, Auto.model_validate(auto) if auto else None)
    else:
        with watch.timed("train"):
            fitted = fit(
                config,
                split.train,
                streams.select,
                validator=validator_of(config, split),
                hooks=workspace.hooks("select") if workspace else None,
                before=before,
            )
        with watch.timed("evaluate"):
            scorer = on_device(fitted.scorer, config)
            valid = means_of(evaluate_part(scorer, split, "valid", config.evaluation))
        selected = Selected(fitted.chosen, valid, fitted)
    return finish(
        config,
        selected,
        dataset,
        split,
        streams.refit,
        watch,
        workspace=workspace,
        before=before,
    )


def prepare(
    config: RunConfig, dataset: Dataset | None = None, split: Split | None = None
) -> Prepared:
    """Read and split the data of a run.

    Args:
        config: The run.
        dataset: Used instead of reading `config.dataset`.
        split: Used instead of splitting `dataset`, which must be given with it.
    """
    if split is not None:
        assert dataset is not None
        assert not config.warm_start, "a ready split cannot be joined with the data of another run"
        return Prepared(dataset, split, None)
    dataset = dataset or open_dataset(config.dataset, config.data)
    before = load_bundle(Path(config.warm_start)) if config.warm_start else None
    if before is not None:
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


def validate(
    config: RunConfig,
    split: Split,
    *,
    before: Bundle | None = None,
    write: Callable[[Entry], None] = lambda entry: None,
) -> Validation:
    """Train on train and measure on validation, as `train` does, without looking at test.

    Args:
        config: The run.
        split: Its data; there must be a validation part.
        before: A trained recommender to continue from.
        write: Receives the figures of each epoch. An exception that it raises ends the training.
    """
    validator, rng = validator_of(config, split), streams_of(config.seed).select
    assert validator is not None, "validation pairs are needed"
    hooks: dict[str, Callable[[Entry], None]] = {"write": write}
    fitted = fit(config, split.train, rng, validator=validator, hooks=hooks, before=before)  # type: ignore[arg-type]
    return Validation(validator.measure(fitted.scorer), fitted.chosen.epochs)


def validator_of(config: RunConfig, split: Split) -> Validator | None:
    """Return what chooses on the validation part of a split; None if there is no such part."""
    if not len(split.valid):
        return None
    known = split.train if split.history is None else split.history
    if not ((np.diff(split.valid.indptr) > 0) & (np.diff(known.indptr) > 0)).any():
        raise DataError(
            "no user with validation pairs has training pairs: nothing can be chosen on validation;"
            " use --set split.kind=ratio, or another split.valid"
        )
    validator = Validator(
        split,
        config.score_kinds,
        config.score,
        num_users=config.train.validation_users,
        memory_mb=config.evaluation.memory_mb,
    )
    if config.trainable:
        some, every = (
            np.count_nonzero(np.diff(part.valid.indptr)) for part in (validator.sample, split)
        )
        how_many = f"{some:,} of {every:,}" if some < every else f"all {every:,}"
        often = config.train.evaluate_every
        log.info(
            "validating %s with %s validation users",
            "every epoch" if often == 1 else f"every {often} epochs",
            how_many,
        )
    return validator


def untrained_model(bundle: Bundle) -> TrainableModel:
    """Build the model of a bundle as it was before its training, to the same bits.

    `load_state_dict(bundle.weights)` turns it into the trained one.
    """
    if bundle.record.refreshed:
        raise ConfigError(
            "a refreshed recommender does not have the training graph any more: its model cannot be"
            " rebuilt; train or refit it first"
        )
    check_histories(bundle, "rebuild the model of")
    if bundle.record.forgotten:
        raise ConfigError(
            "a recommender that forgot users does not have the training graph any more: its model"
            " cannot be rebuilt; refit it first"
        )
    config = bundle.record.run_config()
    streams = streams_of(config.seed)
    rng = streams.refit if bundle.record.saw_validation else streams.select
    if bundle.record.refit:
        rng = streams.whole
    timed = bundle.record.eta is not None and bundle.train.order is not None
    positions = Chronology(bundle.train).positions if timed else None
    graph = Graph(bundle.train.matrix, positions, bundle.train.strengths)
    model = build_model(config.model_name, config.model, graph, rng)
    assert isinstance(model, TrainableModel)
    return model


def profile_training(config: RunConfig) -> Profile:
    """Measure where the time of a training step of this run goes."""
    pairs, rng = prepare(config).split.train, streams_of(config.seed).select
    model = build_model(
        config.model_name, config.model, Graph(pairs.matrix, None, pairs.strengths), rng
    )
    if not isinstance(model, TrainableModel):
        raise ConfigError(f"{config.model_name} is not trained step by step: nothing to profile")
    return profile(model, pairs, config.train, rng)


def _chosen(epochs: int, **weights: Any) -> Chosen:
    """Return a choice as a checkpoint has it."""
    return Chosen(epochs, Weights(**weights))
