"""Charts that compare the variants of a set: figures, differences, times, curves, item groups."""

from collections.abc import Mapping

import numpy as np
import plotly.graph_objects as go

from mgformer.experiments.report import charts
from mgformer.experiments.report.measured import headline_metrics, log_line
from mgformer.experiments.report.page import Chart, metric_title
from mgformer.experiments.report.variants import Variant
from mgformer.ranking.evaluation import GROUPS
from mgformer.ranking.metrics import SELECTION_METRICS
from mgformer.ranking.significance import PairedTest

MOST_TIMES = 10
"""A difference of more than so many times the median one would squeeze all others."""
SHORTEST = 0.01
"""Seconds; a logarithmic axis has no place for less."""


def mark_charts(variants: list[Variant]) -> list[Chart]:
    """Return the test figures of every run: a chart for each metric."""
    return [
        _marks(variants, name, color)
        for name, color in zip(
            headline_metrics(variants[0].runs[0].record), charts.COLORS, strict=False
        )
    ]


def _marks(variants: list[Variant], name: str, color: str) -> Chart:
    marks = [
        (run.record.test[name], row)
        for row, variant in enumerate(variants)
        for run in variant.runs
        if name in run.record.test
    ]
    x, y = [value for value, _ in marks], [row for _, row in marks]
    points = go.Scatter(x=x, y=y, mode="markers", marker={"color": color})
    chart = charts.draw_rows([points], [v.label for v in variants], hovermode="closest")
    chart.update_traces(marker={"size": 9, "opacity": 0.85})
    axis, outside = charts.axis_of(x)
    chart.update_xaxes(range=axis)
    left = {variants[row].label: value for value, row in marks if value in outside}
    return Chart(f"Test {metric_title(name)}", chart, _left_out(left, "left of the axis"))


def difference_chart(tests: Mapping[str, PairedTest], metric: str, best: str) -> Chart | None:
    """Return how far the others are from the first, with confidence intervals; None if untested."""
    if not tests:
        return None
    values = [test.difference for test in tests.values()]
    points = go.Scatter(
        x=values,
        y=[*range(len(tests))],
        mode="markers",
        marker={"size": 9, "color": charts.BLUE},
        error_x={"array": [test.margin for test in tests.values()], "color": charts.GREY},
    )
    chart = charts.draw_rows([points], [*tests], hovermode="closest")
    shown = [
        t for t in tests.values() if abs(t.difference) <= MOST_TIMES * np.median(np.abs(values))
    ]
    ends = [0.0, *(t.difference + side * t.margin for t in shown for side in (-1, 1))]
    room = 0.06 * (max(ends) - min(ends)) or 0.01
    chart.update_xaxes(range=[min(ends) - room, max(ends) + room])
    chart.add_vline(x=0, line={"width": 1.5, "color": charts.GREY, "dash": "dot"})
    left = {name: test.difference for name, test in tests.items() if test not in shown}
    caption = (
        f"Differences of test {metric_title(metric)} per user to {best}, and their 95% confidence"
        f" intervals. An interval without 0 is p < 0.05. {_left_out(left, 'outside')}"
    )
    return Chart(f"Difference to {charts.ending(best)}", chart, caption.strip(), wide=True)


def time_chart(variants: list[Variant], metric: str) -> Chart | None:
    """Return accuracy against seconds of training, on means over seeds."""
    points = [
        (max(60 * v.summary.minutes, SHORTEST), v.summary.test[metric].mean, v.label)
        for v in variants
        if metric in v.summary.test and v.summary.minutes is not None
    ]
    if len(points) < 2:
        return None
    points.sort()
    seconds, figures = np.array([x for x, _, _ in points]), [y for _, y, _ in points]
    axis, outside = charts.axis_of(figures)
    best = np.maximum.accumulate(figures)
    frontier = go.Scatter(
        x=[*seconds, seconds[-1] * 1.5],
        y=[*best, best[-1]],
        mode="lines",
        line={"shape": "hv", "color": charts.GREY, "dash": "dot", "width": 1.5},
        name="best so far",
        hoverinfo="skip",
    )
    above = np.equal(figures, best)
    marks = go.Scatter(
        x=[*seconds],
        y=figures,
        mode="markers+text",
        text=[charts.plain(charts.ending(label)) for _, _, label in points],
        textposition=["top center" if high else "bottom center" for high in above],
        marker={"size": 10, "color": charts.BLUE},
        name=metric_title(metric),
        hovertemplate="%{text}: %{y:.4f} in %{x:.3g} s<extra></extra>",
    )
    height = charts.HEIGHT + 60
    chart = charts.draw([frontier, marks], "seconds of training", hovermode="closest")
    chart.update_layout(height=height, showlegend=False)
    ends = [float(seconds[0] / 2), float(seconds[-1] * 2)]
    chart.update_layout(xaxis={**charts.log_axis(np.array(ends)), "range": [*np.log10(ends)]})
    chart.update_yaxes(range=axis)
    left = {label: y for _, y, label in points if y in outside}
    caption = f"Dotted: the best figure within this time. {_left_out(left, 'below the axis')}"
    return Chart(f"Test {metric_title(metric)} by time", chart, caption.strip(), wide=True)


def _left_out(figures: Mapping[str, float], where: str) -> str:
    if not figures:
        return ""
    named = ", ".join(f"{charts.shortened(n, 40)} ({value:.4f})" for n, value in figures.items())
    return f"Not shown, because far {where}: {named}."


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
            chart = charts.draw(traces, "epoch", height=height)
            # A single line is named too: the other variants have no curves.
            found.append(Chart(title, chart.update_layout(showlegend=True)))
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
