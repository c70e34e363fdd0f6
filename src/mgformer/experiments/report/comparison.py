"""The report on several runs: which of them can be compared, and how they compare.

Figures can be compared between runs on one dataset (by fingerprint) under one protocol. Such runs
are a set. Runs of a set that differ only in the seed are one variant, which is shown by its mean.
"""

import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import plotly.graph_objects as go
import polars as pl

from mgformer.errors import BundleError, DataError, MgformerError
from mgformer.experiments.report import charts
from mgformer.experiments.report.measured import headline_metrics, log_line
from mgformer.experiments.report.page import Chart, metric_title, render
from mgformer.experiments.summary import Summary, summarize
from mgformer.experiments.tables import p_text, paired_tests
from mgformer.ranking.evaluation import GROUPS
from mgformer.ranking.metrics import SELECTION_METRIC, SELECTION_METRICS
from mgformer.runs.config import flat_options
from mgformer.runs.folder import Found, Run
from mgformer.runs.record import Record

MOST_VARIANTS = 12
"""Charts show this many variants, the best on validation. Tables show all."""


class Variant(NamedTuple):
    """Runs that differ only in the seed."""

    label: str
    runs: list[Run]

    @property
    def summary(self) -> Summary:
        """Means over the seeds."""
        return summarize([run.record for run in self.runs])


def comparison_page(found: Found, root: Path) -> str:
    """Return the report on all runs below a folder as HTML."""
    sets = comparable_sets(found.runs, root)
    first = [variants[0].runs[0].record for variants in sets]
    datasets = _count(len({record.fingerprint for record in first}), "dataset")
    on = first[0].dataset if datasets == "1 dataset" else datasets
    return render(
        "comparison.html.j2",
        title=f"{_count(len(found.runs), 'run')} on {on}",
        lead=f"All runs in the folder {root}",
        datasets=datasets,
        protocols=_count(len({record.protocol for record in first}), "protocol"),
        unreadable=found.unreadable,
        num_shown=MOST_VARIANTS,
        sets=[_set_context(variants) for variants in sets],
    )


def _set_context(variants: list[Variant]) -> dict[str, Any]:
    """Return what the template shows of a set of comparable runs."""
    record, shown = variants[0].runs[0].record, variants[:MOST_VARIANTS]
    names = headline_metrics(record)
    floor = popularity_variant(variants, names)
    tests = [variant.summary.test for variant in variants]
    return {
        "record": record,
        "names": names,
        "variants": variants,
        "single_runs": [Variant(v.label, [run]) for v in variants + floor for run in v.runs],
        "several_seeds": any(len(variant.runs) > 1 for variant in variants),
        "same_seeds": len({tuple(variant.summary.seeds) for variant in variants}) == 1,
        "best": {n: max((t[n].mean for t in tests if n in t), default=None) for n in names},
        "floor": floor,
        "p_values": significance(variants, names[1]),
        "marks_chart": marks_chart(shown),
        "learning_charts": learning_charts(shown),
        "group_charts": group_charts(shown),
    }


def comparable_sets(runs: Sequence[Run], root: Path) -> list[list[Variant]]:
    """Return the sets of comparable runs as variants, the best on validation first."""
    sets: dict[tuple[str, str], dict[str, list[Run]]] = {}
    for run in runs:
        key = (run.record.fingerprint, run.record.protocol)
        sets.setdefault(key, {}).setdefault(_options(run.record), []).append(run)
    return [_variants(list(by_options.values()), root) for by_options in sets.values()]


def _options(record: Record) -> str:
    """Return all options of a run except the seed, and what was measured."""
    described = record.config
    with suppress(MgformerError):  # fills in options that are newer than the record
        described = record.run_config().to_mapping()
    options = {n: v for n, v in flat_options(described).items() if n not in ("seed", "dataset")}
    named = sorted((name, repr(value)) for name, value in options.items())
    return repr((named, sorted(record.test), sorted(record.valid), sorted(record.groups)))


def _variants(groups: list[list[Run]], root: Path) -> list[Variant]:
    """Name the variants after their folders."""
    found: dict[str, Variant] = {}
    for runs in groups:
        by_folder: dict[str, list[Run]] = {}
        for run in runs:
            by_folder.setdefault(_place(run.folder.relative_to(root)), []).append(run)
        if len({run.record.seed for run in runs}) == len(runs):
            by_folder = {next(iter(by_folder)): runs}
        # Otherwise the same run is there twice, and a mean would count it twice.
        for place, own in by_folder.items():
            label, again = place, 2
            while label in found:
                label, again = f"{place} ({again})", again + 1
            found[label] = Variant(label, sorted(own, key=lambda run: run.record.seed))
    return sorted(found.values(), key=_validation, reverse=True)


