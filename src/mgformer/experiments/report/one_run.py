"""The report on one run."""

from collections.abc import Mapping
from contextlib import suppress

import numpy as np
import plotly.graph_objects as go
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from mgformer.errors import ConfigError
from mgformer.experiments.report import charts, lists, measured
from mgformer.experiments.report.page import (
    LIST_METRICS,
    USER_METRICS,
    Chart,
    Ranked,
    Ranking,
    metric_title,
    render,
)
from mgformer.graph.bipartite import Graph
from mgformer.models import model_class
from mgformer.models.base import TrainableModel
from mgformer.models.insides import Inside, NodeRanking
from mgformer.ranking.evaluation import EvaluationConfig
from mgformer.ranking.metrics import SELECTION_METRIC
from mgformer.ranking.scorers import vectors_of
from mgformer.recommend.tradeoff import Tradeoff, tradeoff
from mgformer.runs.bundle import Bundle
from mgformer.runs.config import to_toml
from mgformer.runs.finish import popularity_of
from mgformer.runs.folder import Run
from mgformer.runs.train import untrained_model

MAPPED_ITEMS = 1_500
LISTED_ITEMS = 8
"""How many items of a history are named."""

MODES = {"curves": "lines+markers", "points": "markers"}


def run_page(run: Run) -> str:
    """Return the report on a run as HTML; without a bundle it has fewer sections."""
    bundle, record = run.bundle(), run.record
    if bundle and not record.popularity:  # older versions did not record it
        options = EvaluationConfig(**record.config.get("evaluation", {}))
        record = record.model_copy(update={"popularity": popularity_of(bundle, options)})
    best = lists.best_recall(bundle) if bundle and len(bundle.test) else None
    tail = lists.long_tail(bundle) if bundle else None
    found = diversity_of(bundle) if bundle else None
    return render(
        "one_run.html.j2",
        title=f"{record.model} on {record.dataset}",
        lead=measured.lead(record),
        about=measured.about(run, bundle),
        record=record,
        bundle=bundle,
        config=to_toml(record.config),
        headline=measured.headline_metrics(record),
        selection=metric_title(SELECTION_METRIC),
        ks=measured.measured_ks(record),
        k_groups=lambda span: [(f"@{k}", span) for k in measured.measured_ks(record)],
        user_metrics=USER_METRICS,
        list_metrics=LIST_METRICS,
        learning_charts=measured.learning_charts(run),
        metric_charts=measured.metric_charts(record),
        best_recall=best,
        group_chart=measured.group_chart(record, best),
        age_chart=measured.age_chart(record) if record.ages else None,
        diversity=found,
        diversity_charts=diversity_charts(found) if found else [],
        tail=tail,
        list_length=lists.K,
        tail_charts=tail_charts(tail) if tail else [],
        insides=insides(bundle) if bundle else [],
        item_map=item_map(bundle) if bundle else None,
        examples=[_example(bundle, user) for user in lists.example_users(bundle)] if bundle else [],
    )


def diversity_of(bundle: Bundle) -> Tradeoff | None:
    """Return what diversity costs; None if it cannot be measured on validation."""
    with suppress(ConfigError):  # the items cannot be compared, or histories were left out
        return tradeoff(bundle)
    return None


def diversity_charts(found: Tradeoff) -> list[Chart]:
    """Return NDCG against intra-list diversity and against coverage."""
    ndcg = [point.ndcg for point in found.points]
    texts = [f"{point.diversity:g}" for point in found.points]
    sides = {
        "intra-list diversity": [point.intra_list for point in found.points],
        "coverage": [point.coverage for point in found.points],
    }
    made = []
    for name, values in sides.items():
        line = go.Scatter(
            x=values,
            y=ndcg,
            mode="lines+markers+text",
            text=texts,
            textposition="top center",
            cliponaxis=False,
            hovertemplate=f"diversity %{{text}}: {name} %{{x:.4f}}, NDCG %{{y:.4f}}<extra></extra>",
        )
        chart = charts.draw([line], name, hovermode="closest")
        made.append(Chart(f"NDCG@{found.k} and {name}", chart))
    return made


def tail_charts(tail: lists.LongTail) -> list[Chart]:
    """Return how recommendations are distributed over popular and unpopular items."""
    curves = {
        "recommendations": tail.recommended,
        "training pairs": tail.trained,
        "all items equally": tail.items,
    }
    x_title = "share of items, most popular first"
    cumulative = charts.draw_columns(go.Scatter, x_title, tail.items, curves)
    cumulative.update_xaxes(tickformat=".0%", range=[0, 1])
    shares = zip(*tail.groups.values(), strict=True)
    columns = dict(zip(("items", "training pairs", "recommendations"), shares, strict=True))
    names = list(tail.groups)
    by_group = charts.draw_columns(go.Bar, "items by popularity", names, columns)
    for chart in (cumulative, by_group):
        chart.update_yaxes(tickformat=".0%", rangemode="tozero")
    caption = "Where the blue line is higher, the lists favor popular items more than users did."
    return [
        Chart("Cumulative share of the most popular items", cumulative, caption),
        Chart("Shares by popularity of the items", by_group),
    ]


def insides(bundle: Bundle) -> list[Chart | Ranking]:
    """Return what the model shows of itself; empty if it shows nothing or cannot be rebuilt."""
    with suppress(ConfigError):
        kind = model_class(bundle.record.model)
        if not issubclass(kind, TrainableModel) or kind.insides is TrainableModel.insides:
            return []
        model, before = untrained_model(bundle), None
        if bundle.weights:
            before = {name: value.clone() for name, value in model.state_dict().items()}
            if _shapes(before) != _shapes(bundle.weights):
                return []  # an older version trained it
            model.load_state_dict(dict(bundle.weights))
        shown = model.eval().insides(Graph(bundle.train.matrix), before)
        return [_inside(bundle, inside) for inside in shown]
    return []


