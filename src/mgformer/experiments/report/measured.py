"""What was measured of one run: its headline, its learning curves, its metrics, its groups."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mgformer.experiments.report import figures
from mgformer.experiments.report.blocks import (
    Block,
    Card,
    Cards,
    Cell,
    Chart,
    Facts,
    Listing,
    Section,
    Table,
    figure,
)
from mgformer.experiments.report.figures import Axis, Series
from mgformer.experiments.report.shown import within_reach
from mgformer.ranking.evaluation import GROUPS
from mgformer.ranking.metrics import SELECTION_METRIC
from mgformer.runs.bundle import Bundle
from mgformer.runs.folder import Run
from mgformer.runs.record import Record

NAMES = {
    "recall": "Recall",
    "ndcg": "NDCG",
    "precision": "Precision",
    "hitrate": "Hit rate",
    "mrr": "MRR",
    "map": "MAP",
    "capped_recall": "Capped recall",
    "coverage": "Coverage",
    "gini": "Gini",
    "novelty": "Novelty",
}
OF_LISTS = ("coverage", "gini", "novelty")
"""Metrics of all lists together, which the section on coverage shows."""
SHOWN_K = 20


def shown_k(record: Record) -> int:
    """Return the cut-off that stands for the others: 20, or the longest there is."""
    ks = cut_offs(record)
    return SHOWN_K if SHOWN_K in ks or not ks else ks[-1]


def cut_offs(record: Record) -> list[int]:
    """Return the cut-offs that were measured."""
    return sorted(int(name.partition("@")[2]) for name in record.test if name.startswith("ndcg@"))


def headline(run: Run, bundle: Bundle | None) -> Section:
    """What was trained on what, and how good it is."""
    record, k = run.record, shown_k(run.record)
    cards = []
    for metric in ("recall", "ndcg"):
        name = f"{metric}@{k}"
        beside = {
            part: figure(figures_of.get(name))
            for part, figures_of in (
                ("popularity", record.popularity),
                ("validation", record.valid),
            )
        }
        value = record.test.get(name)
        floor = record.popularity.get(name)
        if value is not None and floor:
            beside["times popularity"] = f"{value / floor:.1f} ×"
        cards.append(Card(f"test {NAMES[metric]}@{k}", figure(value), beside))
    seconds = record.seconds
    facts = {
        "model": record.model,
        "dataset": record.dataset,
        "fingerprint": record.fingerprint,
        "protocol": record.protocol,
        "seed": str(record.seed),
        "size": _size(bundle) if bundle else "",
        "epochs": _epochs(run),
        "score": _score(record),
        "seconds": ", ".join(f"{name} {value:,.1f}" for name, value in seconds.items()),
        "mgformer": record.library or "",
        "commit": record.commit or "",
        "folder": str(run.folder),
    }
    lead = "" if record.test else "No user has held-out items: nothing was measured."
    known = Facts({name: value for name, value in facts.items() if value})
    return Section("Result", [Cards(cards), known] if record.test else [known], lead)


def _size(bundle: Bundle) -> str:
    return (
        f"{len(bundle.users):,} users, {len(bundle.items):,} items; {len(bundle.train):,} pairs to"
        f" train on, {len(bundle.valid):,} for validation, {len(bundle.test):,} for test"
    )


def _epochs(run: Run) -> str:
    trained = sum(entry.get("stage") != "refit" for entry in run.log)
    best = run.record.epochs or 0
    return f"{best} kept of {trained} trained" if trained else str(best or "")


def _score(record: Record) -> str:
    kind, gamma = record.score, record.gamma
    written = {
        "dot": "u·i",
        "cosine": "cosine",
        "degree": "cosine × degree^γ",
        "prior": "cosine + γ log degree",
    }
    of_gamma = "" if gamma is None else f", γ = {gamma:g}"
    return f"{written.get(kind, kind)}{of_gamma}" if kind else ""


def learning(run: Run) -> Section | None:
    """Loss and validation by epoch."""
    selecting = [entry for entry in run.log if entry.get("stage") != "refit"]
    refit = [entry for entry in run.log if entry.get("stage") == "refit"]
    if not selecting:
        return None
    best = run.record.epochs or 0
    marked: dict[float, str] = {best: f"epoch {best} kept"} if best else {}
    axis = figures.epoch_axis(max(entry["epoch"] for entry in run.log))
    loss = [Series("loss", *_column(selecting, "loss"))]
    if refit:
        series = _column(refit, "loss")
        loss.append(Series("refit on train and validation", *series, figures.VERMILION, "dash"))
    charts: list[Block] = [
        Chart("Training loss", figures.lines(loss, axis, Axis(""), marked=marked, free="top"))
    ]
    names = [SELECTION_METRIC, SELECTION_METRIC.replace("ndcg", "recall")]
    measured = [
        Series(metric_name(name), *_column(selecting, name), color, dash, symbol)
        for name, color, dash, symbol in zip(
            names, figures.COLORS, figures.DASHES, figures.SYMBOLS, strict=False
        )
        if any(name in entry for entry in selecting)
    ]
    if measured:
        chart = figures.lines(measured, axis, Axis("", {"rangemode": "tozero"}), marked=marked)
        charts.append(Chart("Validation", chart))
    lead = (
        f"Kept: the weights with the best validation {metric_name(SELECTION_METRIC)}."
        if measured
        else "Nothing was validated: the last weights are kept."
    )
    return Section("Learning curves", charts, lead)


def _column(log: list[dict[str, Any]], name: str) -> tuple[list[int], list[float]]:
    """Return epochs and values of those that have one."""
    rows = [(entry["epoch"], entry[name]) for entry in log if entry.get(name) is not None]
    return [epoch for epoch, _ in rows], [value for _, value in rows]


def metric_name(name: str) -> str:
    """Return a metric's name as people write it."""
    metric, _, k = name.partition("@")
    return f"{NAMES.get(metric, metric)}@{k}" if k else NAMES.get(metric, metric)


