"""UltraGCN (Mao et al., CIKM 2021, arXiv:2110.15114): the limit of propagation as a loss.

There are no layers. The loss trains free embeddings towards the fixed point of infinitely many
layers. The loss of a pair (u, i), with C items j drawn from all items, is

    (w₁ + w₂ β_ui) ℓ(-s_ui) + w₋ mean_j (w₃ + w₄ β_uj) ℓ(s_uj) + λ Σ_k ω_ik ℓ(-s_uk) + (l2/2) ‖X‖²

with s_ui = x_u · x_i, ℓ = softplus, β_ui = √(d_u + 1) / (d_u √(d_i + 1)), and k the K items with
the largest ω_ik = G_ik √(g_i + 1) / (g_i √(g_k + 1)), where G = RᵀR and g = G 1. G keeps its
diagonal, so an item may be its own neighbor. These are the weights of the authors' code.

The loss of that code is a sum over the B pairs of a batch plus (γ/2) ‖X‖². Three things differ:

    The loss is a mean over pairs. All weights keep their values, except l2 = γ / B. The remaining
    factor 1 / B makes no difference to Adam.
    ‖X‖² is estimated without bias from the rows of the batch, so that a step touches no others:
    each pair counts its user E / d_u times, and one item drawn for it I times. Counting the rows
    once would regularize users by their degrees, and items hundreds of times too much.
    The default of w₋ follows the density of the data; it is a fixed number in their code.

With `draw = "batch"` all pairs of a batch share their C items. The expected loss is the same and a
step is several times faster, but its gradients are noisier, and an epoch learns less. With "pair",
validation follows that of the published method (`tools/ultragcn.py`).

Users without pairs are never in a batch and keep their starting values.

Shapes: U users, I items, N nodes (users, then items), E pairs in all, d channels; B pairs in a
batch, C items drawn for each, K neighbors of an item.
"""

from typing import Annotated, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt
from torch import Tensor, nn
from torch.nn import functional

from mgformer.data.sampling import Batch
from mgformer.device import on_host
from mgformer.graph.bipartite import Graph
from mgformer.graph.sparse import BLOCK_ENTRIES, row_numbers, top_of_product
from mgformer.models.base import EmbeddingDim, ModelConfig, TrainableModel
from mgformer.models.space import Float, Int
from mgformer.nn.embeddings import normal_table
from mgformer.ranking.scorers import DotScorer

SEEN_AMONG_DRAWN = 0.3
"""Default weight of a seen item as a drawn item, relative to its weight as a seen item. With the
authors' w₋ = 300 it is 0.31 on Yelp2018 and 0.20 on Gowalla."""


