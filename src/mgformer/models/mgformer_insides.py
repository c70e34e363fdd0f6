"""What the attention of a trained MGFormer looks at: `MGFormer.insides`.

Attention first summarizes all nodes in prototypes, one per feature; every node then reads a mixture
of these prototypes. Such attention is sharp if a prototype stands for few nodes: exp(entropy) of
the shares that the nodes have in it. Prototypes are those of the first layer.

Shapes: N nodes, q sampled nodes, H heads, R prototypes, t nodes named per prototype.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from mgformer.graph.bipartite import Graph
from mgformer.graph.sparse import BLOCK_ENTRIES, block_slices
from mgformer.models.insides import Inside, NodeRanking, Nodes, Plot, Series, Values
from mgformer.nn.kernel_attention import log_key_features, log_query_features

if TYPE_CHECKING:
    from mgformer.models.mgformer import KernelAttention, MGFormer

SAMPLED_NODES = 4_000
NAMED_NODES = 6
"""How many nodes a ranking names."""
EXAMPLE_PROTOTYPES = 4
MOST_POINTS = 1_500
LEAST_READ = 1e-6
"""Prototypes that are read less than this share of the most read one are not shown."""


class DegreeMask(NamedTuple):
    """z of the sine mask by degree in one layer; the mask is sin(π/4 (z_i + z_j))."""

    degrees: Nodes
    before: Values  # z before training
    after: Values
    num_nodes: Nodes  # how many nodes have the degree


class Prototypes(NamedTuple):
    """What the prototypes hold and how much they are read."""

    read: Values  # [R] mean weight that nodes give to it; the sum is H
    size: Values  # [R] exp(entropy) of the shares: how many nodes it stands for
    of_items: Values  # [R] share that items have in it; users have the rest
    nodes: Nodes  # [R, t] the nodes with the largest shares
    shares: Values  # [R, t] their shares


def attention_insides(
    model: "MGFormer", graph: Graph, before: Mapping[str, Tensor] | None
) -> list[Inside]:
    """Return what can be shown of the attention; see `TrainableModel.insides`."""
    found = list[Inside]()
    if before is None or not model.layers:
        return found
    layer = cast("KernelAttention", model.layers[0])
    with torch.no_grad():
        if layer.has_summary:
            found += _describe_prototypes(kernel_prototypes(model, layer), graph)
        if model.config.mask == "sine":
            found.append(_describe_masks(list(degree_masks(model, graph, before))))
    return found


def kernel_prototypes(
    model: "MGFormer",
    layer: "KernelAttention",
    named: int = NAMED_NODES,
    block_entries: int = BLOCK_ENTRIES,
) -> Prototypes:
    """Return the prototypes of a layer: every feature of a head is one."""
    everybody, sample = torch.arange(model.num_nodes), _sample(model.num_nodes)
    x = model.inputs(everybody)
    queries, keys = layer.projected(x[sample], x)
    assert layer.projections is not None
    heads = []
    for query, key, projection in zip(queries, keys, layer.projections, strict=True):

        def log_features(rows: slice, key: Tensor = key, projection: Tensor = projection) -> Tensor:
            angles = layer.angles_of(everybody[rows])
            return log_key_features(key[rows], projection, angles).double()

        blocks = list(block_slices(model.num_nodes, 2 * len(projection), block_entries))
        log_mass = reduce(torch.logaddexp, (log_features(rows).logsumexp(0) for rows in blocks))
        logits = log_query_features(query, projection, layer.angles_of(sample)).double()
        read = (logits + log_mass).softmax(1).mean(0)
        shares = ((rows, (log_features(rows) - log_mass).exp()) for rows in blocks)
        heads.append(_described(read, shares, model.num_users, named))
    return Prototypes(*(np.concatenate(columns) for columns in zip(*heads, strict=True)))


def degree_masks(
    model: "MGFormer", graph: Graph, before: Mapping[str, Tensor]
) -> Iterator[DegreeMask]:
    """Yield the mask of each layer."""
    degrees, counts = np.unique(graph.degrees, return_counts=True)
    after = model.state_dict()
    for number in range(len(model.layers)):
        name = f"layers.{number}.angles."
        z_before, z_after = (
            (state[f"{name}embedding"] @ state[f"{name}projection"]).sigmoid().double().numpy()
            for state in (before, after)
        )
        yield DegreeMask(degrees, z_before, z_after, counts)


def binned(degrees: Nodes, z: Values, num_nodes: Nodes) -> tuple[Values, Values]:
    """Return the mean degree and the mean z of the nodes in each bin, ten bins per power of ten.

    Degree 0 is left out, because a logarithmic axis has no place for it.
    """
    linked = degrees > 0
    degrees, z, num_nodes = degrees[linked], z[linked], num_nodes[linked]
    _, bins = np.unique(np.round(10 * np.log10(degrees)), return_inverse=True)
    total = np.bincount(bins, num_nodes)
    return np.bincount(bins, num_nodes * degrees) / total, np.bincount(bins, num_nodes * z) / total


def _sample(num_nodes: int) -> Tensor:
    return torch.linspace(0, num_nodes - 1, min(SAMPLED_NODES, num_nodes)).long()


def _described(
    read: Tensor, blocks: Iterable[tuple[slice, Tensor]], num_users: int, named: int
) -> Prototypes:
    """Describe prototypes, from how much they are read [R] and blocks of shares [·, R]."""
    entropy, of_items = torch.zeros_like(read), torch.zeros_like(read)
    nodes = torch.zeros(0, len(read), dtype=torch.long)
    shares = torch.zeros(0, len(read), dtype=torch.double)
    for rows, own in blocks:
        entropy += torch.special.entr(own).sum(0)
        of_items += own[max(num_users - rows.start, 0) :].sum(0)
        numbers = torch.arange(rows.start, rows.start + len(own))[:, None].expand_as(own)
        shares, nodes = torch.cat([shares, own]), torch.cat([nodes, numbers])
        shares, places = shares.topk(min(named, len(shares)), dim=0)
        nodes = nodes.gather(0, places)
    columns = read, entropy.exp(), of_items, nodes.T, shares.T
    return Prototypes(*(column.numpy() for column in columns))


def _describe_prototypes(found: Prototypes, graph: Graph) -> Iterator[Inside]:
    order = np.argsort(-found.read, kind="stable")
    order = order[found.read[order] > LEAST_READ * found.read.max()]
    shown = order[:MOST_POINTS]
    caption = (
        f"Attention summarizes {graph.num_nodes:,} nodes in {len(found.read):,} prototypes, and"
        " every node reads a mixture of them. A prototype that stands for few nodes is sharp. One"
        " that stands for nearly all nodes tells every node the same."
    )
    if len(shown) < len(found.read):
        caption += f" The chart shows the {len(shown):,} prototypes that are read most."
    of_items = found.of_items[shown] >= 0.5
    points = [
        Series(name, found.size[rows], found.read[rows])
        for name, rows in (("mostly users", shown[~of_items]), ("mostly items", shown[of_items]))
    ]
    axes = ("nodes that it stands for", "mean weight when read")
    yield Plot("points", "Prototypes", caption, points, axes, "xy")
    places = np.linspace(0, len(order), EXAMPLE_PROTOTYPES, endpoint=False).astype(int)
    for r in dict.fromkeys(order[places].tolist()):
        facts = {"nodes": f"{found.size[r]:,.1f}", "weight when read": f"{found.read[r]:.3%}"}
        yield NodeRanking(f"Prototype {r + 1} holds", found.nodes[r], found.shares[r], facts)


def _describe_masks(masks: list[DegreeMask]) -> Plot:
    curves = []
    for number, mask in enumerate(masks, start=1):
        layer = f"layer {number}, " if len(masks) > 1 else ""
        for when, z in (("after", mask.after), ("before", mask.before)):
            curve = binned(mask.degrees, z, mask.num_nodes)
            curves.append(Series(f"{layer}{when} training", *curve))
    caption = (
        "The mask multiplies the attention between two nodes by sin(π/4 (z + z′)), so nodes with"
        " a high z attend to each other more. Lines are means over nodes of similar degree."
    )
    return Plot("curves", "Degree mask", caption, curves, ("degree of the node", "z"), "x")
