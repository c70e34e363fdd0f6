"""Run the tables and figures of the paper again, and write them beside the paper's figures."""

import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

import polars as pl
import torch

from mgformer.data.sampling import num_batches
from mgformer.errors import BundleError, DataError
from mgformer.experiments import order_rows, paper_rows, tables
from mgformer.experiments.chart import bar_chart
from mgformer.experiments.paper_rows import Row
from mgformer.experiments.summary import Summary, summarize
from mgformer.experiments.tables import NDCG, NOTHING, RECALL
from mgformer.experiments.timing import interleaved, median_ratio, stepper
from mgformer.files import write_text
from mgformer.ranking.evaluation import GROUPS
from mgformer.runs.folder import Run
from mgformer.runs.record import commit_of_code
from mgformer.runs.train import prepare
from mgformer.training.memory import keep_freed_memory
from mgformer.version import __version__

FIGURE2_MODELS = ("lightgcn", "directau", "mgformer")
REFERENCE = "directau"
"""Epoch times of the other models are compared with those of this one."""
STEPS = 10
"""Steps of each model in a round of timing."""
TIMED = tuple(name for name in paper_rows.PUBLISHED if name != "ultragcn")


log = logging.getLogger("mgformer")


class Reproduced(NamedTuple):
    """A table of the paper, run again."""

    table: tables.Table
    text: str
    """Where the figures come from."""
    csv: str
    """The same figures, not rounded."""
    chart: str
    """SVG."""
    runs: Mapping[str, Sequence[Run]]
    note: str = ""
    """What the stars of the LaTeX table mean."""

    def write(self, path: Path) -> None:
        """Write the Markdown file, and beside it .tex, .csv and .svg."""
        document = f"{self.table.markdown()}\n{self.text}"
        self.table.write(path, document, self.csv, tables.RANKED, self.note)
        write_text(path.with_suffix(".svg"), self.chart)


def reproduce(
    what: str, dataset: str, only: Sequence[str], seeds: int | None, folder: Path, command: str
) -> Reproduced:
    """Make table2, table3, figure2 or order from the runs in `folder`.

    The table has the rows in `only`, or all. Runs that are missing are trained for this many
    `seeds`; with None nothing is trained.
    """
    note = ""
    if what == "table3":
        rows = paper_rows.table3_rows(dataset, with_reference(only, paper_rows.AS_IT_IS))
    elif what == "order":
        rows = order_rows.order_rows(dataset, only)
    else:
        figure2 = only or FIGURE2_MODELS
        named = figure2 if what == "figure2" else with_reference(only, paper_rows.TESTED_AGAINST)
        rows = paper_rows.table2_rows(dataset, named)
    if seeds is None:
        runs = paper_rows.find_all(rows, folder)
    else:
        runs = paper_rows.run_all(rows, range(seeds), folder)
    if not runs:
        raise BundleError(f"{folder}: none of these runs exists; run without --no-train")
    summaries = {name: summarize([run.record for run in own]) for name, own in runs.items()}
    if what == "figure2":
        table, title = tables.group_table(summaries), "Recall@20 by popularity of items"
        bars = {
            f"{group} items": {n: row.groups[group][RECALL].mean for n, row in summaries.items()}
            for group in GROUPS
        }
    elif what == "order":
        tested = [row for row in rows if not row.name.endswith("-random")]
        p_values = _p_values(runs, tested)
        table, title = order_rows.order_table(summaries, p_values), "NDCG@20 on the later test"
        bars = {
            "": {
                row.name: summaries[row.name].test[NDCG].mean
                for row in tested
                if row.name in summaries
            }
        }
    else:
        p_values = _p_values(runs, rows)
        published = {row.name: row.paper for row in rows}
        table = tables.quality_table(summaries, published, p_values, marked=True)
        if p_values:
            note = (
                f"* differs from {rows[0].against} in NDCG@20: p <"
                f" {tables.LEVEL / len(p_values):.2g} ({tables.LEVEL:g} shared among"
                f" {len(p_values)} paired t-tests over test users)."
            )
        title = "NDCG@20 on test"
        bars = {"": {name: row.test[NDCG].mean for name, row in summaries.items()}}
    if what == "order":
        text = order_provenance(summaries, command)
    else:
        text = provenance(rows, summaries, command)
    chart = bar_chart(f"{title}, {dataset}", bars)
    if note:
        text = f"{note}\n\n{text}"
    return Reproduced(table, text, tables.runs_csv(runs), chart, runs, note)


