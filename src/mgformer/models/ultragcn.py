"""UltraGCN (Mao et al., CIKM 2021, arXiv:2110.15114): the limit of propagation as a loss.

Instead of passing messages, free embeddings are trained towards what infinitely many layers would
leave unchanged. The loss of a pair (u, i), with C items j drawn from all items, is

    (w₁ + w₂ β_ui) ℓ(-s_ui) + w₋ mean_j (w₃ + w₄ β_uj) ℓ(s_uj) + λ Σ_k ω_ik ℓ(-s_uk) + (l2/2) ‖X‖²

with s_ui = x_u · x_i, ℓ = softplus, β_ui = √(d_u + 1) / (d_u √(d_i + 1)), and k the K items with
the largest ω_ik = G_ik √(g_i + 1) / (g_i √(g_k + 1)), where G = RᵀR with its diagonal, so that i
may be among its own neighbours, and g = G 1. These are the weights of the authors' code.

Two things differ from that code, whose loss is a sum over the B pairs of a batch plus (γ/2) ‖X‖²:

    The loss is a mean over pairs, all weights keeping their values but for l2 = γ / B. Adam does
    not see the factor 1 / B that is left.
    ‖X‖² is estimated without bias from the rows of the batch, so that a step touches no others:
    a pair counts its user E / d_u times, and the first item drawn for it I times. Plain rows of
    the batch would hold back users by their degrees, and items hundreds of times as much.

Users without pairs are never in a batch, and stay as drawn. The default of w₋, a fixed number in
that code, follows the density of the data.

Shapes: U users, I items, N nodes (users, then items), E pairs in all, d channels; B pairs in a
batch, C items drawn for each, K neighbours of an item.
"""

from typing import ClassVar, cast

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt
from torch import Tensor, nn
from torch.nn import functional

from mgformer.data.sampling import Batch
from mgformer.graph.bipartite import Graph
from mgformer.graph.sparse import product_blocks, top_per_row
from mgformer.models.base import ModelConfig, TrainableModel
from mgformer.models.space import Choice, Float, Int, Space
from mgformer.nn.tables import drawn_table
from mgformer.ranking.scorers import DotScorer

SEEN_AMONG_DRAWN = 0.3
"""What a seen item weighs as one of those drawn, over what it weighs as seen, by default: the
authors' w₋ = 300 makes it 0.31 on Yelp2018 and 0.20 on Gowalla."""
CHEAP_PRODUCTS = 64
"""Scores of a matrix product that cost no more than one score from rows gathered for it."""


