"""A tested recommender, trained once more on everything: for use, where nothing need be held out.

Epochs and scores are those that were chosen on validation, and the figures stay those of the model
before, which never saw what it was tested on.
"""

import time
from functools import partial
from pathlib import Path

import numpy as np

from mgformer.runs.bundle import Bundle
from mgformer.runs.config import build_config
from mgformer.data.interactions import Interactions
from mgformer.errors import ConfigError
from mgformer.runs.fit import Choice, fit
from mgformer.models import MODELS
from mgformer.models.base import TrainableModel
from mgformer.runs.prepare import streams_of
from mgformer.runs.train import commit
from mgformer.runs.workspace import Workspace
from mgformer.version import __version__
from mgformer.runs.warm_start import adopt


def refit(bundle: Bundle, *, folder: Path | None = None, resume: bool = False) -> Bundle:
    """Train the model of a bundle again on all of its pairs.

    A run that went on from another goes on from itself: what it has learned is kept.

    Args:
        bundle: A trained recommender, of which some pairs were held out.
        folder: Where a model that is trained step by step keeps its log and checkpoints.
        resume: Go on from the checkpoint in `folder`, if there is one.
    """
    record, pairs = bundle.record, _everything(bundle)
    num_held_out = len(pairs) - len(bundle.train)
    if not num_held_out:
        raise ConfigError(
            f"nothing was held out of the {len(pairs):,} pairs that this recommender was trained"
            " on: there is no more to train it on"
        )
    config = build_config(record["config"])
    trainable = issubclass(MODELS[config.model_name], TrainableModel)
    workspace = None
    if folder and trainable:
        # The mark keeps `train` from going on with what is not its own, and the other way round.
        workspace = Workspace(folder, {**config.to_mapping(), "refit": True}, resume=resume)
        workspace.opened(record["fingerprint"])
        workspace.stage = "refit"
    prepare = None
    if config.warm_start:
        prepare = partial(adopt, before=bundle, users=bundle.users, items=bundle.items)
    began = time.perf_counter()
    fitted = fit(
        config,
        pairs,
        streams_of(config.seed).whole,
        choice=Choice(record["epochs"], record["score"], record["gamma"]),
        hooks=workspace.hooks() if workspace else None,
        prepare=prepare,
    )
    if workspace:
        workspace.close()
    refitted = {
        "pairs": len(pairs),
        "held_out_before": num_held_out,
        "seconds": round(time.perf_counter() - began, 3),
        "library": __version__,
        "commit": commit(),
    }
    protocol = f"{record['protocol']}; then trained again on everything, which is not tested"
    return Bundle(
        fitted.scorer,
        pairs,
        _nothing_of(pairs),
        _nothing_of(pairs),
        None,
        bundle.item_names,
        {**record, "protocol": protocol, "refit": refitted},
        bundle.per_user,
        fitted.weights,
    )


def _everything(bundle: Bundle) -> Interactions:
    pairs = bundle.train.union(bundle.valid).union(bundle.test)
    return pairs.union(bundle.history) if bundle.history else pairs


def _nothing_of(pairs: Interactions) -> Interactions:
    return pairs.subset(np.zeros(len(pairs), dtype=bool))
