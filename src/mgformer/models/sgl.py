"""SGL (Wu et al., SIGIR 2021, arXiv:2010.10783): LightGCN with contrast of two thinned graphs.

Two views of the graph, each without some of its pairs, are drawn for every epoch. A contrastive
term asks that the embeddings of a node in both views are more similar than those of different
nodes. The other nodes are all users (or all items), as in the authors' SGL-Torch, or those of the
batch.

Shapes: U users, I items, N = U + I nodes (users, then items), E pairs, d channels; q nodes of a
batch.
"""

from typing import Annotated, Literal

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from pydantic import Field, NonNegativeFloat, PositiveFloat
from torch import Tensor

from mgformer.data.sampling import Batch
from mgformer.graph.bipartite import Graph, inverse_sqrt
from mgformer.graph.sparse import SparseProduct, pattern_of, scaled
from mgformer.models.base import ModelConfig
from mgformer.models.lightgcn import LightGCN, Triple, contrast_within
from mgformer.models.space import Float
from mgformer.nn.embeddings import mean_of_layers, rows_at
from mgformer.nn.losses import info_nce


class SGL(LightGCN):
    """score(u, i) = z_u · z_i, with z of LightGCN on the whole graph."""

    deviation = None

    class Config(LightGCN.Config):
        """Options of SGL."""

        view: Literal["edges", "nodes", "walk"] = "edges"
        """What a view leaves out. edges: pairs; nodes: nodes with all their pairs; walk: different
        pairs in each layer."""
        dropped: Annotated[float, Float(0.0, 0.5)] = Field(0.1, ge=0, lt=1)
        """ρ, share of the pairs or nodes that a view leaves out."""
        contrast_weight: Annotated[NonNegativeFloat, Float(5e-3, 1.0, log=True)] = 0.1
        """λ₁, weight of the contrastive term."""
        temperature: Annotated[PositiveFloat, Float(0.1, 1.0, log=True)] = 0.2
        """τ of the contrastive term."""
        candidates: Literal["all", "batch"] = "all"
        """Nodes that each node is compared with. all: all users or items, as in the authors' code;
        batch: those of the batch, as in SELFRec, which is cheaper on large graphs."""

    config: Config

    def __init__(self, config: ModelConfig, graph: Graph, rng: np.random.Generator) -> None:
        super().__init__(config, graph, rng)
        self.thinning = Thinning(graph)
        self.on_epoch(rng)

    def on_epoch(self, rng: np.random.Generator) -> None:
        device = self.embeddings.device
        self.views = [[step.to(device) for step in self._draw(rng)] for _ in range(2)]

    def _draw(self, rng: np.random.Generator) -> list[SparseProduct]:
        """Draw a view: the adjacency of each layer, first to last."""
        by_nodes, walk = self.config.view == "nodes", self.config.view == "walk"
        draw = self.thinning.without_nodes if by_nodes else self.thinning.without_pairs
        graphs = self.config.num_layers if walk else 1
        drawn = [
            SparseProduct(draw(self.config.dropped, rng), symmetric=True) for _ in range(graphs)
        ]
        return drawn if walk else drawn * self.config.num_layers

    def loss(self, batch: Batch, generator: torch.Generator) -> Tensor:
        triple = self.triple(batch, generator)
        ranking = self.ranking_loss(triple, self.encode(triple.nodes))
        return ranking + self.config.contrast_weight * self.contrast(triple)

    def contrast(self, triple: Triple) -> Tensor:
        """Return InfoNCE of the two views for the users of a batch, plus for its items."""
        first, second = self.views
        temperature = self.config.temperature
        one = mean_of_layers(first, self.embeddings, triple.nodes)  # [q, d]
        if self.config.candidates == "batch":
            other = mean_of_layers(second, self.embeddings, triple.nodes)
            return contrast_within(triple, one, other, temperature)
        other = mean_of_layers(second, self.embeddings)  # [N, d]
        users, items = other[: self.num_users], other[self.num_users :]
        total = one.new_zeros(())
        for places, side in ((triple.users, users), (triple.items, items)):
            views = rows_at(one, places), rows_at(other, triple.nodes[places])
            total = total + info_nce(*views, temperature, candidates=side)
        return total


class Thinning:
    """Draws normalized adjacencies [N, N] of a graph without some of its pairs.

    It finds once which entries of the adjacency belong to which pair. A thinned graph is then a
    selection of entries, and nothing needs sorting again.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        by_item = np.argsort(graph.interactions.indices, kind="stable")
        # The rows of users hold the pairs in their own order, the rows of items sorted by item.
        self._pairs = np.concatenate([np.arange(len(by_item)), by_item])  # [2E]

    def without_pairs(self, share: float, rng: np.random.Generator) -> sp.csr_array:
        """Return the graph without a random `share` of its pairs."""
        return self.of_pairs(_kept(self.graph.interactions.nnz, share, rng))

    def without_nodes(self, share: float, rng: np.random.Generator) -> sp.csr_array:
        """Return the graph without the pairs of a random `share` of users and of items."""
        r = self.graph.interactions
        users, items = (_kept(count, share, rng) for count in r.shape)
        return self.of_pairs(np.repeat(users, self.graph.user_degrees) & items[r.indices])

    def of_pairs(self, keep: NDArray[np.bool_]) -> sp.csr_array:
        """Return the adjacency of the pairs of a mask [E], normalized by the degrees left."""
        pattern = pattern_of(self.graph.adjacency, keep[self._pairs])
        roots = inverse_sqrt(np.diff(pattern.indptr))
        return scaled(pattern, roots, roots)


def _kept(count: int, share: float, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Return a mask [count] with a random `share` of False, rounded to the nearest number."""
    keep = np.ones(count, dtype=bool)
    keep[rng.choice(count, round(share * count), replace=False)] = False
    return keep