class UltraGCN(TrainableModel):
    """score(u, i) = x_u · x_i."""

    class Config(ModelConfig):
        """Options of UltraGCN; defaults follow the authors' for Yelp2018."""

        dim: PositiveInt = 64
        """d, channels of the embeddings."""
        spread: PositiveFloat = 0.1
        """Deviation of the embeddings before training. From the authors' 1e-4 they take a single
        direction, popularity, for some hundred steps, at which patience may end."""
        num_negatives: PositiveInt = 800
        """C, items drawn for every pair, the user's own among them."""
        negative_weight: NonNegativeFloat | None = None
        """w₋, weight of the mean over the items drawn; 0.3 U I / E if not given, which is near the
        authors' 300 on Yelp2018 and leaves seen items something to win on denser data."""
        w1: NonNegativeFloat = 1e-8
        """w₁, what every pair weighs."""
        w2: NonNegativeFloat = 1.0
        """w₂, of β in the weight of a pair."""
        w3: NonNegativeFloat = 1e-8
        """w₃, what every item drawn weighs."""
        w4: NonNegativeFloat = 1.0
        """w₄, of β in the weight of an item drawn."""
        num_neighbors: PositiveInt = 10
        """K, items near to an item that its users are to like as well."""
        neighbor_weight: NonNegativeFloat = 5e-4
        """λ, weight of those items."""
        l2: NonNegativeFloat = 1e-7
        """Weight of half the squared norm of all embeddings; the authors' γ over their B."""

    space: ClassVar[Space] = {
        "dim": Choice((32, 64, 128)),
        "num_negatives": Int(200, 1500, log=True),
        "negative_weight": Float(1.0, 1000.0, log=True),
        "neighbor_weight": Float(1e-4, 3.0, log=True),
        "l2": Float(1e-9, 1e-5, log=True),
    }

    def __init__(self, config: ModelConfig, graph: Graph, rng: np.random.Generator) -> None:
        super().__init__()
        self.config = config = cast(UltraGCN.Config, config)
        self.num_users, self.num_items = graph.num_users, graph.num_items
        self.embeddings = drawn_table(graph.num_nodes, config.dim, rng, config.spread)  # X [N, d]
        cells, pairs = graph.num_users * graph.num_items, max(1, graph.interactions.nnz)
        balanced = SEEN_AMONG_DRAWN * cells / pairs
        given = config.negative_weight
        self.negative_weight = balanced if given is None else given
        degrees = np.maximum(graph.user_degrees, 1)
        of_users, of_items = np.sqrt(degrees + 1) / degrees, (graph.item_degrees + 1) ** -0.5
        self.beta_users = _fixed(of_users)  # [U], and β is the product of a user's and an item's
        self.beta_items = _fixed(of_items)  # [I]
        self.rarity = _fixed(graph.interactions.nnz / degrees)  # [U] E / d_u
        neighbors, omega = item_neighbors(graph, config.num_neighbors)
        self.neighbors = nn.Buffer(torch.from_numpy(neighbors), persistent=False)  # [I, K]
        self.omega = _fixed(omega)  # [I, K]

    def loss(self, batch: Batch, generator: torch.Generator) -> Tensor:
        size = (len(batch.users), self.config.num_negatives)
        negatives = torch.randint(self.num_items, size, generator=generator)  # [B, C]
        return self.loss_against(batch, negatives)

    def loss_against(self, batch: Batch, negatives: Tensor) -> Tensor:
        """Return the loss of a batch with the items drawn for it [B, C]."""
        config = self.config
        users, near = self.rows(batch.users), self.neighbors[batch.items]  # [B, d], [B, K]
        seen = self.scores(users, batch.items[:, None])  # [B, 1]
        unseen = self.scores(users, negatives)  # [B, C]
        of_seen = config.w1 + config.w2 * self.betas(batch.users, batch.items[:, None])
        of_unseen = config.w3 + config.w4 * self.betas(batch.users, negatives)
        total = (of_seen * functional.softplus(-seen)).mean()
        total = total + self.negative_weight * (of_unseen * functional.softplus(unseen)).mean()
        close = self.omega[batch.items] * functional.softplus(-self.scores(users, near))  # [B, K]
        total = total + config.neighbor_weight * close.sum(1).mean()
        # For the items' norm one item of those drawn is enough, and far cheaper than all.
        others = self.rows(self.num_users + negatives[:, 0])
        norms = self.rarity[batch.users] * users.square().sum(1)
        norms = norms + self.num_items * others.square().sum(1)
        return total + 0.5 * config.l2 * norms.mean()

    def betas(self, users: Tensor, items: Tensor) -> Tensor:
        """Return β [B, c] of users [B] and items [B, c]."""
        return self.beta_users[users][:, None] * self.beta_items[items]

    def scores(self, users: Tensor, items: Tensor) -> Tensor:
        """Return the scores [B, c] of users' rows [B, d] and items [B, c]."""
        if self.num_items <= CHEAP_PRODUCTS * items.shape[1]:
            drawn = torch.zeros(self.num_items, dtype=torch.bool)
            drawn[items.flatten()] = True
            places = (drawn.cumsum(0) - 1)[items]
            return (users @ self.rows(self.num_users + drawn.nonzero()[:, 0]).T).gather(1, places)
        return (self.rows(self.num_users + items) @ users[:, :, None]).squeeze(2)

    def rows(self, nodes: Tensor) -> Tensor:
        """Return the embeddings […, d] of nodes […]."""
        return functional.embedding(nodes, self.embeddings, sparse=self.sparse_gradients)

    def scorer(self) -> DotScorer:
        rows = self.embeddings.detach().clone()
        return DotScorer(rows[: self.num_users], rows[self.num_users :])

    def tables(self) -> list[nn.Parameter]:
        return [self.embeddings]


def item_neighbors(
    graph: Graph, num_neighbors: int
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return the K items with the largest ω of each item [I, K], and ω [I, K], largest first.

    An item with fewer neighbours is its own neighbour in the places left, with ω = 0.
    """
    r = graph.interactions
    totals = r.T @ graph.user_degrees.astype(np.float64)  # g [I], as Σ d_u over its users
    left, right = np.sqrt(totals + 1) / np.maximum(totals, 1), 1 / np.sqrt(totals + 1)
    kept = []
    for rows, block in product_blocks(r.T.tocsr(), r, "item neighbours"):
        sources = np.repeat(np.arange(rows.start, rows.stop), np.diff(block.indptr))
        block.data *= left[sources] * right[block.indices]
        kept.append(top_per_row(block, num_neighbors))
    return _padded(sp.csr_array(sp.vstack(kept, format="csr")), num_neighbors)


def _padded(matrix: sp.csr_array, width: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return columns and values [I, K] of a matrix [I, I] of at most K entries in a row."""
    counts = np.diff(matrix.indptr)
    rows = np.repeat(np.arange(len(counts)), counts)
    order = np.lexsort((matrix.indices, -matrix.data, rows))
    places = np.arange(len(rows)) - np.repeat(matrix.indptr[:-1], counts)
    columns = np.repeat(np.arange(len(counts))[:, None], min(width, len(counts)), axis=1)
    values = np.zeros(columns.shape, dtype=np.float32)
    columns[rows, places], values[rows, places] = matrix.indices[order], matrix.data[order]
    return columns, values


def _fixed(values: NDArray[np.floating]) -> nn.Buffer:
    """Return numbers that follow from the graph."""
    return nn.Buffer(torch.from_numpy(values.astype(np.float32)), persistent=False)