def with_reference(only: Sequence[str], reference: str) -> Sequence[str]:
    """Return the names in `only` and the row that they are tested against; empty means all."""
    if not only or reference in only:
        return only
    log.info("%s is added: the other rows are compared with it", reference)
    return [*only, reference]


def _p_values(runs: Mapping[str, Sequence[Run]], rows: Sequence[Row]) -> dict[str, float]:
    """Return the p-value of NDCG@20 of each row that is tested against another."""
    tests = tables.row_tests(runs, {row.name: row.against for row in rows})
    return {name: found[NDCG].p_value for name, found in tests.items()}


def reproduce_timing(dataset: str, only: Sequence[str], command: str) -> Reproduced:
    """Time epochs of the models side by side."""
    models = paper_rows.in_order(with_reference(only, REFERENCE), TIMED, "model")
    keep_freed_memory()
    configs = {row.name: row.config for row in paper_rows.table2_rows(dataset, models)}
    pairs = prepare(configs[REFERENCE]).split.train
    seconds = interleaved({n: stepper(config, pairs, STEPS) for n, config in configs.items()}, 5)
    steps = {n: num_batches(pairs, config.train.batch_size) for n, config in configs.items()}
    stated = paper_rows.STATED["epoch_seconds"].get(dataset, {})
    rows, times = [], {}
    for name, number in steps.items():
        epoch = median(seconds[name]) / STEPS * number
        ratio = median_ratio(seconds, name, REFERENCE) * number / steps[REFERENCE]
        theirs = stated.get(name)
        rows.append(
            {
                "": name,
                "paper s / epoch": f"{theirs:.1f}" if theirs else NOTHING,
                "paper ratio": f"{theirs / stated[REFERENCE]:.2f}" if theirs else NOTHING,
                "s / epoch": f"{epoch:.1f}",
                f"ratio to {REFERENCE}": f"{ratio:.2f}",
            }
        )
        times[name] = epoch, ratio
    text = (
        f"`{command}`\n\nMedians of interleaved rounds of steps, on a machine with"
        f" {os.cpu_count()} cores, {torch.get_num_threads()} of them used, torch"
        f" {torch.__version__}; commit {commit_of_code() or __version__}.\n"
    )
    bars = {name: epoch for name, (epoch, _) in times.items()}
    chart = bar_chart(f"Seconds of an epoch, {dataset}", {"": bars}, digits=1)
    lines = [{"name": n, "seconds": epoch, "ratio": ratio} for n, (epoch, ratio) in times.items()]
    return Reproduced(tables.table_of(rows), text, pl.DataFrame(lines).write_csv(), chart, {})


def provenance(rows: Sequence[Row], summaries: Mapping[str, Summary], command: str) -> str:
    """Say where the figures of a table come from; refuse figures that cannot be compared."""
    kinds = {(row.fingerprint, row.protocol) for row in summaries.values()}
    if len(kinds) > 1:
        raise DataError(
            "runs of different data or protocols cannot stand in one table:"
            f" {'; '.join(f'{data}, {protocol}' for data, protocol in kinds)}; choose another --out"
        )
    ((fingerprint, protocol),) = kinds
    return (
        f"`{command}`\n\nData {fingerprint}; {protocol}. Every seed has its own split;"
        f" figures are means ± deviations over seeds. p: paired t-test against “{rows[0].against}”,"
        f" over test users, each averaged over the seeds. Commits: {_commits(summaries)}.\n"
    )


def order_provenance(summaries: Mapping[str, Summary], command: str) -> str:
    """Say where the figures with and without order come from, and which validation ranks better."""
    protocols = sorted({(row.fingerprint, row.protocol) for row in summaries.values()})
    listed = "; ".join(f"{data}, {protocol}" for data, protocol in protocols)
    return (
        f"`{command}`\n\n{order_rows.agreement(summaries)}Data and protocols: {listed}. p: paired"
        " t-test over test users, with order against without. Commits:"
        f" {_commits(summaries)}.\n"
    )


def _commits(summaries: Mapping[str, Summary]) -> str:
    return ", ".join(sorted({commit for row in summaries.values() for commit in row.commits}))
