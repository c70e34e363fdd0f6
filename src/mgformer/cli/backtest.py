"""mgformer backtest: models at several moments in time, each tested on what came next."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from typer import Option

from mgformer.cli.console import out, print_json, print_table, working
from mgformer.cli.options import AsJson, Data, place, settings_option

if TYPE_CHECKING:
    from mgformer.experiments.backtest import Backtest

WINDOW = "Share of the interactions in the window after each cut."
POLICY = "Also test the models of the first cut in all later windows, without training them again."


def command(
    models: str = Option(help="Names, package.module:Class or TOML files, separated by commas."),
    data: Data = None,
    num_cuts: int = Option(4, "--cuts", help="Number of moments; windows end with the data."),
    window: float = Option(0.1, "--window", help=WINDOW),
    policy: bool = Option(False, "--policy", help=POLICY),
    presets: Path | None = Option(None, "--config-dir", help="Folder where NAME.toml has options."),
    settings: list[str] = settings_option("Set any option for all models"),
    seed: int | None = Option(None, help="Seed of the models.", show_default="0"),
    folder: Path | None = place("Folder of the runs and the tables.", "runs/DATASET-backtest"),
    as_json: AsJson = False,
) -> None:
    """Test models at several moments in time, each on what came next.

    At each cut, a model is trained on the interactions before it and tested on those in the window
    after it. The data must have times. Run the same command again to continue: runs that are in
    --out are not repeated.
    """
    from mgformer.data.cuts import check_cuts
    from mgformer.experiments.backtest import backtest, rows_of
    from mgformer.experiments.backtest_report import to_json, write_report
    from mgformer.runs.bundle_files import check_folder

    check_cuts(num_cuts, window)
    wanted = [model.strip() for model in models.split(",") if model.strip()]
    configs = rows_of(wanted, data, window, presets=presets, settings=settings, seed=seed)
    dataset = next(iter(configs.values())).dataset
    folder = folder or Path("runs") / f"{Path(dataset).stem}-backtest"
    check_folder(folder)
    with working(lambda: "run the same command again to continue"):
        found = backtest(configs, folder, num_cuts=num_cuts, policy=policy)
    write_report(found, folder, shlex.join(["mgformer", *sys.argv[1:]]))
    if as_json:
        print_json({**to_json(found), "folder": str(folder)})
    else:
        show(found, folder)


def show(found: "Backtest", folder: Path) -> None:
    """Print the tables."""
    from mgformer.experiments.backtest_report import DOCUMENT, PLOT, sections

    out.print(f"{found.dataset} ({found.fingerprint}), {len(found.windows)} cuts")
    for title, table, note in sections(found):
        print_table(*table, title=title)
        if note:
            out.print(note, style="dim")
    out.print(f"saved in {folder}; see {folder / DOCUMENT} and {folder / PLOT}")
