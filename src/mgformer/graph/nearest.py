"""The nearest nodes of every node, by the inner product of their encodings.

All pairs are compared, a block of rows at a time, which is a matrix product and takes seconds up
to some hundred thousand nodes. Beyond, an inverted-file index of faiss finds nearly all of them.

Shapes: N nodes, r channels of the encodings, K neighbours.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from mgformer.errors import ConfigError
from mgformer.graph.sparse import block_slices
from mgformer.progress import phase

EXACT_NODES = 200_000
"""Nodes up to which all pairs are compared."""
PROBED_SHARE = 0.02
"""Share of the cells of the index that a search looks into."""


class Neighbors(NamedTuple):
    """Other nodes, nearest first."""

    nodes: Tensor  # [N, K] int64
    similarities: Tensor  # [N, K] float32


def nearest_nodes(encodings: Tensor, k: int, *, exact_nodes: int = EXACT_NODES) -> Neighbors:
    """Return the k nodes of largest inner product with each node, itself left out.

    Args:
        encodings: [N, r].
        k: Neighbours of each node; at most N - 1 are found.
        exact_nodes: Nodes up to which all pairs are compared.
    """
    k = min(k, len(encodings) - 1)
    if len(encodings) > exact_nodes:
        return _by_index(encodings, k)
    return _by_products(encodings, k)


def _by_products(encodings: Tensor, k: int) -> Neighbors:
    num_nodes = len(encodings)
    nodes = torch.empty(num_nodes, k, dtype=torch.int64)
    similarities = torch.empty(num_nodes, k)
    with phase("neighbours", num_nodes) as advance:
        for rows in block_slices(num_nodes, num_nodes):
            scores = encodings[rows] @ encodings.T
            scores.diagonal(rows.start).fill_(-torch.inf)  # nobody is a neighbour of itself
            similarities[rows], nodes[rows] = scores.topk(k)
            advance(rows.stop - rows.start)
    return Neighbors(nodes, similarities)


def _by_index(encodings: Tensor, k: int) -> Neighbors:
    try:
        import faiss
    except ImportError as error:
        raise ConfigError(
            f"{len(encodings)} nodes are too many to compare all pairs, and the package faiss is"
            " not installed; pip install 'mgformer[ann]', or choose model.attention=kernel"
        ) from error
    rows = encodings.numpy()
    cells = max(1, int(4 * len(rows) ** 0.5))
    kind = f"IVF{cells},Flat"
    index: Any = faiss.index_factory(rows.shape[1], kind, faiss.METRIC_INNER_PRODUCT)
    with phase("neighbours", None):
        index.train(rows[:: max(1, len(rows) // (64 * cells))])
        index.add(rows)
        index.nprobe = max(1, int(PROBED_SHARE * cells))
        scores, found = index.search(rows, k + 1)
    nodes, similarities = torch.from_numpy(found), torch.from_numpy(scores)
    # The node itself is among them, most often first: it goes to the end, and is cut off.
    itself = nodes == torch.arange(len(rows))[:, None]
    order = itself.to(torch.int8).argsort(dim=1, stable=True)[:, :k]
    nodes, similarities = nodes.gather(1, order), similarities.gather(1, order)
    # Where a search found fewer, -1 stands for them: such a neighbour has no weight.
    missing = nodes < 0
    return Neighbors(nodes.masked_fill(missing, 0), similarities.masked_fill(missing, -torch.inf))
