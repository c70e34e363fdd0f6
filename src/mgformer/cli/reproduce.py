"""mgformer reproduce: the tables and figures of the MGFormer paper, run again."""

import shlex
import sys
from enum import StrEnum
from pathlib import Path

from typer import Argument, Option

from mgformer.cli.console import err, out, print_json, print_table, working
from mgformer.cli.options import AsJson
from mgformer.data.entries import entry

What = StrEnum("What", ["table2", "table3", "figure2", "timing", "order"])
WHAT = (
    "table2: all models; table3: ablations; figure2: item groups; timing: epochs side by side;"
    " order: models with and without the order of interactions, where the test comes later."
)
ONLY = "One row, and the row it is tested against; may be repeated."


def command(
    what: What = Argument(help=WHAT),
    dataset: str = Option("amazon-beauty", help="Catalog name, see `mgformer datasets`."),
    seeds: int = Option(1, min=1, help="Runs of each row, each with its own split."),
    only: list[str] = Option([], help=ONLY, show_default="all"),
    no_train: bool = Option(False, "--no-train", help="Train nothing; use the runs that exist."),
    folder: Path = Option("runs/reproduce", "--out", help="Folder of tables and of runs to reuse."),
    as_json: AsJson = False,
) -> None:
    """Run a table or figure of the MGFormer paper again.

    The result is shown beside the paper's figures.
    """
    from mgformer.experiments.reproduce import reproduce, reproduce_timing
    from mgformer.runs.bundle_files import check_folder

    entry(dataset)  # raises for names that are not in the catalog
    place = folder / dataset
    check_folder(place)
    made_by = shlex.join(["mgformer", *sys.argv[1:]])
    with working():
        if what is What.timing:
            made = reproduce_timing(dataset, only, made_by)
        else:
            made = reproduce(what, dataset, only, None if no_train else seeds, place, made_by)
    path = place / f"{what}.md"
    made.write(path)
    columns, rows = made.table
    if as_json:
        cells = [dict(zip(columns, row, strict=True)) for row in rows]
        records = {n: [run.record.to_mapping() for run in own] for n, own in made.runs.items()}
        print_json({"table": cells, "runs": records, "path": str(path)})
        return
    print_table(columns, rows)
    out.print(made.text.splitlines()[-1], style="dim")
    err.print(f"written to {path}, with .csv, .tex and .svg beside it", style="dim")
