"""One way through: dataset, split, graph, model, scorer, metrics, bundle."""

import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import scipy.sparse as sp

from mgformer.bundle import Bundle, load_bundle
from mgformer.config import RunConfig, build_config
from mgformer.data.catalog import open_dataset
from mgformer.data.dataset import Dataset
from mgformer.data.interactions import Interactions
from mgformer.data.splits import Split, split_dataset
from mgformer.errors import ConfigError, DataError
from mgformer.fitting import Choice, Fitted, fit
from mgformer.graph.bipartite import Graph
from mgformer.models import MODELS
from mgformer.models.base import TrainableModel
from mgformer.ranking.evaluation import Evaluation, EvaluationConfig, evaluate
from mgformer.ranking.scorers import Scorer
from mgformer.training.profile import Profile, profile
from mgformer.training.workspace import Workspace
from mgformer.version import __version__
from mgformer.warm_start import adopt, check_trained, together, without_leak

SELECTION_K = 20


def train(
    config: RunConfig,
    dataset: Dataset | None = None,
    *,
    folder: Path | None = None,
    resume: bool = False,
) -> Bundle:
    """Train and evaluate what the config describes.

    Args:
        config: The run.
        dataset: Stands in for `config.dataset`.
        folder: Where a model that is trained step by step keeps its log and checkpoints; they stay
            for as long as the bundle is not saved (`remove_checkpoint`).
        resume: Go on from the checkpoint in `folder`, if there is one.
    """
    trainable = issubclass(MODELS[config.model_name], TrainableModel)
    workspace = (
        Workspace(folder, config.to_mapping(), resume=resume) if folder and trainable else None
    )
    seconds: dict[str, float] = {}
    split_rng, select_rng, refit_rng = _streams(config.seed)
    with _timed(seconds, "prepare"):
        dataset = dataset or open_dataset(config.dataset, config.data)
        before = load_bundle(Path(config.warm_start)) if config.warm_start else None
        if before is not None:
            if trainable:
                check_trained(before)
            dataset = together(before, dataset)
        split = split_dataset(dataset, config.split, split_rng)
        split = without_leak(split, before) if before else split
        if not len(split.train):
            raise DataError(f"{dataset.name}: no pairs are left to train on; add interactions")
    if workspace:
        workspace.opened(dataset.fingerprint)
    prepare: Callable[[TrainableModel], None] | None = None
    if before is not None:
        table = dataset.interactions
        prepare = partial(adopt, before=before, users=table.users, items=table.items)
    results: dict[str, Any] = dict(workspace.results) if workspace else {}
    if not results:
        with _timed(seconds, "train"):
            fitted = _select(config, split, select_rng, workspace, prepare)
        with _timed(seconds, "evaluate"):
            valid = evaluate_part(fitted.scorer, split, "valid", config.evaluation)
        results = {
            "valid": valid.means if valid else {},
            "choice": fitted.choice._asdict(),
        }
    if config.split.refit:
        with _timed(seconds, "train"):
            whole = split.train.union(split.valid)
            if workspace:
                workspace.stage, workspace.results = "refit", results
            choice = Choice(**results["choice"])
            fitted = fit(
                config, whole, refit_rng, choice=choice, workspace=workspace, prepare=prepare
            )
            split = replace(
                split, train=whole, valid=whole.subset(np.zeros(len(whole), dtype=bool))
            )
    with _timed(seconds, "evaluate"):
        test = evaluate_part(fitted.scorer, split, "test", config.evaluation)
    record = {
        "model": config.model_name,
        "dataset": dataset.name,
        "fingerprint": dataset.fingerprint,
        "protocol": protocol_of(config, split),
        "seed": config.seed,
        "valid": results["valid"],
        "test": test.means if test else {},
        "groups": test.groups if test else {},
        "seconds": {name: round(value, 3) for name, value in seconds.items()},
        "epochs": results["choice"]["epochs"],
        "score": results["choice"]["kind"],
        "gamma": results["choice"]["gamma"],
        "config": config.to_mapping(),
        "library": __version__,
        "commit": commit(),
    }
    if workspace:
        workspace.close()
    per_user = _per_user(test, split.train) if test else None
    return Bundle(
        fitted.scorer,
        split.train,
        split.valid,
        split.test,
        split.history,
        dataset.item_names,
        record,
        per_user,
        fitted.weights,
    )


def untrained_model(bundle: Bundle) -> TrainableModel:
    """Build the model of a bundle anew, as it was when its training began, to the same bits.

    `load_state_dict(bundle.weights)` makes it the trained one; only what training does not change
    is of use where an old library saved no weights.
    """
    config = build_config(bundle.record["config"])
    _, select_rng, refit_rng = _streams(config.seed)
    rng = refit_rng if config.split.refit else select_rng
    model = MODELS[config.model_name](config.model, Graph(bundle.train.matrix), rng)
    assert isinstance(model, TrainableModel)
    return model


