"""What the attention of a trained MGFormer looks at: its first layer, from the model itself.

Two of its forms draw all nodes together in prototypes, and a node reads a mixture of these: the
kernel form has one for each feature (nn/attention.py), the form of landmarks one for each landmark.
How sharp such attention can be is how few nodes a prototype stands for: exp(entropy) of its shares.
The form of neighbours has weights that can be looked at directly.

Shapes: N nodes, q of them looked at, H heads, K neighbours, R prototypes, t nodes named of each.
"""

from collections.abc import Callable, Iterator
from functools import reduce
from typing import NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mgformer.graph.sparse import block_slices
from mgformer.models.mgformer.layers import DegreeAngles, KernelAttention
from mgformer.models.mgformer.model import MGFormer
from mgformer.models.mgformer.structural import LandmarkAttention, NeighborAttention
from mgformer.nn.features import FEATURE_MAPS
from mgformer.nn.kernel_attention import log_key_features, log_query_features
from mgformer.runs.bundle import Bundle
from mgformer.runs.config import build_config
from mgformer.runs.train import untrained_model

SAMPLED_NODES = 4_000
NAMED = 6
"""Nodes named of a prototype, neighbours named of a node."""

Values = NDArray[np.float64]


class Mask(NamedTuple):
    """z of the sine mask by degree, in one layer: weights are sin(π/4 (z_i + z_j))."""

    degrees: NDArray[np.int64]
    z: Values
    z_before: Values
    """z before training."""
    num_nodes: NDArray[np.int64]
    """How many nodes have the degree."""


class Neighborhoods(NamedTuple):
    """Weights of neighbours by rank: [K] each, of users and items that attend, averaged."""

    to_users: dict[str, Values]
    """"users" or "items", who attend → mean weight on neighbours that are users."""
    to_items: dict[str, Values]
    effective: dict[str, float]
    """Who attends → exp(entropy) of the weights: how many neighbours they amount to, averaged."""
    num_sampled: int


class Prototypes(NamedTuple):
    """What prototypes hold, and how much they are read."""

    read: Values
    """[R] mean weight that nodes give it; they sum to the number of heads."""
    holds: Values
    """[R] how many nodes it amounts to: exp(entropy) of its shares."""
    of_items: Values
    """[R] share of it that items have; users have the rest."""
    nodes: NDArray[np.int64]
    """[R, t] the nodes with the largest shares of it."""
    shares: Values
    """[R, t] their shares."""


class Insight(NamedTuple):
    """What there is to see; None or empty where the model has no such thing."""

    masks: list[Mask]
    """Of each layer."""
    neighborhoods: Neighborhoods | None
    prototypes: Prototypes | None
    model: MGFormer


def look_into(bundle: Bundle) -> Insight | None:
    """Build the model anew and look at its attention; None if it has none that can be shown."""
    if bundle.record.model != "mgformer":
        return None
    config = cast(MGFormer.Config, build_config(bundle.record.config).model)
    masked, log_features = config.mask == "sine", FEATURE_MAPS[config.features].log
    # Where nothing of attention is trained, an old bundle without weights can be looked at too.
    fixed = config.attention in ("neighbors", "landmarks") and not masked
    summarized = config.attention == "kernel" and log_features and config.mask != "adjacency"
    if not (fixed or (bundle.weights and (masked or summarized))):
        return None
    model = cast(MGFormer, untrained_model(bundle))
    before = [_curve(angles) for angles in _all_angles(model)]
    if bundle.weights:
        model.load_state_dict(dict(bundle.weights))
    model.eval()
    graph_degrees = np.concatenate([np.diff(bundle.train.indptr), bundle.item_degrees])
    degrees, counts = np.unique(graph_degrees, return_counts=True)
    masks = [
        Mask(degrees, _curve(angles), start, counts)
        for angles, start in zip(_all_angles(model), before, strict=True)
    ]
    layer = model.layers[0]
    with torch.no_grad():
        if isinstance(layer, NeighborAttention):
            return Insight(masks, _neighborhoods(model, layer), None, model)
        if isinstance(layer, LandmarkAttention):
            return Insight(masks, None, of_landmarks(model, layer), model)
        prototypes = of_kernel(model, cast(KernelAttention, layer)) if summarized else None
    return Insight(masks, None, prototypes, model)


def neighbors_of(model: MGFormer, node: int) -> tuple[NDArray[np.int64], Values]:
    """Return the neighbours of a node with the largest weights, and these, averaged over heads."""
    layer = cast(NeighborAttention, model.layers[0])
    with torch.no_grad():
        weights = layer.weights(torch.tensor([node]))[0].mean(0).double()  # [K]
    order = weights.argsort(descending=True, stable=True)[:NAMED]
    return layer.neighbors[node][order].numpy(), weights[order].numpy()


