"""mgformer train: from a dataset to a trained recommender on disk."""

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from mgformer.cli.console import INTERRUPTED, fail, out, print_json, print_table, working
from mgformer.cli.options import AsJson, ConfigFile, Data, ModelName, Seed, Settings
from mgformer.errors import ConfigError
from mgformer.files import folder_name
from mgformer.outside import is_outside

if TYPE_CHECKING:
    from mgformer.runs.config import RunConfig
    from mgformer.runs.record import Record
    from mgformer.training.profile import Profile

MOST_OPERATORS = 12
SHOWN = ("recall", "ndcg", "precision", "hitrate", "mrr", "map", "coverage", "novelty", "gini")


def command(
    data: Data = None,
    model: ModelName = None,
    config: ConfigFile = None,
    settings: Settings = [],
    seed: Seed = None,
    run: Path | None = typer.Option(
        None, "--out", help="Folder of the trained recommender.", show_default="runs/DATASET-MODEL"
    ),
    before: Path | None = typer.Option(
        None,
        "--from",
        help="Start from this trained recommender: use its options and its weights, and add its"
        " pairs to the new ones.",
    ),
    resume: bool = typer.Option(
        False, "--resume", help="Continue the interrupted run in --out, with its options."
    ),
    profile: bool = typer.Option(
        False, "--profile", help="Run a few steps and show where their time goes; save nothing."
    ),
    as_json: AsJson = False,
) -> None:
    """Train a model on interactions, evaluate it, and save it.

    Options live in sections: --set split.kind=time, --set data.sep=';', --set model.l2=300.
    """
    from mgformer.runs import train
    from mgformer.runs.bundle_files import check_folder, save_bundle
    from mgformer.training.checkpoint import load_checkpoint, remove_checkpoint

    described = _run_config(data, model, config, settings, seed, run, before, resume)
    if profile:
        with working():
            found = train.profile_training(described)
        if as_json:
            print_json(asdict(found))
        else:
            show_profile(found)
        return
    folder = run or default_folder(described)
    check_folder(folder)
    try:
        with working():
            bundle = train.train(described, folder=folder, resume=resume)
            save_bundle(bundle, folder)
            remove_checkpoint(folder)
    except KeyboardInterrupt:
        left = load_checkpoint(folder)
        # Before the first checkpoint of this run, the folder may hold one of another run.
        if left is None or left.state["config"] != described.to_mapping():
            fail("interrupted", INTERRUPTED)
        again = ["mgformer", "train", "--resume", "--out", str(folder)]
        named = ["--model", described.model_name] if is_outside(described.model_name) else []
        fail(f"interrupted; continue with: {shlex.join(again + named)}", INTERRUPTED)
    if as_json:
        print_json(summary(bundle.record, folder))
    else:
        show_metrics(bundle.record)
        out.print(
            f"saved in {folder}; try: mgformer recommend {folder} --user {bundle.users.values[0]}"
        )


def _run_config(
    data: str | None,
    model: str | None,
    config: Path | None,
    settings: list[str],
    seed: int | None,
    run: Path | None,
    before: Path | None,
    resume: bool,
) -> "RunConfig":
    """Return the run that the options describe, alone or on top of an earlier run."""
    from mgformer.runs.bundle_files import load_record
    from mgformer.runs.config import (
        build_config,
        import_outside,
        read_config,
        with_choices,
        with_settings,
    )
    from mgformer.training.checkpoint import load_checkpoint

    raw, source = (read_config(config) if config else {}), str(config or "options")
    # The user's own options may import a model; those of the earlier run may not.
    import_outside(with_settings(with_choices(raw, data, model, seed), settings), source)
    if resume and run and not (config or data):
        unfinished = load_checkpoint(run)
        stored = unfinished.state["config"] if unfinished else None
        if stored is None and model is None:
            raise ConfigError(
                f"{run}: there is no unfinished run to continue; give the data and the model to"
                " start one"
            )
        # A model from outside is named again to import it; it keeps its options.
        if stored and (model is None or (is_outside(model) and model == stored["model"]["name"])):
            raw = stored
        if "refit" in raw:
            raise ConfigError(f"{run}: the unfinished run there is a refit; use mgformer refit")
    if before is not None:
        if not config:
            raw = {**load_record(before).config, **raw}
        raw["warm_start"] = str(before)
    described = with_settings(with_choices(raw, data, model, seed), settings)
    return build_config(described, source, trusted=False)


def default_folder(config: "RunConfig", suffix: str = "") -> Path:
    """Return the folder of a run that names none: `runs/DATASET-MODEL`."""
    model = folder_name(config.model_name)
    return Path("runs") / f"{Path(config.dataset).stem}-{model}{suffix}"


def summary(record: "Record", folder: Path) -> dict[str, Any]:
    """Return the machine-readable result of a run."""
    left_out = {"config", "library"}
    kept = {name: value for name, value in record.to_mapping().items() if name not in left_out}
    return {**kept, "run": str(folder)}


def show_profile(found: "Profile") -> None:
    """Print the stages of a step and its most expensive operators."""
    total = sum(found.stages.values())
    epoch = total * found.steps_per_epoch / 1000
    out.print(
        f"one step takes {total:.1f} ms; an epoch of {found.steps_per_epoch:,} steps, {epoch:.0f} s"
    )
    rows = [[name, f"{ms:.2f}", f"{ms / total:.0%}"] for name, ms in found.stages.items()]
    print_table(["stage", "ms", "share"], rows)
    operators = list(found.operators.items())[:MOST_OPERATORS]
    everything = sum(ms for ms, _ in found.operators.values())
    rows = [[n, f"{ms:.2f}", f"{ms / everything:.0%}", f"{c:g}"] for n, (ms, c) in operators]
    print_table(["operator", "ms", "share", "calls"], rows)


def show_metrics(record: "Record") -> None:
    """Print the metrics of a run beside those of popularity."""
    out.print(f"{record.model} on {record.dataset} ({record.fingerprint}), seed {record.seed}")
    out.print(f"protocol: {record.protocol}", style="dim")
    test, valid, popular = record.test, record.valid, record.popularity
    options = record.config["evaluation"]
    ks, own = options["ks"], options.get("metrics") or ()
    middle = 20 if 20 in ks else ks[-1]
    metrics = (*SHOWN, *(name.rpartition(":")[2] for name in own))
    rows = []
    for name in [f"{metric}@{k}" for metric in metrics for k in ks]:
        important = name.startswith(("recall", "ndcg")) or name.endswith(f"@{middle}")
        if important and (name in test or name in valid):
            figures = [part.get(name) for part in (test, popular, valid)]
            rows.append([name, *("–" if f is None else f"{f:.4f}" for f in figures)])
    if rows:
        print_table(["metric", "test", "popularity", "validation"], rows)
    else:
        out.print("no user has held-out items, so there is nothing to measure")
