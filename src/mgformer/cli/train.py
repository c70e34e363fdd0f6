"""mgformer train: from a dataset to a trained recommender on disk."""

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer

from mgformer.cli.console import INTERRUPTED, fail, out, print_json, print_table, working
from mgformer.errors import ConfigError
from mgformer.models import BUILTIN
from mgformer.runs.bundle_files import check_folder, load_bundle, save_bundle
from mgformer.runs.config import (
    DEFAULT_DATASET,
    DEFAULT_MODEL,
    build_config,
    read_config,
    with_choices,
    with_settings,
)
from mgformer.runs.record import Record
from mgformer.runs.train import profile_training, train
from mgformer.training.checkpoint import load_checkpoint, remove_checkpoint
from mgformer.training.profile import Profile

MOST_OPERATORS = 12
SHOWN = ("recall", "ndcg", "precision", "hitrate", "mrr", "map", "coverage", "novelty", "gini")


def command(
    data: str | None = typer.Argument(
        None, help="A file, a folder, or a catalog name.", show_default=DEFAULT_DATASET
    ),
    model: str | None = typer.Option(
        None, help=f"One of {', '.join(sorted(BUILTIN))}.", show_default=DEFAULT_MODEL
    ),
    config: Path | None = typer.Option(None, help="A TOML file that describes the run."),
    settings: list[str] = typer.Option(
        [], "--set", metavar="SECTION.OPTION=VALUE", help="Set any option; may be repeated."
    ),
    seed: int | None = typer.Option(
        None, help="Seed of the split and the model.", show_default="0"
    ),
    run: Path | None = typer.Option(
        None, "--out", help="Folder of the trained recommender.", show_default="runs/DATASET-MODEL"
    ),
    before: Path | None = typer.Option(
        None,
        "--from",
        help="Go on from this trained recommender: its options, its data beside the new, and what"
        " it has learned of users and items.",
    ),
    resume: bool = typer.Option(
        False, help="Go on with the run that was interrupted in --out, with the options it had."
    ),
    profile: bool = typer.Option(
        False, help="Make a few steps, show where their time goes, and train nothing."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object."),
) -> None:
    """Train a model on interactions, evaluate it, and save it.

    Options live in sections: --set split.kind=time, --set data.sep=';', --set model.l2=300.
    """
    raw = read_config(config) if config else {}
    if resume and run and not (config or data or model):
        unfinished = load_checkpoint(run)
        if unfinished is None:
            raise ConfigError(
                f"{run}: no unfinished run to go on with; give the data and the model to begin one"
            )
        raw = unfinished.state["config"]
        if "refit" in raw:
            raise ConfigError(f"{run}: what was interrupted there is a refit: use mgformer refit")
    if before is not None:
        if not config:
            raw = {**load_bundle(before).record.config, **raw}
        raw["warm_start"] = str(before)
    chosen = with_choices(raw, data, model, seed)
    described = build_config(with_settings(chosen, settings), str(config or "options"))
    if profile:
        with working():
            found = profile_training(described)
        if as_json:
            print_json(asdict(found))
        else:
            show_profile(found)
        return
    folder = run or Path("runs") / f"{Path(described.dataset).stem}-{described.model_name}"
    check_folder(folder)
    try:
        with working():
            bundle = train(described, folder=folder, resume=resume)
            save_bundle(bundle, folder)
            remove_checkpoint(folder)
    except KeyboardInterrupt:
        left = load_checkpoint(folder)
        # Before the first checkpoint there may be one of another run, which is not to be taken up.
        own = left is not None and left.state["config"] == described.to_mapping()
        how = f"; go on with: mgformer train --resume --out {shlex.quote(str(folder))}"
        fail(f"interrupted{how if own else ''}", INTERRUPTED)
    if as_json:
        print_json(summary(bundle.record, folder))
    else:
        show_metrics(bundle.record)
        out.print(
            f"saved in {folder}; try: mgformer recommend {folder} --user {bundle.users.values[0]}"
        )


def summary(record: Record, folder: Path) -> dict[str, Any]:
    """Return the machine-readable result of a run."""
    left_out = {"config", "library"}
    kept = {name: value for name, value in record.to_mapping().items() if name not in left_out}
    return {**kept, "run": str(folder)}


def show_profile(found: Profile) -> None:
    """Print the stages of a step, and the operators that take most of it."""
    total = sum(found.stages.values())
    epoch = total * found.steps_per_epoch / 1000
    out.print(f"a step takes {total:.1f} ms; an epoch of {found.steps_per_epoch:,}, {epoch:.0f} s")
    rows = [[name, f"{ms:.2f}", f"{ms / total:.0%}"] for name, ms in found.stages.items()]
    print_table(["stage", "ms", "share"], rows)
    operators = list(found.operators.items())[:MOST_OPERATORS]
    everything = sum(ms for ms, _ in found.operators.values())
    rows = [[n, f"{ms:.2f}", f"{ms / everything:.0%}", f"{c:g}"] for n, (ms, c) in operators]
    print_table(["operator", "ms", "share", "calls"], rows)


def show_metrics(record: Record) -> None:
    """Print the metrics of a run beside those of popularity."""
    out.print(f"{record.model} on {record.dataset} ({record.fingerprint}), seed {record.seed}")
    out.print(f"protocol: {record.protocol}", style="dim")
    test, valid, floor = record.test, record.valid, record.popularity
    ks = record.config["evaluation"]["ks"]
    middle = 20 if 20 in ks else ks[-1]
    rows = []
    for name in [f"{metric}@{k}" for metric in SHOWN for k in ks]:
        important = name.startswith(("recall", "ndcg")) or name.endswith(f"@{middle}")
        if important and (name in test or name in valid):
            figures = [part.get(name) for part in (test, floor, valid)]
            rows.append([name, *("–" if f is None else f"{f:.4f}" for f in figures)])
    if rows:
        print_table(["metric", "test", "popularity", "validation"], rows)
    else:
        out.print("no user has held-out items: nothing to measure")
