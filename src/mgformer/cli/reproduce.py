"""mgformer reproduce: the tables and figures of the MGFormer paper, run again."""

import os
import shlex
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path

import torch
import typer

from mgformer.cli.console import err, out, print_json, print_table, working
from mgformer.data.entries import entry
from mgformer.errors import BundleError, ConfigError
from mgformer.experiments.reproduce import plan, write
from mgformer.experiments.reproduce.plan import Row
from mgformer.experiments.tables import Table
from mgformer.experiments.timing import EpochTime, epoch_times
from mgformer.experiments.variants import VARIANTS
from mgformer.files import write_text
from mgformer.runs.bundle_files import check_folder
from mgformer.runs.config import build_config
from mgformer.runs.folder import Run
from mgformer.runs.record import commit_of_code
from mgformer.version import __version__

REFERENCE = "directau"
"""Whose epoch the others are compared with."""
TIMED = tuple(name for name in plan.PUBLISHED if name != "ultragcn")


class What(StrEnum):
    """What there is to reproduce."""

    table2 = "table2"
    table3 = "table3"
    figure2 = "figure2"
    timing = "timing"


def command(
    what: What = typer.Argument(
        help="table2: all models; table3: ablations of MGFormer; figure2: item groups; timing:"
        " epochs side by side."
    ),
    dataset: str = typer.Option("amazon-beauty", help="Catalog name, see `mgformer datasets`."),
    seeds: int = typer.Option(1, min=1, help="Runs of each row, every one with its own split."),
    only: list[str] = typer.Option(
        [], help="One row: a model, or a variant of table3; may be repeated.", show_default="all"
    ),
    no_train: bool = typer.Option(
        False, "--no-train", help="Write up the runs that are there, whatever their seeds."
    ),
    folder: Path = typer.Option(
        Path("runs/reproduce"), "--out", help="Where runs and tables go; runs there are kept."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object."),
) -> None:
    """Run a table or figure of the paper again, and write it up beside the paper's figures."""
    entry(dataset)  # raises for names that are not in the catalog
    place = folder / dataset
    check_folder(place)
    if what is What.timing:
        with working():
            times = _timing(dataset, only or TIMED)
        _write_chart(what, place, write.timing_chart(dataset, times))
        how = (
            f"`{_command()}`\n\nMedians of interleaved rounds of steps, on a machine with"
            f" {os.cpu_count()} cores, {torch.get_num_threads()} of them used, torch"
            f" {torch.__version__}; commit {commit_of_code() or __version__}.\n"
        )
        _show(what, write.timing_table(dataset, times, REFERENCE), place, how, as_json)
        return
    rows = _rows(what, dataset, only)
    with working():
        runs = plan.find_all(rows, place) if no_train else plan.run_all(rows, range(seeds), place)
    if not runs:
        raise BundleError(f"{place}: none of these runs is there; run without --no-train")
    title = f"NDCG@20 on test, {dataset}"
    if what is What.figure2:
        table, chart = write.group_table(runs), write.group_chart(dataset, runs)
    else:
        table, chart = write.quality_table(rows, runs), write.quality_chart(title, runs)
    _write_chart(what, place, chart)
    _show(what, table, place, write.provenance(rows, runs, _command()), as_json, runs)


def _rows(what: What, dataset: str, wanted: Sequence[str]) -> list[Row]:
    if what is What.table3:
        return plan.table3_rows(dataset, wanted or tuple(VARIANTS))
    models = plan.FIGURE2_MODELS if what is What.figure2 else plan.TABLE2_MODELS
    return plan.table2_rows(dataset, wanted or models)


def _timing(dataset: str, models: Sequence[str]) -> dict[str, EpochTime]:
    if REFERENCE not in models:
        raise ConfigError(f"timing compares with {REFERENCE}: add it to --only")
    configs = {
        name: build_config(plan.with_paper_split(dataset, name), name)
        for name in plan.known(models, TIMED, "model")
    }
    return epoch_times(configs, REFERENCE)


def _write_chart(what: What, place: Path, chart: str) -> None:
    place.mkdir(parents=True, exist_ok=True)
    write_text(place / f"{what}.svg", chart)


def _show(
    what: What,
    table: Table,
    place: Path,
    how: str,
    as_json: bool,
    runs: dict[str, list[Run]] | None = None,
) -> None:
    path = place / f"{what}.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, f"{table.markdown()}\n{how}")
    if as_json:
        records = {name: [run.record for run in own] for name, own in (runs or {}).items()}
        rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
        print_json({"table": rows, "runs": records, "path": str(path)})
        return
    print_table(table.columns, table.rows)
    out.print(how.splitlines()[-1], style="dim")
    err.print(f"written to {path}", style="dim")


def _command() -> str:
    return shlex.join(["mgformer", *sys.argv[1:]])
