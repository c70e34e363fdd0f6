"""The report on runs side by side: tables and figures of each set that can be compared."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from mgformer.experiments.report import figures
from mgformer.experiments.report.blocks import (
    NONE,
    Block,
    Cell,
    Chart,
    Facts,
    Page,
    Section,
    Table,
    figure,
)
from mgformer.experiments.report.comparable import Comparable, Variant, comparable_sets
from mgformer.experiments.report.figures import Axis, Series
from mgformer.experiments.report.measured import metric_name
from mgformer.experiments.report.shown import evenly
from mgformer.ranking.evaluation import GROUPS
from mgformer.ranking.metrics import SELECTION_METRIC
from mgformer.runs.folder import Found, Run
from mgformer.runs.record import Part

MOST_VARIANTS = 12
"""Variants in a figure: the best on validation. Tables have all."""
MOST_EPOCHS = 300
"""Points of a learning curve."""


def folder_page(found: Found, root: Path) -> Page:
    """Return the report on all runs below a folder."""
    sets = comparable_sets(found.runs, root)
    warnings = [f"Left out: {problem}" for problem in found.unreadable]
    if len(sets) > 1:
        warnings.insert(0, _cannot_be_compared(sets))
    sections: list[Section] = []
    for number, one in enumerate(sets, start=1):
        parts = [part for part in (_runs(one), _learning(one), _groups(one)) if part]
        if len(sets) > 1:
            name = f"Set {number}, {one.runs[0].record.dataset}"
            parts = [
                replace(part, title=f"{name}: {part.title.lower()}", listed=part is parts[0])
                for part in parts
            ]
        sections += parts
    runs = f"{len(found.runs)} run{'s' if len(found.runs) > 1 else ''}"
    return Page(f"Runs in {root.resolve().name}", f"{runs} below {root}", sections, warnings)


def _cannot_be_compared(sets: Sequence[Comparable]) -> str:
    datasets = len({one.runs[0].record.fingerprint for one in sets})
    protocols = len({one.runs[0].record.protocol for one in sets})
    return (
        f"These runs are of {datasets} dataset{'s' * (datasets > 1)} and {protocols}"
        f" protocol{'s' * (protocols > 1)}: figures can be compared within each of the {len(sets)}"
        " sets below, never between them."
    )


def _runs(one: Comparable) -> Section:
    k, record = one.k, one.runs[0].record
    names = (f"recall@{k}", f"ndcg@{k}")
    facts = {name: str(getattr(record, name)) for name in ("dataset", "fingerprint", "protocol")}
    blocks: list[Block] = [Facts(facts)]
    columns = [metric_name(name) for name in names]
    columns = [*columns, f"validation {columns[1]}", "epochs", "training, s"]
    best = {name: max(v.mean("test", name) or 0.0 for v in one.variants) for name in names}
    if any(len(variant.runs) > 1 for variant in one.variants):
        rows = [
            [
                Cell(variant.label, below=_different_name(variant)),
                Cell(_seeds(variant)),
                *(_mean_cell(variant, "test", name, best[name]) for name in names),
                _mean_cell(variant, "valid", names[1]),
                Cell(_mean_of([run.record.epochs or None for run in variant.runs])),
                Cell(_mean_of([_train_seconds(run) for run in variant.runs])),
            ]
            for variant in one.variants
        ]
        note = "Means over seeds, with the standard deviation below; the best is bold."
        blocks.append(Table(["run", "seeds", *columns], rows, note, num_text=2, wide=True))
    blocks.append(_test_chart(one, names))
    rows = [
        [
            Cell(variant.label, below=_different_name(variant)),
            Cell(str(run.record.seed)),
            *(Cell(figure(run.record.test.get(name))) for name in names),
            Cell(figure(run.record.valid.get(names[1]))),
            Cell(_mean_of([run.record.epochs or None])),
            Cell(_mean_of([_train_seconds(run)])),
        ]
        for variant in one.variants
        for run in variant.runs
    ]
    floor = _floor(one, names)
    blocks.append(Table(["run", "seed", *columns], [*rows, *floor], num_text=2, wide=True))
    seeds = {tuple(run.record.seed for run in variant.runs) for variant in one.variants}
    lead = "All runs, in the order of their validation figures."
    if len(seeds) > 1:
        lead += " Not all have the same seeds: a seed also decides how data is split at random."
    return Section("Runs", blocks, lead)


def _seeds(variant: Variant) -> str:
    seeds = [str(run.record.seed) for run in variant.runs]
    return ", ".join(seeds) if len(seeds) <= 5 else f"{seeds[0]} … {seeds[-1]} ({len(seeds)})"


def _different_name(variant: Variant) -> str:
    """Return the model of a variant, unless its label says it."""
    model = str(variant.runs[0].record.model)
    return "" if variant.label == model else model


def _mean_cell(variant: Variant, part: Part, name: str, best: float | None = None) -> Cell:
    mean, values = variant.mean(part, name), variant.values(part, name)
    spread = f"± {np.std(values, ddof=1):.4f}" if len(values) > 1 else ""
    return Cell(figure(mean), spread, strong=mean is not None and mean == best)


def _mean_of(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return NONE
    mean = float(np.mean(known))
    return f"{mean:,.0f}" if mean >= 10 or mean == round(mean) else f"{mean:.1f}"


def _train_seconds(run: Run) -> float | None:
    seconds: float | None = run.record.seconds.get("train")
    return seconds


def _floor(one: Comparable, names: Sequence[str]) -> list[list[Cell]]:
    """Return a row for recommending what is popular, if any run has its figures."""
    floors = {run.record.seed: run.record.popularity for run in one.runs if run.record.popularity}
    return [
        [
            Cell("popularity, the floor"),
            Cell(str(seed)),
            *(Cell(figure(floors[seed].get(name))) for name in names),
            *[Cell(NONE)] * 3,
        ]
        for seed in sorted(floors)
    ]


def _test_chart(one: Comparable, names: Sequence[str]) -> Chart:
    shown = one.variants[:MOST_VARIANTS]
    series = []
    for name, color, symbol in zip(names, figures.COLORS, figures.SYMBOLS, strict=False):
        pairs = [
            (v, row) for row, variant in enumerate(shown) for v in variant.values("test", name)
        ]
        x, y = [value for value, _ in pairs], [row for _, row in pairs]
        series.append(Series(metric_name(name), x, y, color, symbol=symbol))
    axis = Axis("", {"rangemode": "tozero"})
    chart = figures.dots([variant.label for variant in shown], series, axis)
    return Chart("Test, a mark for each seed", chart, _only_some(one), wide=True)


def _only_some(one: Comparable) -> str:
    if len(one.variants) <= MOST_VARIANTS:
        return ""
    return f"The {MOST_VARIANTS} of {len(one.variants)} that are best on validation."


def _learning(one: Comparable) -> Section | None:
    shown = one.variants[:MOST_VARIANTS]
    charts: list[Block] = []
    one_model = len({run.record.model for run in one.runs}) == 1
    recall = SELECTION_METRIC.replace("ndcg", "recall")
    for name in (SELECTION_METRIC, recall, *(["loss"] if one_model else [])):
        series = []
        for number, variant in enumerate(shown):
            color = figures.COLORS[number % len(figures.COLORS)]
            dash = figures.DASHES[number % len(figures.DASHES)]
            curves = [curve for run in variant.runs if len((curve := _curve(run, name))[0])]
            series += [
                Series(figures.ending(variant.label), *curve, color, dash, "", place == 0)
                for place, curve in enumerate(curves)
            ]
        if series:
            y = Axis("", {"rangemode": "tozero" if name != "loss" else "normal"})
            height = figures.HEIGHT + 12 * len(shown)
            axis = figures.epoch_axis(max(max(one.x) for one in series))
            chart = figures.lines(series, axis, y, height=height)
            title = "Training loss" if name == "loss" else f"Validation {metric_name(name)}"
            charts.append(Chart(title, chart, _only_some(one)))
    lead = "A line for each seed; runs that differ only in the seed have the same colour."
    return Section("Learning curves", charts, lead) if charts else None


def _curve(run: Run, name: str) -> tuple[list[int], list[float]]:
    entries = [e for e in run.log if e.get("stage") != "refit" and e.get(name) is not None]
    places = evenly(np.arange(len(entries)), MOST_EPOCHS)
    return [entries[i]["epoch"] for i in places], [entries[i][name] for i in places]


def _groups(one: Comparable) -> Section | None:
    shown = [v for v in one.variants if v.runs[0].record.groups][:MOST_VARIANTS]
    if not shown:
        return None
    blocks: list[Block] = []
    for metric in ("recall", "ndcg"):
        name = f"{metric}@{one.k}"
        series = []
        for group, color in zip(GROUPS, figures.GROUP_COLORS, strict=True):
            means = [_group_mean(variant, group, name) for variant in shown]
            series.append(Series(group, means, [], color))
        labels = [variant.label for variant in shown]
        chart = figures.lying_bars(labels, series, Axis(""))
        blocks.append(
            Chart(f"{metric_name(name)} by popularity of the items", chart, _only_some(one))
        )
    lead = (
        "What the least popular 80% of the items, the next 15% and the top 5% add to the figure"
        " on test; means over seeds."
    )
    return Section("Popular and unpopular items", blocks, lead)


def _group_mean(variant: Variant, group: str, name: str) -> float:
    found = [run.record.groups.get(group, {}).get(name, 0.0) for run in variant.runs]
    return float(np.mean(found))