class UltraGCN(TrainableModel):
    """score(u, i) = x_u · x_i."""

    bf16: ClassVar[bool] = True
    cheap_products: int = 64
    """Scores of a matrix product that cost as much as one score of gathered rows."""

    class Config(ModelConfig):
        """Options of UltraGCN; the defaults are close to the authors' for Yelp2018."""

        dim: EmbeddingDim = 64
        """d, channels of the embeddings."""
        spread: PositiveFloat = 0.1
        """Standard deviation of the embeddings before training. With the authors' 1e-4, training
        learns little but popularity for some hundred steps, and may stop early there."""
        num_negatives: Annotated[PositiveInt, Int(200, 1500, log=True)] = 800
        """C, items drawn for each pair from all items, seen ones included."""
        draw: Literal["pair", "batch"] = "pair"
        """pair: draw C items for each pair; batch: draw C items that all pairs of a batch share,
        which is faster. On small data, training then may stop early at popularity."""
        negative_weight: Annotated[NonNegativeFloat | None, Float(1.0, 1000.0, log=True)] = None
        """w₋, weight of the mean over the drawn items. The default is 0.3 U I / E, close to the
        authors' 300 on Yelp2018 and smaller on denser data."""
        w1: NonNegativeFloat = 1e-8
        """w₁, constant part of the weight of a pair."""
        w2: NonNegativeFloat = 1.0
        """w₂, factor of β in the weight of a pair."""
        w3: NonNegativeFloat = 1e-8
        """w₃, constant part of the weight of a drawn item."""
        w4: NonNegativeFloat = 1.0
        """w₄, factor of β in the weight of a drawn item."""
        num_neighbors: PositiveInt = 10
        """K, similar items that the users of an item should also score high."""
        neighbor_weight: Annotated[NonNegativeFloat, Float(1e-4, 3.0, log=True)] = 5e-4
        """λ, weight of these similar items. The authors use 1e-7 to 2.75, depending on the data. It
        matters most on sparse data: the preset for Amazon Beauty has 1."""
        l2: Annotated[NonNegativeFloat, Float(1e-9, 1e-5, log=True)] = 1e-7
        """Weight of half the squared norm of all embeddings; the authors' γ divided by B."""

    config: Config

    def __init__(self, config: ModelConfig, graph: Graph, rng: np.random.Generator) -> None:
        super().__init__(config, graph, rng)
        options = self.config
        self.embeddings = normal_table(self.num_nodes, options.dim, rng, options.spread)  # X [N, d]
        cells, pairs = graph.num_users * graph.num_items, max(1, graph.interactions.nnz)
        given, balanced = options.negative_weight, SEEN_AMONG_DRAWN * cells / pairs
        self.negative_weight = balanced if given is None else given
        degrees = np.maximum(graph.user_degrees, 1)
        # β is the product of a factor of the user and one of the item.
        self.beta_users = _fixed(np.sqrt(degrees + 1) / degrees)  # [U]
        self.beta_items = _fixed((graph.item_degrees + 1) ** -0.5)  # [I]
        self.rarity = _fixed(graph.interactions.nnz / degrees)  # [U] E / d_u
        neighbors, omega = item_neighbors(graph, options.num_neighbors)
        self.neighbors = nn.Buffer(torch.from_numpy(neighbors), persistent=False)  # [I, K]
        self.omega = _fixed(omega)  # [I, K]

    def loss(self, batch: Batch, generator: torch.Generator) -> Tensor:
        rows = 1 if self.config.draw == "batch" else len(batch.users)
        size = (rows, self.config.num_negatives)
        negatives = torch.randint(  # [B or 1, C]
            self.num_items, size, generator=generator, device=batch.users.device
        )
        return self.loss_against(batch, negatives)

    def loss_against(self, batch: Batch, negatives: Tensor) -> Tensor:
        """Return the loss of a batch with its drawn items [B, C], or [1, C] for all pairs."""
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
        # One drawn item per pair is enough to estimate the norm of items, and far cheaper.
        some = negatives[0] if len(negatives) == 1 else negatives[:, 0]
        norm = (self.rarity[batch.users] * users.square().sum(1)).mean()
        norm = norm + self.num_items * self.rows(self.num_users + some).square().sum(1).mean()
        return total + 0.5 * config.l2 * norm

    def betas(self, users: Tensor, items: Tensor) -> Tensor:
        """Return β [B, c] of users [B] and items [B, c] or [1, c]."""
        return self.beta_users[users][:, None] * self.beta_items[items]

    def scores(self, users: Tensor, items: Tensor) -> Tensor:
        """Return the scores [B, c] of users' rows [B, d] and items [B, c] or [1, c]."""
        if len(items) == 1:
            return users @ self.rows(self.num_users + items[0]).T
        if self.num_items <= self.cheap_products * items.shape[1]:
            if not on_host(items):
                every = self.num_users + torch.arange(self.num_items, device=items.device)
                return (users @ self.rows(every).T).gather(1, items)
            drawn = torch.zeros(self.num_items, dtype=torch.bool, device=items.device)
            drawn[items.flatten()] = True
            places = (drawn.cumsum(0) - 1)[items]
            return (users @ self.rows(self.num_users + drawn.nonzero()[:, 0]).T).gather(1, places)
        return (self.rows(self.num_users + items) @ users[:, :, None]).squeeze(2)

    def rows(self, nodes: Tensor) -> Tensor:
        """Return the embeddings […, d] of nodes […]."""
        return self.lookup(self.embeddings, nodes)

    def scorer(self) -> DotScorer:
        return self.dot_scorer(self.embeddings.detach().clone())

    def tables(self) -> list[nn.Parameter]:
        return [self.embeddings]


def item_neighbors(
    graph: Graph, num_neighbors: int, *, block_entries: int = BLOCK_ENTRIES
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return the K items with the largest ω of each item [I, K], and ω [I, K], largest first.

    An item with fewer neighbors fills the other places with itself and ω = 0.
    """
    r = graph.interactions
    totals = r.T @ graph.user_degrees.astype(np.float64)  # g [I], as Σ d_u over its users
    left, right = np.sqrt(totals + 1) / np.maximum(totals, 1), 1 / np.sqrt(totals + 1)
    matrix = top_of_product(
        r.T.tocsr(),
        r,
        num_neighbors,
        weigh=lambda values, i, k: values * (left[i] * right[k]),
        diagonal=True,
        block_entries=block_entries,
    )
    counts = np.diff(matrix.indptr)
    rows = row_numbers(matrix)
    order = np.lexsort((matrix.indices, -matrix.data, rows))
    places = np.arange(len(rows)) - np.repeat(matrix.indptr[:-1], counts)
    columns = np.repeat(np.arange(len(counts))[:, None], min(num_neighbors, len(counts)), axis=1)
    values = np.zeros(columns.shape, dtype=np.float32)
    columns[rows, places], values[rows, places] = matrix.indices[order], matrix.data[order]
    return columns, values


def _fixed(values: NDArray[np.floating]) -> nn.Buffer:
    """Return a buffer of numbers that follow from the graph."""
    return nn.Buffer(torch.from_numpy(values.astype(np.float32)), persistent=False)