def _all_angles(model: MGFormer) -> Iterator[DegreeAngles]:
    for layer in model.layers:
        angles = getattr(layer, "angles", None)
        if angles is not None:
            yield angles


def _curve(angles: DegreeAngles) -> Values:
    """Return z of each degree that there is, in ascending order."""
    with torch.no_grad():
        return (angles.embedding @ angles.projection).sigmoid().double().numpy()


def _sample(num_nodes: int) -> Tensor:
    return torch.linspace(0, num_nodes - 1, min(SAMPLED_NODES, num_nodes)).long()


def _neighborhoods(model: MGFormer, layer: NeighborAttention) -> Neighborhoods:
    nodes = _sample(model.num_nodes)
    weights = layer.weights(nodes).mean(1).double()  # [q, K]
    nodes, weights = nodes[weights.sum(1) > 0], weights[weights.sum(1) > 0]
    ranked, order = weights.sort(descending=True, stable=True)
    on_items = layer.neighbors[nodes].gather(1, order) >= model.num_users
    effective = torch.special.entr(ranked).sum(1).exp()
    found = Neighborhoods({}, {}, {}, len(nodes))
    for name, own in (("users", nodes < model.num_users), ("items", nodes >= model.num_users)):
        if own.any():
            found.to_users[name] = (ranked * ~on_items)[own].mean(0).numpy()
            found.to_items[name] = (ranked * on_items)[own].mean(0).numpy()
            found.effective[name] = float(effective[own].mean())
    return found


def of_landmarks(model: MGFormer, layer: LandmarkAttention) -> Prototypes:
    """Return the prototypes that landmarks are: nodes have shares of those near to them."""

    def log_features(rows: slice) -> Tensor:
        return torch.from_numpy(layer.features[rows].toarray()).double().log()

    held = _held(log_features, model, layer.features.shape[1])
    return Prototypes(held.log_mass.exp().numpy() / model.num_nodes, *held.described)


def of_kernel(model: MGFormer, layer: KernelAttention) -> Prototypes:
    """Return the prototypes of the summary of all nodes in kernel attention."""
    everybody, sample = torch.arange(model.num_nodes), _sample(model.num_nodes)
    x = model.inputs(everybody)
    queries, keys = layer.projected(x[sample], x)
    assert layer.projections is not None
    heads = []
    for query, key, projection in zip(queries, keys, layer.projections, strict=True):

        def log_features(rows: slice, key: Tensor = key, projection: Tensor = projection) -> Tensor:
            angles = layer.angles_of(everybody[rows])
            return log_key_features(key[rows], projection, angles).double()

        held = _held(log_features, model, 2 * len(projection))
        logits = log_query_features(query, projection, layer.angles_of(sample)).double()
        read = (logits + held.log_mass).softmax(1).mean(0)
        heads.append(Prototypes(read.numpy(), *held.described))
    return Prototypes(*(np.concatenate(columns) for columns in zip(*heads, strict=True)))


class _Held(NamedTuple):
    log_mass: Tensor  # [R]
    described: tuple[Values, Values, NDArray[np.int64], Values]
    """holds, of_items, nodes and shares of `Prototypes`."""


def _held(log_features: Callable[[slice], Tensor], model: MGFormer, width: int) -> _Held:
    """Describe prototypes by the log features of nodes; `width` is about R."""
    blocks = list(block_slices(model.num_nodes, width))
    log_mass = reduce(torch.logaddexp, (log_features(rows).logsumexp(0) for rows in blocks))
    entropy, of_items = torch.zeros_like(log_mass), torch.zeros_like(log_mass)
    nodes = torch.zeros(0, len(log_mass), dtype=torch.long)
    shares = torch.zeros(0, len(log_mass), dtype=torch.double)
    for rows in blocks:
        # A landmark that nobody is near to has no mass, and no shares.
        own = (log_features(rows) - log_mass).exp().nan_to_num(0)
        entropy += torch.special.entr(own).sum(0)
        of_items += own[max(model.num_users - rows.start, 0) :].sum(0)
        numbers = torch.arange(rows.start, rows.start + len(own))[:, None].expand_as(own)
        shares, nodes = torch.cat([shares, own]), torch.cat([nodes, numbers])
        shares, places = shares.topk(min(NAMED, len(shares)), dim=0)
        nodes = nodes.gather(0, places)
    described = entropy.exp().numpy(), of_items.numpy(), nodes.T.numpy(), shares.T.numpy()
    return _Held(log_mass, described)
