"""One run by its record and its log: facts and charts."""

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from mgformer.experiments.report import charts
from mgformer.experiments.report.page import USER_METRICS, Chart, metric_title
from mgformer.ranking.metrics import SELECTION_K, SELECTION_METRICS
from mgformer.runs.bundle import Bundle
from mgformer.runs.folder import Run
from mgformer.runs.record import Record

SCORES = {
    "dot": "u·i",
    "cosine": "cosine",
    "degree": "cosine × degree^γ",
    "prior": "cosine + γ log degree",
}


def measured_ks(record: Record) -> list[int]:
    """Return the list lengths that were measured."""
    return sorted(int(name.partition("@")[2]) for name in record.test if name.startswith("ndcg@"))


def headline_metrics(record: Record) -> tuple[str, str]:
    """Return recall and NDCG at k = 20, or at the largest k if 20 was not measured."""
    ks = measured_ks(record)
    k = SELECTION_K if SELECTION_K in ks or not ks else ks[-1]
    return f"recall@{k}", f"ndcg@{k}"


def about(run: Run, bundle: Bundle | None) -> dict[str, str]:
    """Return what was trained on what, and how; values may be empty."""
    record, size = run.record, ""
    if bundle:
        size = (
            f"{len(bundle.users):,} users, {len(bundle.items):,} items; {len(bundle.train):,}"
            f" training pairs, {len(bundle.valid):,} for validation, {len(bundle.test):,} for test"
        )
    trained = sum(epoch["stage"] == "select" for epoch in run.log)
    weights = {"γ": record.gamma, "δ": record.delta}
    given = "".join(f", {name} = {w:.3g}" for name, w in weights.items() if w is not None)
    return {
        "model": record.model,
        "dataset": record.dataset,
        "fingerprint": record.fingerprint,
        "protocol": record.protocol,
        "seed": str(record.seed),
        "size": size,
        "epochs": f"epoch {record.epochs} kept of {trained} trained" if trained else "",
        "score": f"{SCORES[record.score]}{given}" if record.score else "",
        "seconds": ", ".join(f"{name} {value:,.1f}" for name, value in record.seconds.items()),
        "mgformer": record.library,
        "commit": record.commit or "",
        "folder": str(run.folder),
    }


def lead(record: Record) -> str:
    """Return the result in a sentence."""
    name = headline_metrics(record)[1]
    figure, floor = record.test.get(name), record.popularity.get(name)
    if figure is None:
        return f"Nothing is held out; seed {record.seed}."
    times = f", {figure / floor:.1f} times popularity" if floor else ""
    return f"Test {metric_title(name)} {figure:.4f}{times}; seed {record.seed}."


def learning_charts(run: Run) -> list[Chart]:
    """Return loss and validation metrics by epoch, each on an axis of its own."""
    log, kept = run.log, run.record.epochs
    loss = [log_line(log, "loss", "loss")]
    if any(epoch["stage"] == "refit" for epoch in log):
        loss.append(log_line(log, "loss", "refit on train and validation", "refit"))
    titled = {
        f"Validation {metric_title(name)}": [log_line(log, name, metric_title(name))]
        for name in reversed(SELECTION_METRICS)
    }
    found = []
    for title, lines in {**titled, "Training loss": loss}.items():
        if lines[0].x:
            last = max(epoch["epoch"] for epoch in log)
            free = len(lines) == 1  # of a legend
            chart = charts.mark_epoch(charts.draw(lines, "epoch"), kept, last, above=free)
            found.append(Chart(title, chart, wide=lines is loss))
    return found


def log_line(
    log: Sequence[Mapping[str, Any]], name: str, title: str, stage: str = "select"
) -> go.Scatter:
    """Return a logged figure by epoch, as a line."""
    entries = [e for e in log if e["stage"] == stage and e.get(name) is not None]
    return go.Scatter(x=[e["epoch"] for e in entries], y=[e[name] for e in entries], name=title)


def metric_charts(record: Record) -> list[Chart]:
    """Return recall and NDCG by length of the list."""
    ks, found = measured_ks(record), []
    parts = {"test": record.test, "validation": record.valid, "popularity": record.popularity}
    for metric in ("recall", "ndcg"):
        values = {
            name: [part.get(f"{metric}@{k}") for k in ks] for name, part in parts.items() if part
        }
        chart = charts.draw_columns(go.Scatter, "k, length of the list", ks, values)
        chart.update_xaxes(tickvals=ks)
        found.append(Chart(f"{USER_METRICS[metric]}@k", chart))
    return found


def group_chart(record: Record, best: Mapping[str, float] | None) -> Chart:
    """Return the recall that each popularity group contributes, beside the best possible."""
    name, groups = headline_metrics(record)[0], record.groups
    values = {metric_title(name): [groups[group].get(name) for group in groups]}
    if best:
        values["best possible"] = [best[group] for group in groups]
    chart = charts.draw_columns(go.Bar, "items by popularity", list(groups), values)
    caption = "The best possible recall finds all held-out items of the group." if best else ""
    return Chart(f"{metric_title(name)} by popularity of the items", chart, caption)


def age_chart(record: Record) -> Chart:
    """Return the recall that items of each age contribute, beside the best possible."""
    name, ages = headline_metrics(record)[0], record.ages
    values = {
        metric_title(name): [ages[age].get(name) for age in ages],
        "best possible": [ages[age].get("possible") for age in ages],
    }
    chart = charts.draw_columns(go.Bar, "age of the items", list(ages), values)
    caption = "The best possible recall finds all held-out items of the age."
    return Chart(f"{metric_title(name)} by age of the items", chart, caption)
