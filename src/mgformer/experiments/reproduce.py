"""Run the tables and figures of the paper again, and write them beside the paper's figures."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import polars as pl
import torch

from mgformer.errors import BundleError, ConfigError, DataError
from mgformer.experiments import paper, paper_rows
from mgformer.experiments.chart import bar_chart
from mgformer.experiments.paper_rows import Row
from mgformer.experiments.summary import Summary, summarize
from mgformer.experiments.tables import Table, group_table, quality_table, runs_csv, timing_table
from mgformer.experiments.timing import epoch_times
from mgformer.experiments.variants import VARIANTS
from mgformer.files import write_text
from mgformer.ranking.evaluation import GROUPS
from mgformer.ranking.metrics import SELECTION_METRICS
from mgformer.runs.config import build_config
from mgformer.runs.folder import Run
from mgformer.runs.record import commit_of_code
from mgformer.version import __version__

RECALL, NDCG = SELECTION_METRICS
REFERENCE = "directau"
"""Epoch times of the other models are compared with those of this one."""
TIMED = tuple(name for name in paper_rows.PUBLISHED if name != "ultragcn")


class Reproduced(NamedTuple):
    """A table of the paper, run again."""

    table: Table
    text: str
    """Where the figures come from."""
    csv: str
    """The same figures, not rounded."""
    chart: str
    """SVG."""
    runs: Mapping[str, Sequence[Run]]

    def write(self, path: Path) -> None:
        """Write the Markdown file, and beside it .tex, .csv and .svg."""
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, f"{self.table.markdown()}\n{self.text}")
        write_text(path.with_suffix(".tex"), self.table.latex())
        write_text(path.with_suffix(".csv"), self.csv)
        write_text(path.with_suffix(".svg"), self.chart)


def reproduce(
    what: str, dataset: str, only: Sequence[str], seeds: int | None, folder: Path, command: str
) -> Reproduced:
    """Make table 2, table 3 or figure 2 from runs.

    Args:
        what: table2, table3 or figure2.
        dataset: Name in the catalog.
        only: Rows to make; all if it is empty.
        seeds: Train the runs that are missing for this many seeds; None: train nothing.
        folder: Where the runs of the dataset are stored.
        command: What the user typed.
    """
    if what == "table3":
        rows = paper_rows.table3_rows(dataset, only or tuple(VARIANTS))
    else:
        models = paper_rows.FIGURE2_MODELS if what == "figure2" else paper_rows.TABLE2_MODELS
        rows = paper_rows.table2_rows(dataset, only or models)
    if seeds is None:
        runs = paper_rows.find_all(rows, folder)
    else:
        runs = paper_rows.run_all(rows, range(seeds), folder)
    if not runs:
        raise BundleError(f"{folder}: none of these runs exists; run without --no-train")
    summaries = {name: summarize([run.record for run in own]) for name, own in runs.items()}
    if what == "figure2":
        table = group_table(summaries)
        groups = {
            f"{group} items": {
                name: row.groups[group][RECALL].mean for name, row in summaries.items()
            }
            for group in GROUPS
        }
        chart = bar_chart(f"Recall@20 by popularity of items, {dataset}", groups)
    else:
        tests = paper_rows.tests_of(rows, runs)
        p_values = {name: found[NDCG].p_value for name, found in tests.items()}
        table = quality_table(summaries, {row.name: row.paper for row in rows}, p_values)
        bars = {name: row.test[NDCG].mean for name, row in summaries.items()}
        chart = bar_chart(f"NDCG@20 on test, {dataset}", {"": bars})
    return Reproduced(table, provenance(rows, summaries, command), runs_csv(runs), chart, runs)


def reproduce_timing(dataset: str, only: Sequence[str], command: str) -> Reproduced:
    """Time epochs of the models side by side."""
    models = only or TIMED
    if REFERENCE not in models:
        raise ConfigError(f"timing compares with {REFERENCE}: add it to --only")
    configs = {
        name: build_config(paper_rows.with_paper_split(dataset, name), name)
        for name in paper_rows.in_order(models, TIMED, "model")
    }
    times = epoch_times(configs, REFERENCE)
    stated = paper.EPOCH_SECONDS if dataset == paper_rows.REFERENCE else {}
    csv = pl.DataFrame([{"name": name, **time._asdict()} for name, time in times.items()])
    text = (
        f"`{command}`\n\nMedians of interleaved rounds of steps, on a machine with"
        f" {os.cpu_count()} cores, {torch.get_num_threads()} of them used, torch"
        f" {torch.__version__}; commit {commit_of_code() or __version__}.\n"
    )
    table = timing_table(times, stated, REFERENCE)
    bars = {name: time.seconds for name, time in times.items()}
    chart = bar_chart(f"Seconds of an epoch, {dataset}", {"": bars}, digits=1)
    return Reproduced(table, text, csv.write_csv(), chart, {})


def provenance(rows: Sequence[Row], summaries: Mapping[str, Summary], command: str) -> str:
    """Say where the figures of a table come from; refuse figures that cannot be compared."""
    kinds = {(row.fingerprint, row.protocol) for row in summaries.values()}
    if len(kinds) > 1:
        raise DataError(
            "runs of different data or protocols cannot stand in one table:"
            f" {'; '.join(f'{data}, {protocol}' for data, protocol in kinds)}; choose another --out"
        )
    ((fingerprint, protocol),) = kinds
    first, *others = dict.fromkeys(row.against for row in rows if row.name in summaries)
    against = f"“{first}”" + "".join(
        f", or “{other}” for rows that start from it" for other in others
    )
    commits = sorted({commit for row in summaries.values() for commit in row.commits})
    return (
        f"`{command}`\n\nData {fingerprint}; {protocol}. Every seed has its own split;"
        f" figures are means ± deviations over seeds. p: paired t-test against {against}, over test"
        f" users, each averaged over the seeds. Commits: {', '.join(commits)}.\n"
    )