def _validation(variant: Variant) -> float:
    figure = variant.summary.valid.get(SELECTION_METRIC)
    return figure.mean if figure else 0.0


def _place(folder: Path) -> str:
    """Return the folder of a run without a last part such as seed-3."""
    is_seed = re.fullmatch(r"seed[-_]?\d+", folder.name) and len(folder.parts) > 1
    return str(folder.parent if is_seed else folder)


def popularity_variant(variants: list[Variant], names: Sequence[str]) -> list[Variant]:
    """Return the popularity baseline like a run with its test figures; empty if not recorded."""
    by_seed = {}
    for run in (run for variant in variants for run in variant.runs):
        test = {name: run.record.popularity.get(name) for name in names}
        if None not in test.values():
            blank = {"valid": {}, "groups": {}, "epochs": 0, "seconds": {}}
            changed = {"model": "popularity", "test": test, **blank}
            by_seed[run.record.seed] = run._replace(record=run.record.model_copy(update=changed))
    return [Variant("popularity", [by_seed[seed] for seed in sorted(by_seed)])] if by_seed else []


def significance(variants: list[Variant], metric: str) -> dict[str, str]:
    """Return p-values against the first variant, on the seeds that both have: label → p."""
    best, *others = variants
    reference = {run.record.seed: _per_user(run, metric) for run in best.runs} if others else {}
    found: dict[str, str] = {}
    for variant in others:
        tables = {run.record.seed: _per_user(run, metric) for run in variant.runs}
        pairs = [(ours, reference.get(seed)) for seed, ours in tables.items()]
        both = [(ours, theirs) for ours, theirs in pairs if ours is not None and theirs is not None]
        if both:
            with suppress(DataError):  # other users in the test
                ours, theirs = zip(*both, strict=True)
                tests = paired_tests(ours, theirs, [metric])
                found[variant.label] = p_text(tests[metric].p_value)
    return found


def _per_user(run: Run, metric: str) -> pl.DataFrame | None:
    """Return the test figures per user; None if the run does not have them."""
    with suppress(BundleError):
        return table if metric in (table := run.per_user).columns else None
    return None


def marks_chart(variants: list[Variant]) -> Chart:
    """Return the test figures of every run."""
    traces = []
    for name in headline_metrics(variants[0].runs[0].record):
        pairs = [
            (run.record.test[name], row)
            for row, variant in enumerate(variants)
            for run in variant.runs
            if name in run.record.test
        ]
        x, y = [value for value, _ in pairs], [row for _, row in pairs]
        traces.append(go.Scatter(x=x, y=y, name=metric_title(name), mode="markers"))
    chart = charts.draw_rows(traces, [v.label for v in variants], hovermode="closest")
    chart.update_traces(marker={"size": 9, "opacity": 0.85})
    return Chart("Test, a mark for each seed", chart, wide=True)


def learning_charts(variants: list[Variant]) -> list[Chart]:
    """Return the learning curves of all runs; the loss only if all are of one model."""
    titles = {name: f"Validation {metric_title(name)}" for name in reversed(SELECTION_METRICS)}
    if len({run.record.model for variant in variants for run in variant.runs}) == 1:
        titles["loss"] = "Training loss"
    found = []
    for name, title in titles.items():
        traces: list[go.Scatter] = []
        for number, variant in enumerate(variants):
            label = charts.plain(charts.ending(variant.label))
            lines = [log_line(run.log, name, label) for run in variant.runs]
            lines = [line for line in lines if line.x]
            color = charts.COLORS[number % len(charts.COLORS)]
            dash = charts.DASHES[number % len(charts.DASHES)]
            for line in lines:
                line.update(mode="lines", line={"color": color, "dash": dash})
                line.update(legendgroup=str(number), showlegend=line is lines[0])
            traces += lines
        if traces:
            height = charts.HEIGHT + 12 * len(variants)
            found.append(Chart(title, charts.draw(traces, "epoch", height=height)))
    return found


def group_charts(variants: list[Variant]) -> list[Chart]:
    """Return what each popularity group contributes to the test figures; means over seeds."""
    shown = [variant for variant in variants if variant.runs[0].record.groups]
    found = []
    for name in headline_metrics(shown[0].runs[0].record) if shown else ():
        bars = []
        for group in GROUPS:
            figures = [v.summary.groups.get(group, {}).get(name) for v in shown]
            x, y = [f.mean if f else 0.0 for f in figures], list(range(len(shown)))
            color = charts.FIXED_COLORS[group]
            bars.append(go.Bar(x=x, y=y, name=group, orientation="h", marker_color=color))
        labels = [variant.label for variant in shown]
        chart = charts.draw_rows(bars, labels, barmode="stack", hovermode="y unified")
        found.append(Chart(f"{metric_title(name)} by popularity of the items", chart))
    return found


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
