"""What the attention of a trained MGFormer looks at: `MGFormer.insides`.

Neighbor attention has weights that can be shown directly. Kernel and landmark attention first
summarize all nodes in prototypes, one per feature or landmark; every node then reads a mixture of
these prototypes. Such attention is sharp if a prototype stands for few nodes: exp(entropy) of the
shares that the nodes have in it. Weights are those of the first layer.

Shapes: N nodes, q sampled nodes, H heads, K neighbors, R prototypes, t nodes named per prototype.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from mgformer.graph.bipartite import Graph
from mgformer.graph.sparse import BLOCK_ENTRIES, block_slices
from mgformer.models.insides import Inside, NodeRanking, Nodes, Plot, Series, Values
from mgformer.models.mgformer.layers import KernelAttention
from mgformer.models.mgformer.structural import LandmarkAttention, NeighborAttention
from mgformer.nn.kernel_attention import log_key_features, log_query_features

if TYPE_CHECKING:
    from mgformer.models.mgformer.model import MGFormer

SAMPLED_NODES = 4_000
NAMED_NODES = 6
"""How many nodes a ranking names."""
EXAMPLE_ITEMS = (1.0, 0.95, 0.75, 0.4)
"""Popularity quantiles of the items whose neighbors are named."""
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


class Neighborhood(NamedTuple):
    """Attention weights by rank of the neighbor, averaged over nodes of one side."""

    to_users: Values  # [K] weight on neighbors that are users
    to_items: Values
    effective: float  # mean exp(entropy) of the weights: how many neighbors a node reads


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
    layer, found = next(iter(model.layers), None), list[Inside]()
    trained, masked = before is not None, model.config.mask == "sine"
    with torch.no_grad():
        if isinstance(layer, NeighborAttention) and (trained or not masked):
            found += _describe_neighbors(model, layer, graph)
        if isinstance(layer, LandmarkAttention):
            found += _describe_prototypes(landmark_prototypes(model, layer), graph)
        if isinstance(layer, KernelAttention) and layer.has_summary and trained:
            found += _describe_prototypes(kernel_prototypes(model, layer), graph)
        if before is not None and masked:
            found.append(_describe_masks(list(degree_masks(model, graph, before))))
    return found


def neighborhoods(model: "MGFormer", layer: NeighborAttention) -> dict[str, Neighborhood]:
    """Return mean attention weights of users and of items, over a sample of nodes."""
    nodes = _sample(model.num_nodes)
    weights = layer.weights(nodes).mean(1).double()  # [q, K]
    nodes, weights = nodes[weights.sum(1) > 0], weights[weights.sum(1) > 0]
    ranked, order = weights.sort(descending=True, stable=True)
    to_items = layer.neighbors[nodes].gather(1, order) >= model.num_users
    effective = torch.special.entr(ranked).sum(1).exp()
    is_user = nodes < model.num_users
    return {
        side: Neighborhood(
            (ranked * ~to_items)[rows].mean(0).numpy(),
            (ranked * to_items)[rows].mean(0).numpy(),
            float(effective[rows].mean()),
        )
        for side, rows in (("users", is_user), ("items", ~is_user))
        if rows.any()
    }


def strongest_neighbors(layer: NeighborAttention, node: int) -> tuple[Nodes, Values]:
    """Return the neighbors of a node with the largest weights, averaged over heads."""
    weights = layer.weights(torch.tensor([node]))[0].mean(0).double()  # [K]
    order = weights.argsort(descending=True, stable=True)[:NAMED_NODES]
    return layer.neighbors[node][order].numpy(), weights[order].numpy()


def landmark_prototypes(
    model: "MGFormer", layer: LandmarkAttention, named: int = NAMED_NODES
) -> Prototypes:
    """Return the prototypes of landmark attention: every landmark is one."""

    def log_features(rows: slice) -> Tensor:
        return torch.from_numpy(layer.features[rows].toarray()).double().log()

    return _summarize(log_features, model, layer.features.shape[1], named)[1]


def kernel_prototypes(
    model: "MGFormer",
    layer: KernelAttention,
    named: int = NAMED_NODES,
    block_entries: int = BLOCK_ENTRIES,
) -> Prototypes:
    """Return the prototypes of kernel attention: every feature of a head is one."""
    everybody, sample = torch.arange(model.num_nodes), _sample(model.num_nodes)
    x = model.inputs(everybody)
    queries, keys = layer.projected(x[sample], x)
    assert layer.projections is not None
    heads = []
    for query, key, projection in zip(queries, keys, layer.projections, strict=True):

        def log_features(rows: slice, key: Tensor = key, projection: Tensor = projection) -> Tensor:
            angles = layer.angles_of(everybody[rows])
            return log_key_features(key[rows], projection, angles).double()

        width = 2 * len(projection)
        log_mass, found = _summarize(log_features, model, width, named, block_entries)
        logits = log_query_features(query, projection, layer.angles_of(sample)).double()
        read = (logits + log_mass).softmax(1).mean(0)
        heads.append(found._replace(read=read.numpy()))
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


def _summarize(
    log_features: Callable[[slice], Tensor],
    model: "MGFormer",
    width: int,
    named: int,
    block_entries: int = BLOCK_ENTRIES,
) -> tuple[Tensor, Prototypes]:
    """Return the log of the mass of each prototype, and the prototypes, read by their mass.

    `log_features` gives the log features [·, R] of some nodes; `width` is about R.
    """
    blocks = list(block_slices(model.num_nodes, width, block_entries))
    log_mass = reduce(torch.logaddexp, (log_features(rows).logsumexp(0) for rows in blocks))
    entropy, of_items = torch.zeros_like(log_mass), torch.zeros_like(log_mass)
    nodes = torch.zeros(0, len(log_mass), dtype=torch.long)
    shares = torch.zeros(0, len(log_mass), dtype=torch.double)
    for rows in blocks:
        # A landmark without nodes has no mass, and its shares would be 0 / 0.
        own = (log_features(rows) - log_mass).exp().nan_to_num(0)
        entropy += torch.special.entr(own).sum(0)
        of_items += own[max(model.num_users - rows.start, 0) :].sum(0)
        numbers = torch.arange(rows.start, rows.start + len(own))[:, None].expand_as(own)
        shares, nodes = torch.cat([shares, own]), torch.cat([nodes, numbers])
        shares, places = shares.topk(min(named, len(shares)), dim=0)
        nodes = nodes.gather(0, places)
    read, size = (log_mass.exp() / model.num_nodes).numpy(), entropy.exp().numpy()
    found = Prototypes(read, size, of_items.numpy(), nodes.T.numpy(), shares.T.numpy())
    return log_mass, found


def _describe_neighbors(
    model: "MGFormer", layer: NeighborAttention, graph: Graph
) -> Iterator[Inside]:
    for side, found in neighborhoods(model, layer).items():
        caption = (
            f"Mean attention weight by rank of the neighbor. On average, {side} read"
            f" {found.effective:.1f} neighbors effectively (the exponential of the entropy of"
            " their weights)."
        )
        if len(model.layers) > 1:
            caption += f" These are the weights of the first of {len(model.layers)} layers."
        ranks = np.arange(1, len(found.to_users) + 1)
        bars = [
            Series("to users", ranks, found.to_users),
            Series("to items", ranks, found.to_items),
        ]
        yield Plot("bars", f"What {side} attend to", caption, bars, ("rank", "weight"))
    by_degree = np.argsort(graph.item_degrees, kind="stable")
    chosen = (by_degree[round(place * (len(by_degree) - 1))] for place in EXAMPLE_ITEMS)
    for item in dict.fromkeys(map(int, chosen)):
        node = graph.num_users + item
        facts = {"training users": f"{graph.item_degrees[item]:,}"}
        yield NodeRanking("attends to", *strongest_neighbors(layer, node), facts, owner=node)


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