def metrics(record: Record) -> Section | None:
    """Metrics at all cut-offs, with popularity as the floor."""
    if not record.test:
        return None
    ks = cut_offs(record)
    parts = (
        ("test", record.test, figures.BLUE, "solid", "circle"),
        ("validation", record.valid, figures.GREEN, "dash", "diamond"),
        ("popularity", record.popularity, figures.GREY, "dot", "square"),
    )
    axis = Axis("k, length of the list", {"tickvals": ks})
    blocks: list[Block] = []
    for metric in ("recall", "ndcg"):
        names = [f"{metric}@{k}" for k in ks]
        series = [
            Series(label, ks, [part.get(name) for name in names], color, dash, symbol)
            for label, part, color, dash, symbol in parts
            if part
        ]
        chart = figures.lines(series, axis, Axis("", {"rangemode": "tozero"}))
        blocks.append(Chart(f"{NAMES[metric]}@k", chart))
    of_users = [name for name in NAMES if name not in OF_LISTS]
    blocks.append(replace(_metric_table(record, of_users), wide=True))
    lead = "On test, beside recommending to everybody what is popular. Means over users."
    return Section("Metrics", blocks, lead)


def list_metrics(record: Record) -> Table | None:
    """Return coverage, Gini and novelty at all cut-offs, if they were measured."""
    return _metric_table(record, OF_LISTS) if record.test else None


def _metric_table(record: Record, names: list[str] | tuple[str, ...]) -> Table:
    ks, floor = cut_offs(record), record.popularity or {}
    rows = [
        [
            Cell(NAMES[name]),
            *(
                Cell(
                    figure(record.test.get(f"{name}@{k}")),
                    figure(floor.get(f"{name}@{k}")) if floor else "",
                )
                for k in ks
            ),
        ]
        for name in names
        if f"{name}@{ks[0]}" in record.test
    ]
    note = "Below each figure, smaller, that of popularity." if floor else ""
    return Table(["metric", *(f"@{k}" for k in ks)], rows, note)


def groups(record: Record, bundle: Bundle | None) -> Section | None:
    """What items of different popularity add to the metrics."""
    found: Mapping[str, Mapping[str, float]] = record.groups or {}
    if not found:
        return None
    k = shown_k(record)
    names = [name for name in GROUPS if name in found]
    recall, ndcg = ([found[name].get(f"{m}@{k}") for name in names] for m in ("recall", "ndcg"))
    series = [Series(f"Recall@{k}", names, recall)]
    reach = within_reach(bundle) if bundle else None
    if reach:
        most = [reach[name] for name in names]
        series.insert(0, Series("within reach", names, most, figures.GREY))
    chart = figures.bars(series, Axis("items, by popularity"), Axis("", {"rangemode": "tozero"}))
    columns = ["items", *(["within reach"] if reach else []), f"Recall@{k}", f"NDCG@{k}"]
    rows = [
        [
            Cell(name),
            *([Cell(figure(reach[name]))] if reach else []),
            Cell(figure(of_recall)),
            Cell(figure(of_ndcg)),
        ]
        for name, of_recall, of_ndcg in zip(names, recall, ndcg, strict=True)
    ]
    lead = (
        "The least popular 80% of the items, the next 15% and the top 5%, by users in train. A"
        " group's figure counts hits on its items only: the three add up to the whole."
    )
    caption = "Within reach is the recall of finding everything held out of the group."
    whole = record.test
    rows.append(
        [
            Cell("all", strong=True),
            *([Cell(figure(sum(reach.values())))] if reach else []),
            *(Cell(figure(whole.get(f"{m}@{k}")), strong=True) for m in ("recall", "ndcg")),
        ]
    )
    blocks: list[Block] = [
        Chart(f"Recall@{k} by popularity of the items", chart, caption if reach else ""),
        Table(columns, rows),
    ]
    return Section("Popular and unpopular items", blocks, lead)


def config(record: Record) -> Section:
    """The run, as a config that makes it again."""
    lead = "As TOML: mgformer train --config with this file makes the run again."
    return Section("Config", [Listing(as_toml(record.config))], lead)


def as_toml(described: Mapping[str, Any]) -> str:
    """Return a nested mapping of plain values as TOML, sections last."""
    plain = {name: value for name, value in described.items() if not isinstance(value, Mapping)}
    lines = [f"{name} = {_value(value)}" for name, value in plain.items()]
    for name, section in described.items():
        if isinstance(section, Mapping) and section:
            lines += ["", f"[{name}]", as_toml(section)]
    return "\n".join(lines)


def _value(value: Any) -> str:
    """Return a value as TOML writes it; numbers, text and lists are as in JSON."""
    return json.dumps(value, ensure_ascii=False)