def _streams(seed: int) -> tuple[np.random.Generator, np.random.Generator, np.random.Generator]:
    """Return the generators of the split, of the model, and of the model that is refitted.

    They draw from separate streams: trying another model keeps the split.
    """
    split_rng, model_rng = np.random.default_rng(seed).spawn(2)
    select_rng, refit_rng = model_rng.spawn(2)
    return split_rng, select_rng, refit_rng


def profile_training(config: RunConfig) -> Profile:
    """Say where the time of a training step of this run would go."""
    if not issubclass(MODELS[config.model_name], TrainableModel):
        raise ConfigError(f"{config.model_name} is not trained step by step: nothing to profile")
    split_rng, model_rng = np.random.default_rng(config.seed).spawn(2)
    dataset = open_dataset(config.dataset, config.data)
    split = split_dataset(dataset, config.split, split_rng)
    if not len(split.train):
        raise DataError(f"{dataset.name}: no pairs are left to train on; add interactions")
    model = MODELS[config.model_name](config.model, Graph(split.train.matrix), model_rng)
    assert isinstance(model, TrainableModel)
    return profile(model, split.train, config.train, model_rng)


def _select(
    config: RunConfig,
    split: Split,
    rng: np.random.Generator,
    workspace: Workspace | None,
    prepare: Callable[[TrainableModel], None] | None,
) -> Fitted:
    """Train on train, choosing on validation what there is to choose."""
    if not len(split.valid):
        return fit(config, split.train, rng, workspace=workspace, prepare=prepare)
    options = EvaluationConfig(ks=(SELECTION_K,), memory_mb=config.evaluation.memory_mb)
    some = replace(split, valid=_thinned(split.valid, config.train.validation_users))

    def measure(scorer: Scorer, sampled: bool) -> dict[str, float] | None:
        result = evaluate_part(scorer, some if sampled else split, "valid", options)
        names = (f"ndcg@{SELECTION_K}", f"recall@{SELECTION_K}")
        return {name: result.means[name] for name in names} if result else None

    return fit(config, split.train, rng, measure=measure, workspace=workspace, prepare=prepare)


def _thinned(pairs: Interactions, num_users: int) -> Interactions:
    """Return the pairs of at most so many users, evenly spaced among those who have any; 0: all."""
    if not num_users:
        return pairs
    users = np.flatnonzero(np.diff(pairs.indptr))
    kept = users[:: max(1, -(-len(users) // num_users))]
    return pairs.subset(np.isin(pairs.rows, kept))


def evaluate_part(
    scorer: Scorer, split: Split | Bundle, part: str, options: EvaluationConfig
) -> Evaluation | None:
    """Evaluate on "valid" or "test" with the masks of the protocol; None if the part is empty.

    Validation masks train; test masks train and validation. Held-out users are ranked by their
    history, and that is masked.
    """
    train = split.train
    held_out = split.valid if part == "valid" else split.test
    degrees = np.bincount(train.indices, minlength=train.num_items)
    if split.history is not None:
        seen = split.history.matrix
        scorer = scorer.fold_in(seen)
    else:
        seen = train.matrix if part == "valid" else sp.csr_array(train.matrix + split.valid.matrix)
    return evaluate(scorer, held_out, seen, degrees, options)


def popularity_of(bundle: Bundle, options: EvaluationConfig) -> Mapping[str, float]:
    """Return the test metrics of recommending what is popular: the floor of any comparison."""
    name = "popularity"
    graph = Graph(bundle.train.matrix)
    scorer = MODELS[name](MODELS[name].Config(), graph, np.random.default_rng(0)).scorer()
    result = evaluate_part(scorer, bundle, "test", options)
    return result.means if result else {}


def protocol_of(config: RunConfig, split: Split) -> str:
    """Say in one line how the numbers came about."""
    options = config.split
    shares = f"valid {options.valid:g}, test {options.test:g}"
    how = {
        "ratio": f"per user at random, {shares}",
        "last": "last item of each user for test, the one before for validation",
        "time": f"one moment for all, {shares} of the interactions",
        "users": f"whole users held out, {shares}, known by {options.history:g} of their items",
        "given": "parts as given, validation as given or taken from train per user",
    }[split.kind]
    refit = "; refit on train and validation before test" if options.refit else ""
    return f"{split.kind}: {how}{refit}; all items ranked, known ones masked"


def commit() -> str | None:
    """Return the commit of the code that runs, marked if changed since; None if it is installed."""
    here = Path(__file__).parent
    try:
        done = subprocess.run(
            ["git", "-C", str(here), "describe", "--always", "--dirty", "--abbrev=12"],
            capture_output=True,
            text=True,
            timeout=10,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    # A folder of installed packages may lie inside somebody else's repository.
    return done.stdout.strip() or None if "site-packages" not in here.parts else None


def _per_user(evaluation: Evaluation, pairs: Interactions) -> pl.DataFrame:
    ids = pairs.users.decode(evaluation.users).rename("user")
    return pl.DataFrame([ids, *(pl.Series(name, v) for name, v in evaluation.values.items())])


@contextmanager
def _timed(seconds: dict[str, Any], name: str) -> Iterator[None]:
    start = time.perf_counter()
    try:
        yield
    finally:
        seconds[name] = seconds.get(name, 0.0) + time.perf_counter() - start
