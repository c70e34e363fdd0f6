"""One way through: dataset, split, graph, model, scorer, metrics, bundle."""

import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import scipy.sparse as sp

from mgformer import __version__
from mgformer.bundle import Bundle
from mgformer.config import RunConfig
from mgformer.data.catalog import open_dataset
from mgformer.data.dataset import Dataset
from mgformer.data.interactions import Interactions
from mgformer.data.splits import Split, split_dataset
from mgformer.errors import DataError
from mgformer.graph.bipartite import Graph
from mgformer.models import MODELS
from mgformer.progress import phase
from mgformer.ranking.evaluation import Evaluation, EvaluationConfig, evaluate
from mgformer.ranking.scorers import Scorer


def train(config: RunConfig, dataset: Dataset | None = None) -> Bundle:
    """Train and evaluate what the config describes; `dataset` stands in for `config.dataset`."""
    seconds: dict[str, float] = {}
    # The split and the model draw from separate streams: trying another model keeps the split.
    split_rng, model_rng = np.random.default_rng(config.seed).spawn(2)
    with _timed(seconds, "prepare"):
        dataset = dataset or open_dataset(config.dataset, config.data)
        split = split_dataset(dataset, config.split, split_rng)
        if not len(split.train):
            raise DataError(f"{dataset.name}: no pairs are left to train on; add interactions")
    with _timed(seconds, "train"):
        scorer = fit(config, split.train, model_rng)
    with _timed(seconds, "evaluate"):
        valid = evaluate_part(scorer, split, "valid", config.evaluation)
    if config.split.refit:
        with _timed(seconds, "train"):
            whole = split.train.union(split.valid)
            scorer = fit(config, whole, model_rng)
            split = replace(
                split, train=whole, valid=whole.subset(np.zeros(len(whole), dtype=bool))
            )
    with _timed(seconds, "evaluate"):
        test = evaluate_part(scorer, split, "test", config.evaluation)
    record = {
        "model": config.model_name,
        "dataset": dataset.name,
        "fingerprint": dataset.fingerprint,
        "protocol": protocol_of(config, split),
        "seed": config.seed,
        "valid": valid.means if valid else {},
        "test": test.means if test else {},
        "groups": test.groups if test else {},
        "seconds": {name: round(value, 3) for name, value in seconds.items()},
        "epochs": 0,
        "config": config.to_mapping(),
        "library": __version__,
        "commit": commit(),
    }
    per_user = _per_user(test, split.train) if test else None
    return Bundle(
        scorer,
        split.train,
        split.valid,
        split.test,
        split.history,
        dataset.item_names,
        record,
        per_user,
    )


def fit(config: RunConfig, pairs: Interactions, rng: np.random.Generator) -> Scorer:
    """Train the configured model on `pairs` and nothing else."""
    with phase(f"training {config.model_name}", None):
        graph = Graph(pairs.matrix)
        return MODELS[config.model_name](config.model, graph, rng).scorer()


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
