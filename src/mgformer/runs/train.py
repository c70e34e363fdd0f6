"""One run from config to bundle: prepare the data, train, choose on validation, test, record."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from mgformer.data.chronology import Chronology
from mgformer.data.dataset import Dataset, open_dataset
from mgformer.data.interactions import Interactions
from mgformer.data.splits import Split, split_dataset
from mgformer.errors import ConfigError, DataError
from mgformer.graph.bipartite import Graph
from mgformer.locks import locked
from mgformer.models import build_model, model_class
from mgformer.models.base import TrainableModel
from mgformer.ranking.evaluation import Evaluation, EvaluationConfig, Parts, evaluate_part
from mgformer.ranking.score import Chosen, Weights
from mgformer.ranking.selection import Validator
from mgformer.runs.bundle import Bundle
from mgformer.runs.bundle_files import load_bundle
from mgformer.runs.config import RunConfig
from mgformer.runs.fit import fit
from mgformer.runs.histories import check_histories
from mgformer.runs.record import Figures, Record, commit_of_code
from mgformer.runs.warm_start import check_trained, together, without_leak
from mgformer.runs.workspace import Workspace
from mgformer.training.log import Entry
from mgformer.training.memory import peak_mb, reset_peak
from mgformer.training.profile import Profile, profile
from mgformer.version import __version__

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
    with locked(folder):
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
    seconds: dict[str, float] = {}
    streams = streams_of(config.seed)
    counted = reset_peak()
    with _timed(seconds, "prepare"):
        dataset, split, before = prepare(config, dataset, split)
    if workspace:
        workspace.begin(dataset.fingerprint)
        seconds["train"] = workspace.seconds_before
    if workspace and workspace.results:  # the run was interrupted in its refit
        valid, chosen = workspace.results["valid"], _chosen(**workspace.results["choice"])
    else:
        with _timed(seconds, "train"):
            fitted = fit(
                config,
                split.train,
                streams.select,
                validator=validator_of(config, split),
                hooks=workspace.hooks("select") if workspace else None,
                before=before,
            )
        with _timed(seconds, "evaluate"):
            valid = _means(evaluate_part(fitted.scorer, split, "valid", config.evaluation))
        chosen = fitted.chosen
    if split.refit:
        if workspace:
            workspace.results = {
                "valid": valid,
                "choice": {"epochs": chosen.epochs, **chosen.weights._asdict()},
            }
        with _timed(seconds, "train"):
            whole = split.before_test
            hooks = workspace.hooks("refit") if workspace else None
            fitted = fit(config, whole, streams.refit, chosen=chosen, hooks=hooks, before=before)
            split = replace(split, train=whole, valid=whole.no_pairs(), whole=None)
    with _timed(seconds, "evaluate"):
        test = evaluate_part(fitted.scorer, split, "test", config.evaluation)
    record = Record(
        model=config.model_name,
        dataset=dataset.name,
        fingerprint=dataset.fingerprint,
        protocol=protocol_of(split),
        seed=config.seed,
        valid=valid,
        test=_means(test),
        groups=test.groups if test else {},
        seconds={name: round(value, 3) for name, value in seconds.items()},
        peak_mb=peak_mb() if counted else None,
        epochs=chosen.epochs,
        score=chosen.weights.kind,
        gamma=chosen.weights.gamma,
        delta=chosen.weights.delta,
        eta=chosen.weights.eta,
        kappa=chosen.weights.kappa,
        validation_trained=split.refit,
        config=config.to_mapping(),
        library=__version__,
        commit=commit_of_code(),
        popularity=popularity_of(split, config.evaluation),
    )
    if workspace:
        workspace.close()
    return Bundle(
        scorer=fitted.scorer,
        train=split.train,
        valid=split.valid,
        test=split.test,
        history=split.history,
        item_names=dataset.names_of(split.train.items),
        record=record,
        per_user=_per_user(test, split.train) if test else None,
        weights=fitted.weights,
        missing=split.missing,
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
    graph = Graph(bundle.train.matrix, positions)
    model = build_model(config.model_name, config.model, graph, rng)
    assert isinstance(model, TrainableModel)
    return model


def profile_training(config: RunConfig) -> Profile:
    """Measure where the time of a training step of this run goes."""
    pairs, rng = prepare(config).split.train, streams_of(config.seed).select
    model = build_model(config.model_name, config.model, Graph(pairs.matrix), rng)
    if not isinstance(model, TrainableModel):
        raise ConfigError(f"{config.model_name} is not trained step by step: nothing to profile")
    return profile(model, pairs, config.train, rng)


def popularity_of(parts: Parts, options: EvaluationConfig) -> Figures:
    """Return the test metrics of recommending the most popular items."""
    graph = Graph(parts.train.matrix)
    options_of_model = model_class("popularity").Config()
    model = build_model("popularity", options_of_model, graph, np.random.default_rng(0))
    return _means(evaluate_part(model.scorer(), parts, "test", options))


def protocol_of(split: Split) -> str:
    """Describe in one line how the figures were made."""
    refit = "; refit on train and validation before test" if split.refit else ""
    return f"{split.kind}: {split.protocol}{refit}; all items ranked, known ones masked"


def _chosen(epochs: int, **weights: Any) -> Chosen:
    """Return a choice as a checkpoint has it."""
    return Chosen(epochs, Weights(**weights))


def _means(evaluation: Evaluation | None) -> Figures:
    return evaluation.means if evaluation else {}


def _per_user(evaluation: Evaluation, pairs: Interactions) -> pl.DataFrame:
    ids = pairs.users.decode(evaluation.users).rename("user")
    return pl.DataFrame([ids, *(pl.Series(name, v) for name, v in evaluation.values.items())])


@contextmanager
def _timed(seconds: dict[str, float], name: str) -> Iterator[None]:
    start = time.perf_counter()
    try:
        yield
    finally:
        seconds[name] = seconds.get(name, 0.0) + time.perf_counter() - start