def _shapes(tensors: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(value.shape) for name, value in tensors.items()}


def _inside(bundle: Bundle, inside: Inside) -> Chart | Ranking:
    if isinstance(inside, NodeRanking):
        most = max(inside.weights.max(initial=0.0), 1e-12)
        ranked = [
            Ranked(_node_name(bundle, int(node)), f"{100 * weight:.3g}%", float(weight / most))
            for node, weight in zip(inside.nodes, inside.weights, strict=True)
            if weight > 0
        ]
        owner = "" if inside.owner is None else f"{_node_name(bundle, inside.owner)} "
        return Ranking(f"{owner}{inside.title}", ranked, inside.facts)
    traces = [
        go.Bar(x=series.x, y=series.y, name=series.name)
        if inside.kind == "bars"
        else go.Scatter(x=series.x, y=series.y, name=series.name, mode=MODES[inside.kind])
        for series in inside.series
    ]
    chart = charts.draw(traces, *inside.axes, barmode="stack")
    for axis in inside.log_axes:
        values = np.concatenate([getattr(series, axis) for series in inside.series])
        chart.update_layout({f"{axis}axis": charts.log_axis(values)})
    return Chart(inside.title, chart, inside.caption, wide=inside.kind != "bars")


def item_map(bundle: Bundle) -> Chart | None:
    """Return the items in the plane in which their vectors differ most; None without vectors."""
    scorer, degrees = vectors_of(bundle.scorer), bundle.item_degrees
    if scorer is None:
        return None
    width = scorer.items.shape[1] - scorer.constant
    if min(width, len(bundle.items)) < 2:
        return None
    # Lengths may contain a prior of popularity; directions are what the model has learned.
    plane, shares = principal_plane(functional.normalize(scorer.items[:, :width].double()))
    chosen = lists.evenly(np.argsort(degrees, kind="stable"), MAPPED_ITEMS)
    ticks = [t for power in range(9) for t in (10**power, 3 * 10**power) if t <= degrees.max()]
    names = [charts.shortened(_item_name(bundle, item), 40) for item in chosen]
    points = go.Scatter(
        x=plane[chosen, 0],
        y=plane[chosen, 1],
        mode="markers",
        marker={"color": np.log10(np.maximum(degrees[chosen], 1)), "coloraxis": "coloraxis"},
        text=[
            charts.plain(f"{name} ({degrees[item]:,} users)")
            for name, item in zip(names, chosen, strict=True)
        ],
        hovertemplate="%{text}<extra></extra>",
    )
    chart = charts.draw([points], height=520, hovermode="closest", dragmode="pan")
    chart.update_xaxes(showticklabels=False, fixedrange=False)
    chart.update_yaxes(showticklabels=False, fixedrange=False)
    chart.update_coloraxes(
        colorbar={
            "title": {"text": "training users", "side": "top"},
            "tickvals": np.log10(ticks),
            "ticktext": [f"{tick:,}" for tick in ticks],
        }
    )
    caption = (
        f"The horizontal direction explains {shares[0]:.1%} of the variance and the vertical one"
        f" {shares[1]:.1%}. If both are small, items that are close here may be far apart in the"
        " model."
    )
    return Chart(f"{len(chosen):,} of {len(bundle.items):,} items", chart, caption, wide=True)


def principal_plane(rows: torch.Tensor) -> tuple[NDArray[np.float64], list[float]]:
    """Return rows [n, D] along their first two principal components [n, 2], and their variances.

    Variances are shares of the total. The largest entry of a component, by magnitude, is positive.
    """
    centered = rows - rows.mean(0)
    values, vectors = torch.linalg.eigh(centered.T @ centered)
    vectors = vectors.flip(1)[:, :2]
    peaks = vectors.gather(0, vectors.abs().argmax(0, keepdim=True))
    vectors = vectors * torch.where(peaks < 0, -1.0, 1.0)
    shares = values.flip(0)[:2] / values.sum().clamp_min(1e-12)
    return (centered @ vectors).numpy(), shares.tolist()


def _example(bundle: Bundle, found: lists.ExampleUser) -> Ranking:
    best = max(found.scores.max(initial=0.0), 1e-12)
    hits = np.isin(found.items, found.held_out)
    ranked = [
        Ranked(
            _item_name(bundle, item),
            f"{score:.3f}",
            max(float(score / best), 0.0),
            "held out" if hit else "",
        )
        for item, score, hit in zip(found.items, found.scores, hits, strict=True)
    ]
    facts = {f"history of {len(found.history):,}": _listed(bundle, found.history)}
    if len(found.held_out):
        share = f"{hits.sum()} of {len(found.held_out):,} found in {len(found.items)}"
        facts["held out"] = f"{_listed(bundle, found.held_out)} ({share})"
    return Ranking(_node_name(bundle, found.user), ranked, facts)


def _listed(bundle: Bundle, items: NDArray[np.int32]) -> str:
    names = ", ".join(_item_name(bundle, item) for item in items[:LISTED_ITEMS])
    rest = len(items) - LISTED_ITEMS
    return f"{names} and {rest:,} more" if rest > 0 else names


def _item_name(bundle: Bundle, item: int) -> str:
    return charts.shortened(bundle.name_of(item) or str(bundle.items.values[int(item)]))


def _node_name(bundle: Bundle, node: int) -> str:
    item = node - len(bundle.users)
    if item < 0:
        return f"user {charts.shortened(str(bundle.users.values[node]))}"
    return _item_name(bundle, item) if bundle.name_of(item) else f"item {_item_name(bundle, item)}"
