"""The report on several runs: how the runs of each set compare, on one page."""

import statistics
from contextlib import suppress
from pathlib import Path
from typing import Any

import polars as pl

from mgformer.errors import BundleError, DataError
from mgformer.experiments.report.comparison_charts import (
    difference_chart,
    group_charts,
    learning_charts,
    mark_charts,
    time_chart,
)
from mgformer.experiments.report.measured import headline_metrics
from mgformer.experiments.report.page import metric_title, render
from mgformer.experiments.report.variants import Variant, comparable_sets
from mgformer.experiments.tables import LEVEL, p_text, paired_tests
from mgformer.ranking.significance import PairedTest
from mgformer.runs.folder import Found, Run

MOST_VARIANTS = 12
"""Charts show this many variants, the best on validation. Tables show all."""


def comparison_page(found: Found, root: Path) -> str:
    """Return the report on all runs below a folder as HTML."""
    sets = comparable_sets(found.runs, root)
    first = [variants[0].runs[0].record for variants in sets]
    datasets = _count(len({record.fingerprint for record in first}), "dataset")
    on = first[0].dataset if datasets == "1 dataset" else datasets
    models = sorted({run.record.model for run in found.runs})
    many = len(models) > 1
    return render(
        "comparison.html.j2",
        title=f"{_count(len(models), 'model') if many else models[0]} on {on}",
        lead=f"{_best(sets[0])}{_count(len(found.runs), 'run')} in the folder {root}.",
        datasets=datasets,
        protocols=_count(len({record.protocol for record in first}), "protocol"),
        unreadable=found.unreadable,
        num_shown=MOST_VARIANTS,
        popularity_of=popularity_of,
        sets=[_set_context(variants) for variants in sets],
    )


def _set_context(variants: list[Variant]) -> dict[str, Any]:
    """Return what the template shows of a set of comparable runs."""
    record, shown = variants[0].runs[0].record, variants[:MOST_VARIANTS]
    names = headline_metrics(record)
    tests = [variant.summary.test for variant in variants]
    significance = tests_against_first(variants, names[1])
    level = LEVEL / max(1, len(significance))
    return {
        "record": record,
        "names": names,
        "variants": variants,
        "single_runs": [Variant(v.label, [run]) for v in variants for run in v.runs],
        "several_seeds": any(len(variant.runs) > 1 for variant in variants),
        "same_seeds": len({tuple(variant.summary.seeds) for variant in variants}) == 1,
        "best": {n: max((t[n].mean for t in tests if n in t), default=None) for n in names},
        "p_values": {
            label: f"{p_text(test.p_value)}{'*' if test.p_value < level else ''}"
            for label, test in significance.items()
        },
        "level": f"{level:.2g}",
        "mark_charts": mark_charts(shown),
        "difference_chart": difference_chart(
            {v.label: significance[v.label] for v in shown if v.label in significance},
            names[1],
            variants[0].label,
        ),
        "time_chart": time_chart(shown, names[1]),
        "learning_charts": learning_charts(shown),
        "group_charts": group_charts(shown),
    }


def popularity_of(variant: Variant) -> dict[str, float]:
    """Return the figures of popularity in the tests of a variant, in the mean over its seeds."""
    measured = [run.record.popularity for run in variant.runs]
    names = set.intersection(*map(set, measured))
    return {name: statistics.fmean(figures[name] for figures in measured) for name in names}


def _best(variants: list[Variant]) -> str:
    """Say which variant is best on validation, and how far it is from popularity."""
    first = variants[0]
    name = headline_metrics(first.runs[0].record)[1]
    figure, floor = first.summary.test.get(name), popularity_of(first).get(name)
    if figure is None or len(variants) < 2:
        return ""
    times = f", {figure.mean / floor:.1f} times popularity" if floor else ""
    return (
        f"Best on validation: {first.label}, test {metric_title(name)} {figure.mean:.4f}{times}. "
    )


def tests_against_first(variants: list[Variant], metric: str) -> dict[str, PairedTest]:
    """Return tests against the first variant, on the seeds that both have, by label."""
    best, *others = variants
    reference = {run.record.seed: _per_user(run, metric) for run in best.runs} if others else {}
    found: dict[str, PairedTest] = {}
    for variant in others:
        tables = {run.record.seed: _per_user(run, metric) for run in variant.runs}
        pairs = [(ours, reference.get(seed)) for seed, ours in tables.items()]
        both = [(ours, theirs) for ours, theirs in pairs if ours is not None and theirs is not None]
        if both:
            with suppress(DataError):  # other users in the test
                ours, theirs = zip(*both, strict=True)
                found[variant.label] = paired_tests(ours, theirs, [metric])[metric]
    return found


def _per_user(run: Run, metric: str) -> pl.DataFrame | None:
    """Return the test figures per user; None if the run does not have them."""
    with suppress(BundleError):
        return table if metric in (table := run.per_user).columns else None
    return None


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
