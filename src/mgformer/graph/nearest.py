"""The nearest neighbors of every node, by the inner product of their encodings.

Up to `exact_nodes` nodes all pairs are compared by matrix products, which takes seconds. For larger
graphs an inverted-file index of faiss finds nearly all neighbors.

Shapes: N nodes, r channels of the encodings, K neighbors.
"""

from typing import Any

import torch
from torch import Tensor

from mgformer.device import HOST
from mgformer.errors import ConfigError
from mgformer.graph.sparse import BLOCK_ENTRIES, block_slices
from mgformer.progress import phase

EXACT_NODES = 200_000
"""Largest number of nodes for which all pairs are compared."""
PROBED_SHARE = 0.02
"""Share of the cells of the index that a search visits."""


def nearest_nodes(
    encodings: Tensor, k: int, *, exact_nodes: int = EXACT_NODES, block_entries: int = BLOCK_ENTRIES
) -> tuple[Tensor, Tensor]:
    """Return the nearest k other nodes of each node, and their inner products; both are [N, k]."""
    num_nodes = len(encodings)
    k = min(k, num_nodes - 1)
    if num_nodes > exact_nodes:
        return _by_index(encodings, k)
    nodes = torch.empty(num_nodes, k, dtype=torch.int64, device=HOST)
    similarities = torch.empty(num_nodes, k, device=HOST)
    with phase("neighbors", num_nodes) as advance:
        for rows in block_slices(num_nodes, num_nodes, block_entries):
            scores = encodings[rows] @ encodings.T
            scores.diagonal(rows.start).fill_(-torch.inf)  # a node is not its own neighbor
            similarities[rows], nodes[rows] = scores.topk(k)
            advance(rows.stop - rows.start)
    return nodes, similarities


def _by_index(encodings: Tensor, k: int) -> tuple[Tensor, Tensor]:
    try:
        import faiss
    except ImportError as error:
        raise ConfigError(
            f"guide = spectral: got {len(encodings)} nodes, too many to compare all pairs"
            " without the package faiss; pip install 'mgformer[ann]', or set model.guide=ridge"
        ) from error
    rows = encodings.numpy()
    cells = max(1, int(4 * len(rows) ** 0.5))
    kind = f"IVF{cells},Flat"
    index: Any = faiss.index_factory(rows.shape[1], kind, faiss.METRIC_INNER_PRODUCT)
    with phase("neighbors", None):
        index.train(rows[:: max(1, len(rows) // (64 * cells))])
        index.add(rows)
        index.nprobe = max(1, int(PROBED_SHARE * cells))
        scores, found = index.search(rows, k + 1)
    nodes, similarities = torch.from_numpy(found), torch.from_numpy(scores)
    # The node itself is usually among its results: move it to the end, which is cut off.
    itself = nodes == torch.arange(len(rows), device=HOST)[:, None]
    order = itself.to(torch.int8).argsort(dim=1, stable=True)[:, :k]
    nodes, similarities = nodes.gather(1, order), similarities.gather(1, order)
    # faiss fills up with -1 if it finds fewer; such a neighbor gets no weight.
    missing = nodes < 0
    return nodes.masked_fill(missing, 0), similarities.masked_fill(missing, -torch.inf)
