"""mgformer tune: options that do best on validation."""

import math
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typer import Option

from mgformer.cli.console import out, print_json, print_table, working
from mgformer.cli.options import AsJson, Data, ModelName, place, settings_option
from mgformer.cli.train import default_folder
from mgformer.errors import ConfigError

if TYPE_CHECKING:
    from mgformer.experiments.tune import TuningResult

MOST_SHOWN = 10


def command(
    data: Data = None,
    model: ModelName = None,
    trials: int = Option(20, help="Number of trials, including those already in --out."),
    config: Path | None = Option(None, help="A TOML file that describes the first trial."),
    settings: list[str] = settings_option("Set any option and do not tune it"),
    seed: int | None = Option(None, help="Seed of split, model and search.", show_default="0"),
    timeout: float = Option(
        math.inf, help="Start no trial after these seconds.", show_default="none"
    ),
    folder: Path | None = place("Folder of trials and best.toml.", "runs/DATASET-MODEL-tune"),
    as_json: AsJson = False,
) -> None:
    """Search for the options of a model that do best on validation.

    Tuning never uses the test part. Run the same command again to continue with the trials in
    --out. Train with the result: mgformer train --config OUT/best.toml.
    """
    from mgformer.experiments.tune import tune
    from mgformer.runs.bundle_files import check_folder
    from mgformer.runs.config import build_config, named, read_config, with_choices, with_settings

    if trials < 1:
        raise ConfigError(f"--trials must be at least 1, got {trials}")
    if not timeout > 0:
        raise ConfigError(f"--timeout must be above 0, got {timeout:g}")
    raw = with_choices(read_config(config) if config else {}, data, model, seed)
    raw = with_settings(raw, settings)
    if "name" not in raw.get("model", {}):
        raise ConfigError(
            "no model to tune; name one with --model (mgformer train DATA shows which does well)"
        )
    run = build_config(raw, str(config or "options"))
    folder = folder or default_folder(run, f"{run.model_name}-tune")
    check_folder(folder)
    with working(lambda: "run the same command again to continue"):
        tuned = tune(run, folder, trials, fixed=named(settings), timeout=timeout)
    if as_json:
        print_json(summary(tuned, folder))
    else:
        show(tuned, folder)


def summary(tuned: "TuningResult", folder: Path) -> dict[str, Any]:
    """Return the machine-readable result of a tuning."""
    from mgformer.experiments.tune import BEST

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


def show(tuned: "TuningResult", folder: Path) -> None:
    """Print the best trials and the options that they changed."""
    from mgformer.experiments.tune import BEST, option_list

    run = tuned.config
    out.print(f"{run.model_name} on {tuned.dataset} ({tuned.fingerprint}), seed {run.seed}")
    out.print(f"protocol: {tuned.protocol}", style="dim")
    rows = []
    for number in tuned.ranked[:MOST_SHOWN]:
        trial = tuned.trials[number]
        changes = option_list(tuned.changes(trial), " ") or "as given"
        figures = [f"{trial.valid[name]:.4f}" for name in ("ndcg@20", "recall@20")]
        costs = [str(trial.epochs or "–"), f"{trial.seconds:.1f}"]
        rows.append([str(number), changes, *figures, *costs])
    columns = ["trial", "changes", "NDCG@20", "Recall@20", "epoch", "seconds"]
    print_table(columns, rows, "best trials, on validation", num_text=2)
    best = shlex.join(["mgformer", "train", "--config", str(folder / BEST)])
    out.print(tuned.counts())
    out.print(f"train the best with: {best}", soft_wrap=True)  # in one line, to be copied
