"""The attention of an MGFormer as pictures."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mgformer.experiments.report import figures
from mgformer.experiments.report.attention import (
    Insight,
    Mask,
    Neighborhoods,
    Prototypes,
    look_into,
    neighbors_of,
)
from mgformer.experiments.report.blocks import (
    Block,
    Chart,
    Entry,
    Ranking,
    Section,
    shortened,
)
from mgformer.experiments.report.figures import Axis, Series
from mgformer.experiments.report.inside import label_of
from mgformer.runs.bundle import Bundle

EXAMPLES = (1.0, 0.95, 0.75, 0.4)
"""Places, among items by popularity, of those whose neighbours are named."""
NAMED_PROTOTYPES = 4
MOST_POINTS = 1_500
LEAST_READ = 1e-6
"""Weight of a prototype, as a share of the largest, below which it is not shown."""


def attention(bundle: Bundle) -> Section | None:
    """What the model attends to; None where there is nothing that can be shown."""
    insight = look_into(bundle)
    if insight is None:
        return None
    blocks: list[Block] = []
    lead = ["Computed anew from the training pairs and the weights."]
    if insight.neighborhoods is not None:
        lead.append(_of_neighbors(insight.neighborhoods))
        blocks += _neighbor_blocks(bundle, insight)
    if insight.prototypes is not None:
        lead.append(
            "Nodes are drawn together in prototypes, and every node reads a mixture of these. A"
            " prototype that stands for few nodes is sharp; one that stands for nearly all says"
            " the same to everybody."
        )
        blocks += _prototype_blocks(bundle, insight.prototypes)
    if insight.masks:
        blocks.append(_mask_chart(insight.masks))
    layers, heads = len(insight.model.layers), insight.model.config.num_heads
    if layers > 1:
        lead.append(f"Weights are those of the first of {layers} layers.")
    if heads > 1 and insight.neighborhoods is not None:
        lead.append(f"They are averaged over {heads} heads.")
    return Section("Attention", blocks, " ".join(lead))


def _of_neighbors(found: Neighborhoods) -> str:
    spread = ", ".join(f"{count:.1f} for {who}" for who, count in found.effective.items())
    return (
        "A node attends to the nodes nearest by encoding. How many neighbours its weights amount"
        f" to, as exp of their entropy: {spread} (means over {found.num_sampled:,} nodes, evenly"
        " spaced)."
    )


def _neighbor_blocks(bundle: Bundle, insight: Insight) -> list[Block]:
    found = insight.neighborhoods
    assert found is not None
    blocks: list[Block] = []
    for who in found.to_users:
        ranks = list(range(1, len(found.to_users[who]) + 1))
        series = [
            Series("to users", ranks, found.to_users[who], figures.BLUE),
            Series("to items", ranks, found.to_items[who], figures.AMBER),
        ]
        axis = Axis("neighbour, by rank")
        chart = figures.bars(series, axis, Axis("mean weight"), stacked=True)
        blocks.append(Chart(f"What {who} attend to", chart))
    degrees = bundle.item_degrees
    order = np.argsort(degrees, kind="stable")
    chosen = [order[round(q * (len(order) - 1))] for q in EXAMPLES]
    for item in dict.fromkeys(chosen):
        nodes, weights = neighbors_of(insight.model, insight.model.num_users + int(item))
        entries = _entries(bundle, nodes, weights)
        title = f"{_node(bundle, len(bundle.users) + int(item))} attends to"
        blocks.append(Ranking(title, entries, {"users in train": f"{degrees[item]:,}"}))
    return blocks


def _prototype_blocks(bundle: Bundle, found: Prototypes) -> list[Block]:
    by_reading = np.argsort(-found.read, kind="stable")
    by_reading = by_reading[found.read[by_reading] > LEAST_READ * found.read.max()]
    shown = by_reading[:MOST_POINTS]
    labels = [
        f"prototype {r + 1}: {found.holds[r]:,.1f} nodes, {found.of_items[r]:.0%} items"
        for r in shown
    ]
    chart = figures.points(
        found.holds[shown].tolist(),
        found.read[shown].tolist(),
        found.of_items[shown].tolist(),
        labels,
        (
            figures.log_axis("nodes it stands for", found.holds[shown]),
            figures.log_axis("mean weight with which it is read", found.read[shown], _digits),
        ),
        bar={
            "title": {"text": "share of items", "side": "top"},
            "tickformat": ".0%",
        },
        height=380,
    )
    caption = f"{len(found.read):,} prototypes of {len(bundle.users) + len(bundle.items):,} nodes"
    if len(shown) < len(found.read):
        caption += f"; shown are the {len(shown):,} that are read most"
    blocks: list[Block] = [Chart("Prototypes", chart, f"{caption}.", wide=True)]
    places = np.linspace(0, len(by_reading), NAMED_PROTOTYPES, endpoint=False).astype(int)
    for prototype in dict.fromkeys(by_reading[places].tolist()):
        entries = _entries(bundle, found.nodes[prototype], found.shares[prototype])
        facts = {
            "stands for": f"{found.holds[prototype]:,.1f} nodes",
            "read with": f"{_digits(found.read[prototype])} of the weight",
        }
        blocks.append(Ranking(f"Prototype {prototype + 1} holds", entries, facts))
    return blocks


def _entries(bundle: Bundle, nodes: NDArray[np.int64], weights: NDArray[np.float64]) -> list[Entry]:
    most = max(float(weights.max()), 1e-12) if len(weights) else 1.0
    return [
        Entry(_node(bundle, int(node)), _digits(weight), float(weight) / most)
        for node, weight in zip(nodes, weights, strict=True)
        if weight > 0
    ]


def _digits(share: float) -> str:
    """Return a share that may be small as per cent."""
    return f"{100 * share:.3g}%"


def _node(bundle: Bundle, node: int) -> str:
    if node < len(bundle.users):
        return f"user {shortened(str(bundle.users.values[node]))}"
    item = node - len(bundle.users)
    label = label_of(bundle, item)
    return label if bundle.name_of(item) else f"item {label}"


def _mask_chart(masks: Sequence[Mask]) -> Chart:
    series = []
    for number, mask in enumerate(masks):
        color, symbol = figures.COLORS[number % 6], figures.SYMBOLS[number % 6]
        name = f"layer {number + 1}" if len(masks) > 1 else "after training"
        linked = mask.degrees > 0  # a logarithm has no place for degree 0
        degrees = mask.degrees[linked]
        if len(masks) == 1:
            series.append(Series("each degree", degrees, mask.z[linked], color, "", "circle"))
            before = binned(degrees, mask.z_before[linked], mask.num_nodes[linked])
            series.append(Series("before", *before, figures.GREY, "dot", "square"))
        after = binned(degrees, mask.z[linked], mask.num_nodes[linked])
        series.append(Series(name, *after, color, "solid", symbol))
    linked_degrees = masks[0].degrees[masks[0].degrees > 0]
    axis = figures.log_axis("degree: users of an item, items of a user", linked_degrees)
    chart = figures.lines(series, axis, Axis("z", {"range": [0, 1]}))
    caption = (
        "Two nodes attend to each other with weights times sin(π/4 (z + z′)): the higher both z,"
        " the more. Lines are means over the nodes of near degrees; a degree that few nodes have"
        " learns little."
    )
    return Chart("Mask of degrees, z(degree)", chart, caption, wide=True)


def binned(
    degrees: NDArray[np.int64], z: NDArray[np.float64], num_nodes: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return means of degree and z over the nodes of near degrees, ten to a power of ten."""
    _, bins = np.unique(np.round(10 * np.log10(degrees)), return_inverse=True)
    total = np.bincount(bins, num_nodes)
    return np.bincount(bins, num_nodes * degrees) / total, np.bincount(bins, num_nodes * z) / total
