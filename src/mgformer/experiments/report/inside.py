"""What is to be seen in a trained recommender itself: its lists, its vectors, its users."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from mgformer.experiments.report import figures
from mgformer.experiments.report.blocks import (
    Block,
    Cell,
    Chart,
    Entry,
    Ranking,
    Section,
    Table,
    percent,
    shortened,
)
from mgformer.experiments.report.figures import Axis, Series
from mgformer.experiments.report.measured import list_metrics
from mgformer.experiments.report.shown import (
    SAMPLED_USERS,
    K,
    Person,
    evenly,
    examples,
    long_tail,
)
from mgformer.ranking.scorers import DotScorer
from mgformer.runs.bundle import Bundle

MAPPED_ITEMS = 1_500
LISTED = 8
"""Items of a history that are listed."""
NUMBERLESS = Axis("", {"showticklabels": False, "fixedrange": False})
SHARES = Axis("", {"tickformat": ".0%", "rangemode": "tozero"})


def label_of(bundle: Bundle, item: int) -> str:
    """Return what an item is called: its name, or its id where it has none."""
    return shortened(bundle.name_of(item) or str(bundle.items.values[int(item)]))


def coverage(bundle: Bundle) -> Section | None:
    """How lists are shared out among popular and unpopular items."""
    tail = long_tail(bundle)
    if tail is None:
        return None
    even = Series("all items alike", [0, 1], [0, 1], figures.GREY, "dot", "")
    curves = [
        Series("recommended", tail.items, tail.shown, figures.BLUE),
        Series("in training", tail.items, tail.trained, figures.VERMILION, "dash"),
        even,
    ]
    cumulative = figures.lines(
        curves,
        Axis("share of items, most popular first", {"tickformat": ".0%", "range": [0, 1]}),
        SHARES,
    )
    names = list(tail.groups)
    kinds = (
        ("items", figures.GREY),
        ("training pairs", figures.VERMILION),
        ("recommendations", figures.BLUE),
    )
    shares = figures.bars(
        [
            Series(kind, names, [tail.groups[name][number] for name in names], color)
            for number, (kind, color) in enumerate(kinds)
        ],
        Axis("items, by popularity"),
        SHARES,
    )
    rows = [[Cell(name), *(Cell(percent(share)) for share in tail.groups[name])] for name in names]
    columns = ["group", *(kind for kind, _ in kinds)]
    blocks: list[Block] = [
        Chart(
            "Cumulative share of the most popular items",
            cumulative,
            "Above the dashed line, lists favour what is popular more than people did.",
        ),
        Chart("Shares by popularity of the items", shares),
        Table(columns, rows, f"Shares; recommendations are the places of lists of {K}."),
    ]
    table = list_metrics(bundle.record)
    if table is not None:
        blocks.append(table)
    whom = "a sample, evenly spaced" if tail.num_users == SAMPLED_USERS else "all who count"
    lead = (
        f"The top {K} of {tail.num_users:,} users, {whom}, made as in the test, hold"
        f" {percent(tail.coverage)} of the {len(bundle.items):,} items."
    )
    return Section("Coverage and the long tail", blocks, lead)


def embedding_map(bundle: Bundle) -> Section | None:
    """Items in the plane in which their vectors differ most."""
    scorer = bundle.scorer
    if not isinstance(scorer, DotScorer):
        return None
    width = scorer.items.shape[1] - scorer.constant
    if min(width, len(bundle.items)) < 2:
        return None
    # Lengths may hold a prior of popularity; directions are what the model has learned.
    plane, shares = principal_plane(functional.normalize(scorer.items[:, :width].double()))
    degrees = bundle.item_degrees
    chosen = evenly(np.argsort(degrees, kind="stable"), MAPPED_ITEMS)
    logs = np.log10(np.maximum(degrees[chosen], 1))
    ticks = figures.round_numbers(1, max(int(degrees.max()), 1))
    bar = {
        "title": {"text": "users in train", "side": "top"},
        "tickvals": [float(np.log10(t)) for t in ticks],
        "ticktext": [f"{t:,.0f}" for t in ticks],
    }
    labels = [
        f"{shortened(label_of(bundle, item), 40)} ({degrees[item]:,} users)" for item in chosen
    ]
    chart = figures.points(
        plane[chosen, 0].tolist(),
        plane[chosen, 1].tolist(),
        logs.tolist(),
        labels,
        (NUMBERLESS, NUMBERLESS),
        bar=bar,
        height=520,
    )
    chart.update_layout(dragmode="pan")
    few = len(chosen) < len(bundle.items)
    which = f"{len(chosen):,} of {len(bundle.items):,} items, evenly spaced by popularity"
    lead = (
        "Item vectors, at unit length, in the two directions in which they differ most (principal"
        f" components): {which if few else 'all items'}."
    )
    across, upwards = (percent(share) for share in shares)
    caption = (
        f"Of the variance, the direction across holds {across} and the one upwards {upwards}: the"
        " less, the more of what is near here is far apart."
    )
    return Section("Map of the items", [Chart("Items", chart, caption, wide=True)], lead)


def principal_plane(rows: torch.Tensor) -> tuple[NDArray[np.float64], list[float]]:
    """Return rows [n, D] in their first two principal directions [n, 2], and shares of variance.

    The largest entry of a direction, by magnitude, is positive.
    """
    centered = rows - rows.mean(0)
    values, vectors = torch.linalg.eigh(centered.T @ centered)
    vectors = vectors.flip(1)[:, :2]
    peaks = vectors.gather(0, vectors.abs().argmax(0, keepdim=True))
    vectors = vectors * torch.where(peaks < 0, -1.0, 1.0)
    shares = values.flip(0)[:2] / values.sum().clamp_min(1e-12)
    return (centered @ vectors).numpy(), shares.tolist()


def people(bundle: Bundle) -> Section | None:
    """A few users by name, with what they had and what they are recommended."""
    found = examples(bundle)
    held_out = bool(len(bundle.test))
    lead = "From one with few items to one with many. " + (
        "Lists are made as in the test: what was held out may be found, and is marked."
        if held_out
        else "Nothing is held out."
    )
    blocks = [_person(bundle, person) for person in found]
    return Section("Examples", blocks, lead) if blocks else None


def _person(bundle: Bundle, person: Person) -> Ranking:
    best = float(person.scores.max()) if len(person.scores) else 0.0
    hits = np.isin(person.items, person.held_out)
    entries = [
        Entry(
            label_of(bundle, item),
            f"{score:.3f}",
            max(float(score), 0.0) / best if best > 0 else 0.0,
            "held out" if hit else "",
        )
        for item, score, hit in zip(person.items, person.scores, hits, strict=True)
    ]
    facts = {f"history of {len(person.history):,}": _listed(bundle, person.history)}
    if len(person.held_out):
        found = f"{hits.sum()} of {len(person.held_out):,} found in {len(person.items)}"
        facts["held out"] = f"{_listed(bundle, person.held_out)} ({found})"
    return Ranking(f"user {shortened(str(bundle.users.values[person.user]))}", entries, facts)


def _listed(bundle: Bundle, items: NDArray[np.int32]) -> str:
    names = ", ".join(label_of(bundle, item) for item in items[:LISTED])
    rest = len(items) - LISTED
    return f"{names} and {rest:,} more" if rest > 0 else names
