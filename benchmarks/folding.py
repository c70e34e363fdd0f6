"""Users the model has never seen: how much of a trained user's quality folding in reaches.

    python -m benchmarks.folding [--only amazon-beauty/mgformer …] [--epochs 20]

A tenth of the users is held out whole, another for validation. Each is known by half of the items,
and the other half is to be found. "folded in" is a model that was trained without them; "trained"
is the same model, trained on their known halves as well. With --only, those presets are trained,
both ways with at most as many epochs as --epochs says; runs that are there (in runs/folding) are
not repeated. Without, the table of docs/serving.md is generated from the run folders; rows of runs
that are gone stay.
"""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.documents import ROOT, parsed, read_block, write_block
from mgformer.cli.console import working
from mgformer.data.catalog import open_dataset
from mgformer.data.dataset import Dataset
from mgformer.data.splits import split_dataset
from mgformer.experiments.tables import Table
from mgformer.runs.config import RunConfig, build_config, read_config
from mgformer.runs.folder import Run, check_config, ensure_run, find_run

HELD_OUT = {"kind": "users", "valid": 0.1, "test": 0.1, "history": 0.5}
FLOOR = "popularity"
METRICS = ("recall@20", "ndcg@20")
HEAD = [
    "model", "folded in, Recall@20 / NDCG@20", "trained", "ratio", "popularity", "epochs", "run",
]  # fmt: skip


def main() -> None:
    """Train what is asked for, or write the table of all there is."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=Path, default=Path("runs/folding"))
    parser.add_argument("--only", nargs="*", default=[], help="dataset/model; default: none")
    parser.add_argument("--epochs", type=int, help="at most so many; default: as in the preset")
    options = parser.parse_args()
    for name in options.only:
        with working():
            train_both(name, options.runs / name, options.epochs)
    if not options.only:
        serving = ROOT / "docs" / "serving.md"
        text = table(options.runs, read_block(serving, "folding"))
        write_block(serving, "folding", text)


def configs_of(name: str, epochs: int | None = None) -> dict[str, RunConfig]:
    """Return the options of both runs of a preset, by the folders they are in."""
    dataset, _, model = name.partition("/")
    path = ROOT / "configs" / dataset / f"{model}.toml"
    raw: dict[str, Any] = {"dataset": dataset, "model": {"name": model}}
    if path.exists():
        raw = read_config(path)
    if epochs:
        most = min(epochs, build_config(raw).train.epochs)
        raw = {**raw, "train": {**raw.get("train", {}), "epochs": most}}
    splits: dict[str, dict[str, Any]] = {"folded": HELD_OUT, "trained": {"kind": "given"}}
    return {part: build_config({**raw, "split": split}) for part, split in splits.items()}


def train_both(name: str, folder: Path, epochs: int | None) -> None:
    """Train a preset without the users held out, and with the items they are known by."""
    configs = configs_of(name, epochs)
    folded = configs["folded"]
    ensure_run(folded, folder / "folded")
    whole = open_dataset(folded.dataset, folded.data)
    ensure_run(configs["trained"], folder / "trained", with_histories(whole, folded))


def found(name: str, folder: Path) -> dict[str, Run]:
    """Return those runs of a preset that are there; refuse what has other options by now."""
    runs = {part: run for part in ("folded", "trained") if (run := find_run(folder / part))}
    for part, run in runs.items():
        wanted = configs_of(name, run.record.config["train"]["epochs"])[part]
        check_config(run.folder, run.record.config, wanted)
    return runs


def with_histories(dataset: Dataset, config: RunConfig) -> Dataset:
    """Return the data with the parts of the split, what held-out users are known by in train."""
    split_rng, _ = np.random.default_rng(config.seed).spawn(2)
    split = split_dataset(dataset, config.split, split_rng)
    assert split.history is not None
    train = split.train.union(split.history)
    return replace(dataset, parts={"train": train, "valid": split.valid, "test": split.test})


def table(runs: Path, before: str) -> str:
    """Return a row for every model that was run both ways, those `before` among them."""
    rows = parsed(before, len(HEAD))
    for place in sorted(runs.glob("*/*")):
        name = f"{place.parent.name}/{place.name}"
        both, floor = found(name, place), find_run(place.parent / FLOOR / "folded")
        if len(both) < 2 or floor is None or place.name == FLOOR:
            continue
        folded, trained = both["folded"], both["trained"]
        ratios = [figure(folded, metric) / figure(trained, metric) for metric in METRICS]
        record = folded.record
        rows[name] = [
            name,
            figures(folded),
            figures(trained),
            f"{ratios[0]:.3f} / {ratios[1]:.3f}",
            figures(floor),
            f"{kept_epochs(folded)} and {kept_epochs(trained)}",
            f"{record.fingerprint}, seed {record.seed}, {record.commit}",
        ]
    lines = [rows[name] for name in sorted(rows) if "/" in name]
    return Table(HEAD, lines).markdown()


def figure(run: Run, metric: str) -> float:
    return run.record.test[metric]


def figures(run: Run) -> str:
    return " / ".join(f"{figure(run, metric):.4f}" for metric in METRICS)


def kept_epochs(run: Run) -> str:
    return str(run.record.epochs or "–")


if __name__ == "__main__":
    main()
