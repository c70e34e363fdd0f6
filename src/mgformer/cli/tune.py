"""mgformer tune: options that do best on validation."""

import math
from pathlib import Path
from typing import Any

import typer

from mgformer.cli.console import INTERRUPTED, fail, out, print_json, print_table, working
from mgformer.errors import ConfigError
from mgformer.experiments.tune import BEST, TuningResult, option_list, tune
from mgformer.models import BUILTIN
from mgformer.runs.bundle_files import check_folder
from mgformer.runs.config import (
    DEFAULT_DATASET,
    DEFAULT_MODEL,
    build_config,
    named,
    read_config,
    with_choices,
    with_settings,
)

MOST_SHOWN = 10


def command(
    data: str | None = typer.Argument(
        None, help="A file, a folder, or a catalog name.", show_default=DEFAULT_DATASET
    ),
    model: str | None = typer.Option(
        None, help=f"One of {', '.join(sorted(BUILTIN))}.", show_default=DEFAULT_MODEL
    ),
    trials: int = typer.Option(20, help="Trials in all, with those that are in --out already."),
    config: Path | None = typer.Option(
        None, help="A TOML file that describes the run to start from; it is the first trial."
    ),
    settings: list[str] = typer.Option(
        [],
        "--set",
        metavar="SECTION.OPTION=VALUE",
        help="Set any option, and hold it; may be repeated.",
    ),
    seed: int | None = typer.Option(
        None, help="Seed of the split, the model and the search.", show_default="0"
    ),
    timeout: float = typer.Option(
        math.inf, help="Seconds after which no trial is begun.", show_default="none"
    ),
    folder: Path | None = typer.Option(
        None,
        "--out",
        help="Folder of the trials and of best.toml.",
        show_default="runs/DATASET-MODEL-tune",
    ),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object."),
) -> None:
    """Find the options of a model that do best on validation; the test part is not used.

    Run the same command again to continue. Train the result with mgformer train --config.
    """
    if trials < 1:
        raise ConfigError(f"--trials must be at least 1, got {trials}")
    if not timeout > 0:
        raise ConfigError(f"--timeout must be above 0, got {timeout:g}")
    raw = with_choices(read_config(config) if config else {}, data, model, seed)
    run = build_config(with_settings(raw, settings), str(config or "options"))
    folder = folder or Path("runs") / f"{Path(run.dataset).stem}-{run.model_name}-tune"
    check_folder(folder)
    try:
        with working():
            tuned = tune(run, folder, trials, fixed=named(settings), timeout=timeout)
    except KeyboardInterrupt:
        fail("interrupted; run the same command again to continue", INTERRUPTED)
    if as_json:
        print_json(summary(tuned, folder))
    else:
        show(tuned, folder)


def summary(tuned: TuningResult, folder: Path) -> dict[str, Any]:
    """Return the machine-readable result of a tuning."""
    return {
        "model": tuned.config.model_name,
        "dataset": tuned.dataset,
        "fingerprint": tuned.fingerprint,
        "protocol": tuned.protocol,
        "seed": tuned.config.seed,
        "best": {
            "trial": tuned.ranked[0],
            "valid": tuned.best.valid,
            "epochs": tuned.best.epochs,
            "changes": tuned.changes(tuned.best),
        },
        "trials": [
            {"trial": number, **trial.model_dump(mode="json", exclude={"curve"})}
            for number, trial in enumerate(tuned.trials)
        ],
        "config": str(folder / BEST),
        "run": str(folder),
    }


def show(tuned: TuningResult, folder: Path) -> None:
    """Print the best trials and the options they changed."""
    run = tuned.config
    out.print(f"{run.model_name} on {tuned.dataset} ({tuned.fingerprint}), seed {run.seed}")
    out.print(f"protocol: {tuned.protocol}", style="dim")
    rows = []
    for number in tuned.ranked[:MOST_SHOWN]:
        trial = tuned.trials[number]
        figures = [f"{trial.valid[name]:.4f}" for name in ("ndcg@20", "recall@20")]
        rows.append(
            [
                str(number),
                option_list(tuned.changes(trial), " ") or "as given",
                *figures,
                str(trial.epochs or "–"),
                f"{trial.seconds:.1f}",
            ]
        )
    columns = ["trial", "changes", "NDCG@20", "Recall@20", "epoch", "seconds"]
    print_table(columns, rows, "best trials, on validation", num_text=2)
    best = folder / BEST
    out.print(f"{tuned.counts()}; train the best with: mgformer train --config {best}")
