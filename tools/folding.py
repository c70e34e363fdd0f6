"""Measure how well users that the model has never seen are served, beside the same users trained.

    python -m tools.folding amazon-beauty/mgformer … [--epochs 20]

A tenth of the users is held out, another tenth for validation. The model gets half of their items
and has to find the other half. "folded" is a model that was trained without these users; "trained"
is the same model, trained on the known halves too. Runs are stored in runs/folding and are not
repeated. Figures go to results/folding; `python -m tools.render` shows them in
docs/reference/serving-figures.md.
"""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from mgformer.cli.console import working
from mgformer.data.dataset import Dataset, open_dataset
from mgformer.data.splits import split_dataset
from mgformer.experiments.paper_rows import preset
from mgformer.ranking.metrics import SELECTION_METRICS
from mgformer.runs.config import RunConfig, build_config
from mgformer.runs.folder import Run, ensure_run
from tools.store import RESULTS, write_json

HELD_OUT = {"kind": "users", "valid": 0.1, "test": 0.1, "history": 0.5}


def main() -> None:
    """Train what is missing, and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("presets", nargs="+", help="dataset/model")
    parser.add_argument("--runs", type=Path, default=Path("runs/folding"))
    parser.add_argument("--epochs", type=int, help="at most this many; default: as in the preset")
    options = parser.parse_args()
    for full in options.presets:
        dataset, _, name = full.partition("/")
        with working():
            folded, trained = train_both(dataset, name, options.runs / full, options.epochs)
        path = RESULTS / "folding" / dataset / f"{name}-{folded.record.seed}.json"
        write_json(path, figures(dataset, name, folded, trained))


def configs_of(dataset: str, name: str, epochs: int | None) -> tuple[RunConfig, RunConfig]:
    """Return the run without the held-out users, and the run with their known halves."""
    raw: dict[str, Any] = preset(dataset, name) or {"dataset": dataset, "model": {"name": name}}
    if epochs:
        most = min(epochs, build_config(raw).train.epochs)
        raw = {**raw, "train": {**raw.get("train", {}), "epochs": most}}
    folded, trained = (
        build_config({**raw, "split": split}) for split in (HELD_OUT, {"kind": "given"})
    )
    return folded, trained


def train_both(dataset: str, name: str, folder: Path, epochs: int | None) -> tuple[Run, Run]:
    """Train a preset without the held-out users, and with the items they are known by."""
    folded, trained = configs_of(dataset, name, epochs)
    whole = open_dataset(folded.dataset, folded.data)
    return (
        ensure_run(folded, folder / "folded"),
        ensure_run(trained, folder / "trained", with_histories(whole, folded)),
    )


def with_histories(dataset: Dataset, config: RunConfig) -> Dataset:
    """Return the data with its parts given: the known halves of held-out users are in train."""
    split_rng, _ = np.random.default_rng(config.seed).spawn(2)
    split = split_dataset(dataset, config.split, split_rng)
    assert split.history is not None
    train = split.train.union(split.history)
    return replace(dataset, parts={"train": train, "valid": split.valid, "test": split.test})


def figures(dataset: str, name: str, folded: Run, trained: Run) -> dict[str, Any]:
    """Return the test figures of both runs, and of recommending what is popular."""
    record = folded.record
    sides = {
        "folded": record.test,
        "trained": trained.record.test,
        "popularity": record.popularity,
    }
    return {
        "dataset": dataset,
        "name": name,
        "fingerprint": record.fingerprint,
        "seed": record.seed,
        **{side: {m: own[m] for m in SELECTION_METRICS} for side, own in sides.items()},
        "epochs": {"folded": record.epochs, "trained": trained.record.epochs},
        "commit": record.commit,
    }


if __name__ == "__main__":
    main()
