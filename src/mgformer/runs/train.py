"""One way through: dataset, split, graph, model, scorer, metrics, bundle."""

import logging
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import scipy.sparse as sp

from mgformer.runs.bundle import Bundle
from mgformer.runs.config import RunConfig, build_config
from mgformer.data.dataset import Dataset
from mgformer.data.interactions import Interactions
from mgformer.data.splits import Split
from mgformer.errors import ConfigError
from mgformer.runs.fit import Among, Choice, Fitted, fit
from mgformer.graph.bipartite import Graph
from mgformer.models import MODELS
from mgformer.models.base import TrainableModel
from mgformer.runs.prepare import Prepare, open_data, streams_of
from mgformer.ranking.evaluation import Evaluation, EvaluationConfig, evaluate
from mgformer.ranking.scorers import Scorer
from mgformer.training.log import Entry
from mgformer.training.loop import Hooks
from mgformer.training.memory import peak_mb, reset_peak
from mgformer.training.profile import Profile, profile
from mgformer.runs.workspace import Workspace
from mgformer.version import __version__

SELECTION_K = 20

log = logging.getLogger("mgformer")


class Validation(NamedTuple):
    """How a run does on validation."""

    figures: dict[str, float]
    """Recall@20 and NDCG@20 of all validation users."""
    epochs: int


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
    streams = streams_of(config.seed)
    counted = reset_peak()
    with _timed(seconds, "prepare"):
        dataset, split, prepare = open_data(config, dataset)
    if workspace:
        workspace.opened(dataset.fingerprint)
        seconds["train"] = workspace.seconds_before
    results: dict[str, Any] = dict(workspace.results) if workspace else {}
    if not results:
        with _timed(seconds, "train"):
            hooks = workspace.hooks() if workspace else None
            fitted = _select(config, split, streams.select, prepare, hooks)
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
            hooks = workspace.hooks() if workspace else None
            choice = Choice(**results["choice"])
            fitted = fit(config, whole, streams.refit, choice=choice, hooks=hooks, prepare=prepare)
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
        "peak_mb": peak_mb() if counted else None,
        "epochs": results["choice"]["epochs"],
        "score": results["choice"]["kind"],
        "gamma": results["choice"]["gamma"],
        "config": config.to_mapping(),
        "library": __version__,
        "commit": commit(),
        "popularity": dict(popularity_of(split, config.evaluation)),
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


def validate(
    config: RunConfig,
    split: Split,
    *,
    prepare: Prepare | None = None,
    write: Callable[[Entry], None] = lambda entry: None,
) -> Validation:
    """Train on train and measure on validation, as `train` does; test is neither needed nor read.

    Args:
        config: The run.
        split: Its data; there must be a validation part.
        prepare: As in `Opened`.
        write: Receives the figures of each epoch; what it raises ends the training.
    """
    fitted = _select(config, split, streams_of(config.seed).select, prepare, {"write": write})
    result = evaluate_part(fitted.scorer, split, "valid", _selection_options(config))
    assert result is not None
    return Validation(_selection_figures(result), fitted.choice.epochs)


def untrained_model(bundle: Bundle) -> TrainableModel:
    """Build the model of a bundle anew, as it was when its training began, to the same bits.

    `load_state_dict(bundle.weights)` makes it the trained one; only what training does not change
    is of use where an old library saved no weights.
    """
    config = build_config(bundle.record["config"])
    streams = streams_of(config.seed)
    rng = streams.refit if config.split.refit else streams.select
    if "refit" in bundle.record:
        rng = streams.whole
    model = MODELS[config.model_name](config.model, Graph(bundle.train.matrix), rng)
    assert isinstance(model, TrainableModel)
    return model


def profile_training(config: RunConfig) -> Profile:
    """Say where the time of a training step of this run would go."""
    if not issubclass(MODELS[config.model_name], TrainableModel):
        raise ConfigError(f"{config.model_name} is not trained step by step: nothing to profile")
    pairs, rng = open_data(config).split.train, streams_of(config.seed).select
    model = MODELS[config.model_name](config.model, Graph(pairs.matrix), rng)
    assert isinstance(model, TrainableModel)
    return profile(model, pairs, config.train, rng)


def _select(
    config: RunConfig,
    split: Split,
    rng: np.random.Generator,
    prepare: Prepare | None,
    hooks: Hooks | None,
) -> Fitted:
    """Train on train, choosing on validation what there is to choose."""
    if not len(split.valid):
        return fit(config, split.train, rng, hooks=hooks, prepare=prepare)
    options = _selection_options(config)
    count = config.train.validation_users
    parts: dict[Among, Split] = {
        "all": split,
        "some": replace(split, valid=thinned(split.valid, count)),
    }
    if issubclass(MODELS[config.model_name], TrainableModel):
        log.info(
            "epochs are compared by %s of %s users with validation items, every %d; "
            "all of them count in the end",
            *(
                f"{np.count_nonzero(np.diff(part.valid.indptr)):,}"
                for part in (parts["some"], parts["all"])
            ),
            config.train.evaluate_every,
        )

    def measure(scorer: Scorer, among: Among) -> dict[str, float] | None:
        result = evaluate_part(scorer, parts[among], "valid", options)
        return _selection_figures(result) if result else None

    return fit(config, split.train, rng, measure=measure, hooks=hooks, prepare=prepare)


def _selection_options(config: RunConfig) -> EvaluationConfig:
    return EvaluationConfig(ks=(SELECTION_K,), memory_mb=config.evaluation.memory_mb)


def _selection_figures(result: Evaluation) -> dict[str, float]:
    return {name: result.means[name] for name in (f"ndcg@{SELECTION_K}", f"recall@{SELECTION_K}")}


def thinned(pairs: Interactions, num_users: int) -> Interactions:
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


def popularity_of(split: Split | Bundle, options: EvaluationConfig) -> Mapping[str, float]:
    """Return the test metrics of recommending what is popular: the floor of any comparison."""
    name = "popularity"
    graph = Graph(split.train.matrix)
    scorer = MODELS[name](MODELS[name].Config(), graph, np.random.default_rng(0)).scorer()
    result = evaluate_part(scorer, split, "test", options)
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
