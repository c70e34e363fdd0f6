"""The end of a run: train again on validation if the split says so, test, and record."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import polars as pl

from mgformer.data.dataset import Dataset
from mgformer.data.interactions import Interactions
from mgformer.data.splits import Split
from mgformer.graph.bipartite import Graph
from mgformer.models import build_model, model_class
from mgformer.ranking.cold import own_vectors
from mgformer.ranking.evaluation import Evaluation, EvaluationConfig, Parts, evaluate_part
from mgformer.ranking.score import Chosen
from mgformer.runs.bundle import Bundle
from mgformer.runs.cold import predicted, settings_of
from mgformer.runs.config import RunConfig
from mgformer.runs.fit import Fitted, fit, on_device
from mgformer.runs.record import Auto, Figures, Record, commit_of_code
from mgformer.runs.workspace import Workspace
from mgformer.training.memory import peak_mb, reset_peak
from mgformer.version import __version__


@dataclass
class Stopwatch:
    """Seconds of the stages of a run, and whether its memory is counted."""

    seconds: dict[str, float] = field(default_factory=dict)
    counted: bool = field(default_factory=reset_peak)

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Add the time of the block to the stage `name`."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start


class Selected(NamedTuple):
    """What was chosen on validation."""

    chosen: Chosen
    valid: Figures
    fitted: Fitted | None
    """The model that was trained on train; None if only its choice is known."""
    auto: Auto | None = None
    """How the model was chosen, if the user named none."""


def finish(
    config: RunConfig,
    selected: Selected,
    dataset: Dataset,
    split: Split,
    rng: np.random.Generator,
    watch: Stopwatch,
    *,
    workspace: Workspace | None = None,
    before: Bundle | None = None,
) -> Bundle:
    """Train on train and validation if the split says so, measure on test, and record the run.

    Args:
        config: The run.
        selected: What was chosen on validation.
        dataset: The data.
        split: Its parts.
        rng: Source of everything random in the training on train and validation.
        watch: The times of the stages before.
        workspace: Keeps the log and the checkpoints of the training.
        before: A trained recommender to continue from.
    """
    chosen, fitted = selected.chosen, selected.fitted
    if split.refit:
        if workspace:
            workspace.results = {
                "valid": selected.valid,
                "choice": {"epochs": chosen.epochs, **chosen.weights._asdict()},
                **({"auto": selected.auto.model_dump(mode="json")} if selected.auto else {}),
            }
        with watch.timed("train"):
            whole = split.before_test
            hooks = workspace.hooks("refit") if workspace else None
            fitted = fit(config, whole, rng, chosen=chosen, hooks=hooks, before=before)
            split = replace(split, train=whole, valid=whole.no_pairs(), whole=None)
    assert fitted is not None
    about = dataset.attributes_for(split.train.items, split.train.users)
    with watch.timed("train"):
        degrees = np.bincount(split.train.indices, minlength=split.train.num_items)
        filled = predicted(fitted.scorer, about["about_items"], degrees, wanted=config.score.cold)
    with watch.timed("evaluate"):
        test = evaluate_part(on_device(filled.scorer, config), split, "test", config.evaluation)
    record = Record(
        model=config.model_name,
        dataset=dataset.name,
        fingerprint=dataset.fingerprint,
        protocol=protocol_of(split),
        seed=config.seed,
        valid=selected.valid,
        test=means_of(test),
        groups=test.groups if test else {},
        ages=test.ages if test else {},
        seconds={name: round(value, 3) for name, value in watch.seconds.items()},
        peak_mb=peak_mb() if watch.counted else None,
        epochs=chosen.epochs,
        score=chosen.weights.kind,
        gamma=chosen.weights.gamma,
        delta=chosen.weights.delta,
        eta=chosen.weights.eta,
        kappa=chosen.weights.kappa,
        validation_trained=split.refit,
        cold=settings_of(filled),
        config=config.to_mapping(),
        library=__version__,
        commit=commit_of_code(),
        popularity=popularity_of(split, config.evaluation),
        auto=selected.auto,
    )
    if workspace:
        workspace.close()
    return Bundle(
        scorer=filled.scorer,
        train=split.train,
        valid=split.valid,
        test=split.test,
        history=split.history,
        **about,
        record=record,
        per_user=_per_user(test, split.train) if test else None,
        weights=fitted.weights,
        own_vectors=own_vectors(fitted.scorer, degrees) if filled.settings else None,
        missing=split.missing,
    )


def popularity_of(parts: Parts, options: EvaluationConfig) -> Figures:
    """Return the test metrics of recommending the most popular items."""
    graph = Graph(parts.train.matrix, None, parts.train.strengths)
    options_of_model = model_class("popularity").Config()
    model = build_model("popularity", options_of_model, graph, np.random.default_rng(0))
    return means_of(evaluate_part(model.scorer(), parts, "test", options))


def protocol_of(split: Split) -> str:
    """Describe in one line how the figures were made."""
    refit = "; refit on train and validation before test" if split.refit else ""
    return f"{split.kind}: {split.protocol}{refit}; all items ranked, known ones masked"


def means_of(evaluation: Evaluation | None) -> Figures:
    """Return the means over users; empty if nobody was ranked."""
    return evaluation.means if evaluation else {}


def _per_user(evaluation: Evaluation, pairs: Interactions) -> pl.DataFrame:
    ids = pairs.users.decode(evaluation.users).rename("user")
    return pl.DataFrame([ids, *(pl.Series(name, v) for name, v in evaluation.values.items())])
