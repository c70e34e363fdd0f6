"""Train a tested recommender once more on all of its pairs, for use in production.

Epochs and score are those that were chosen on validation. The figures remain those of the tested
model, which never saw the held-out pairs.
"""

import time
from pathlib import Path

from mgformer.errors import ConfigError
from mgformer.locks import locked
from mgformer.runs.bundle import Bundle
from mgformer.runs.cold import with_predictions
from mgformer.runs.config import build_config, with_settings
from mgformer.runs.fit import fit
from mgformer.runs.histories import check_histories
from mgformer.runs.record import Refit, commit_of_code
from mgformer.runs.train import streams_of
from mgformer.runs.warm_start import check_trained
from mgformer.runs.workspace import Workspace
from mgformer.version import __version__


def refit(
    bundle: Bundle,
    *,
    folder: Path | None = None,
    resume: bool = False,
    device: str | None = None,
) -> Bundle:
    """Train the model of a bundle again on all of its pairs.

    A run that started from another run starts from its own weights. The pairs of a refreshed
    recommender include those that a refresh added.

    Args:
        bundle: A trained recommender with pairs that it was not trained on.
        folder: Where a model that is trained step by step keeps its log and checkpoints.
        resume: Continue from the checkpoint in `folder`, if there is one.
        device: Where to train, if not where the run was trained.
    """
    check_histories(bundle, "refit")
    record, pairs = bundle.record, bundle.train.union(bundle.valid).union(bundle.test)
    if bundle.history:
        pairs = pairs.union(bundle.history)
    refreshed = record.refreshed
    num_held_out = len(pairs) - (refreshed.trained_pairs if refreshed else len(bundle.train))
    if num_held_out <= 0 and not record.forgotten:
        raise ConfigError(
            f"nothing was held out of the {len(pairs):,} pairs that this recommender was trained"
            " on: there is no more to train it on"
        )
    config = record.run_config()
    if device is not None:
        described = with_settings(record.config, [f"train.device={device}"])
        config = build_config(described, "--device", trusted=False)
    if config.warm_start and config.trainable:
        check_trained(bundle)
    with locked(folder):
        workspace = None
        if folder and config.trainable:
            # The mark keeps `train --resume` from continuing a refit, and the other way round.
            workspace = Workspace(folder, {**config.to_mapping(), "refit": True}, resume=resume)
            changed = refreshed or record.forgotten
            workspace.begin(pairs.fingerprint if changed else record.fingerprint)
        began = time.perf_counter()
        fitted = fit(
            config,
            pairs,
            streams_of(config.seed).whole,
            chosen=record.chosen,
            hooks=workspace.hooks("refit") if workspace else None,
            before=bundle if config.warm_start else None,
        )
        if workspace:
            workspace.close()
    done = Refit(
        pairs=len(pairs),
        held_out_before=max(0, num_held_out),
        seconds=round(time.perf_counter() - began, 3),
        library=__version__,
        commit=commit_of_code(),
    )
    protocol = f"{record.protocol}; then trained again on everything, which is not tested"
    # A model that starts from its own weights still has what it learned from forgotten users.
    forgotten = record.forgotten if config.warm_start else None
    changes = {
        "protocol": protocol,
        "cold": None,
        "refit": done,
        "refreshed": None,
        "forgotten": forgotten,
        "added": None,  # what has pairs is learned now, and the rest is predicted
    }
    whole = Bundle(
        scorer=fitted.scorer,
        train=pairs,
        valid=pairs.no_pairs(),
        test=pairs.no_pairs(),
        history=None,
        about_items=bundle.about_items,
        about_users=bundle.about_users,
        rules=bundle.rules,
        record=record.model_copy(update=changes),
        per_user=bundle.per_user,
        weights=fitted.weights,
    )
    return with_predictions(whole)
