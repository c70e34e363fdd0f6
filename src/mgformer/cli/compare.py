"""mgformer compare: several models on one split, by one protocol."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typer import Option

from mgformer.cli.console import out, print_json, print_table, working
from mgformer.cli.options import Data, place, settings_option
from mgformer.cli.train import summary
from mgformer.errors import ConfigError

if TYPE_CHECKING:
    from mgformer.experiments.compare import Comparison


def command(
    models: str = Option(help="Names, package.module:Class or TOML files, separated by commas."),
    data: Data = None,
    presets: Path | None = Option(None, "--config-dir", help="Folder where NAME.toml has options."),
    num_seeds: int = Option(1, "--seeds", help="Runs of each model, each with its own split."),
    trials: int = Option(0, "--tune", help="Trials to tune each model with, on the first split."),
    settings: list[str] = settings_option("Set any option for all models and do not tune it"),
    folder: Path | None = place("Folder of the runs and the table.", "runs/DATASET-compare"),
    as_json: bool = Option(False, "--json", help="Print a JSON list with an object for each run."),
) -> None:
    """Train several models on one split and compare them on test.

    Run the same command again to continue: runs that are in --out are not repeated.
    """
    from mgformer.experiments.compare import compare, contestants, write_document
    from mgformer.runs.bundle_files import check_folder
    from mgformer.runs.config import named

    if num_seeds < 1:
        raise ConfigError(f"--seeds must be at least 1, got {num_seeds}")
    if trials < 0:
        raise ConfigError(f"--tune must be at least 0, got {trials}")
    wanted = [model.strip() for model in models.split(",") if model.strip()]
    configs = contestants(wanted, data, presets, settings)
    dataset = next(iter(configs.values())).dataset
    folder = folder or Path("runs") / f"{Path(dataset).stem}-compare"
    check_folder(folder)
    with working(lambda: "run the same command again to continue"):
        found = compare(configs, folder, num_seeds=num_seeds, trials=trials, fixed=named(settings))
    write_document(found, folder, shlex.join(["mgformer", *sys.argv[1:]]))
    if as_json:
        print_json(listed(found))
    else:
        show(found, folder)


def listed(found: "Comparison") -> list[dict[str, Any]]:
    """Return the machine-readable results of every run, with times and tests."""
    from mgformer.experiments.tables import significance_json

    results = []
    for name, runs in found.runs.items():
        tests = found.tests.get(name)
        against = {"against": {"name": found.best, **significance_json(tests)}} if tests else {}
        results += [
            {
                "name": name,
                **summary(run.record, run.folder),
                "seconds_per_epoch": run.seconds_per_epoch,
                "seconds_to_best": run.seconds_to_best,
                **against,
            }
            for run in runs
        ]
    return results


def show(found: "Comparison", folder: Path) -> None:
    """Print the table, and the data and protocol it was made with."""
    from mgformer.experiments.compare import DOCUMENT
    from mgformer.experiments.tables import comparison_table, explanation

    runs = found.runs[found.best]
    record = runs[0].record
    seeds = ", ".join(str(run.record.seed) for run in runs)
    many = "seeds" if len(runs) > 1 else "seed"
    out.print(f"test on {record.dataset} ({record.fingerprint}), {many} {seeds}")
    out.print(f"protocol: {record.protocol}", style="dim")
    print_table(*comparison_table(found.runs, found.tests))
    out.print(explanation(found.best, len(runs), found.tests), style="dim")
    out.print(f"saved in {folder}; the table is in {folder / DOCUMENT}")
