"""The guided transformer: a regression says where to look, training learns what is seen there.

Attention helps if its weights carry information that the tokens do not have. A closed-form
item-item model, the guide, carries much of it. So every node attends to the nodes that the guide
ranks highest for it, with the squares of the guide's scores as weights, and training learns the
tokens:

    h = e + β M e + w Â e

- A user attends to the K items with the highest guide scores, without the items that the user has.
  With them, most training pairs would stand in the user's own list, but few new pairs would.
- An item attends half to the K items that the guide recommends to a history of this item alone,
  half to the K users in whose lists it scores highest.
- Â e is one hop on the graph, for data in which it helps.

A row of M sums to 1, or to less if the node lacks neighbors of one kind. The weights are fixed, so
I + β M + w Â is one sparse matrix, and a training step reads only the nodes of its batch and their
neighbors. The loss is alignment and uniformity. `guide()` returns the guide, and the score adds it
with a weight δ.

With `guide = spectral` nodes attend to the nearest nodes by SVD encoding instead, and the encodings
are additional channels of h.

Shapes: N nodes (users, then items), U users, I items, d channels, r of the encodings, K neighbors.
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

import numpy as np
import scipy.sparse as sp
import torch
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator
from torch import Tensor, nn
from torch.nn import functional

from mgformer.data.chronology import recency
from mgformer.data.sampling import Batch
from mgformer.device import HOST, on_host
from mgformer.errors import ConfigError
from mgformer.graph.bipartite import Graph
from mgformer.graph.nearest import nearest_nodes
from mgformer.graph.sparse import (
    BLOCK_ENTRIES,
    INT32_MAX,
    PaddedRows,
    SparseProduct,
    block_slices,
    csr_matmul,
    kept_entries,
    row_numbers,
    sparse_product,
    stacked,
    top_of_product,
    top_per_row,
)
from mgformer.graph.spectral import encodings_of
from mgformer.models.base import EmbeddingDim, Footprint, ModelConfig, Size, TrainableModel
from mgformer.models.guided_insides import attention_insides
from mgformer.models.insides import Inside
from mgformer.models.simple.ridge import Ridge
from mgformer.models.simple.spectral import GFCF
from mgformer.models.space import Float, Int
from mgformer.nn.embeddings import normal_table, places_of, rows_at
from mgformer.nn.losses import align_uniform
from mgformer.ranking.score import Kind
from mgformer.ranking.scorers import DotScorer, HistoryScorer
from mgformer.ranking.topk import top_k
from mgformer.world import Shards, World

GUIDES = {
    "num_predictors": ("ridge",),
    "l2": ("ridge",),
    "dropout": ("ridge",),
    "segment_weight": ("ridge",),
    "rank": ("gfcf", "spectral"),
    "encoding_scale": ("spectral",),
    "recency": ("ridge", "gfcf"),
}
"""The guides that use an option; it is refused with others."""


class Guided(TrainableModel):
    """score(u, i) = h_u · h_i, with h = e + β M e + w Â e."""

    score_kinds: ClassVar[tuple[Kind, ...]] = ("prior", "degree")
    weights: ClassVar[str | None] = (
        "those of the guide; and a pair is drawn with a chance proportional to its weight"
    )

    class Config(ModelConfig):
        """Options of the guided transformer."""

        dim: EmbeddingDim = 128
        """d, channels of the tokens."""
        guide: Literal["ridge", "gfcf", "spectral"] = "ridge"
        """What says where to look. ridge: item-item regression; gfcf: a low-pass graph filter;
        spectral: the nearest nodes by SVD encoding."""
        num_neighbors: Annotated[PositiveInt, Int(8, 64, log=True)] = 32
        """K, nodes that a node attends to. An item attends to K items and K users."""
        attention_weight: Annotated[NonNegativeFloat, Float(0.2, 2.0, log=True)] = 1.0
        """β, weight of attention."""
        graph_weight: Annotated[NonNegativeFloat, Float(0.0, 1.0)] = 0.0
        """w, weight of one hop on the graph."""
        recency: NonNegativeFloat | None = None
        """How fast the items of a user age when the guide says where the user looks, 1 by default.
        It is used where the score uses time."""
        uniformity_weight: Annotated[NonNegativeFloat, Float(0.1, 10.0, log=True)] = 0.5
        """Weight of uniformity in the loss."""
        uniformity_t: float = Field(2.0, gt=0, le=20)
        """t in exp(−t ‖·‖²)."""
        num_predictors: PositiveInt | None = None
        """Items that predict an item, with guide = ridge; by default as many as in `ridge`."""
        l2: Annotated[PositiveFloat | None, Float(10.0, 1e3, log=True, when={"guide": "ridge"})] = (
            None
        )
        """Penalty on the weight of every predictor, with guide = ridge."""
        dropout: NonNegativeFloat | None = None
        """Penalty per user of the predictor, with guide = ridge."""
        segment_weight: NonNegativeFloat | None = None
        """How much a segment of four successive items counts in the guide beside a whole history,
        with guide = ridge. It is used where the score uses time; 0 by default."""
        rank: PositiveInt | None = None
        """Number of singular vectors: 256 with guide = gfcf, 128 with guide = spectral."""
        sharpness: PositiveFloat | None = None
        """How much closer neighbors outweigh others. Attention weights are proportional to
        (guide score)^sharpness, 2 by default; with guide = spectral to exp(sharpness · cosine of
        the encodings), 10 by default."""
        encoding_scale: PositiveFloat | None = None
        """Factor of the encodings in h, with guide = spectral; 0.2 by default."""

        @model_validator(mode="after")
        def _options_have_a_use(self) -> "Guided.Config":
            for name, guides in GUIDES.items():
                if getattr(self, name) is not None and self.guide not in guides:
                    raise ValueError(
                        f"{name} has no use with guide = {self.guide}; leave it out, or set guide"
                        f" to {' or '.join(guides)}"
                    )
            return self

        def given(self, *names: str) -> dict[str, float]:
            """Return the options that are given, of some that may be left out."""
            values = {name: getattr(self, name) for name in names}
            return {name: value for name, value in values.items() if value is not None}

    config: Config

    def __init__(self, config: ModelConfig, graph: Graph, rng: np.random.Generator) -> None:
        super().__init__(config, graph, rng)
        options = self.config
        self.regression: HistoryScorer | None = None
        encodings = None
        if options.guide == "spectral":
            encodings = encodings_of(graph, options.rank or 128, rng, normalized=True)
            encodings = functional.normalize(encodings)
            attention = spectral_attention(
                encodings, options.num_neighbors, options.sharpness or 10.0
            )
        else:
            self.regression = _guide(options, graph, rng)
            attention = guided_attention(
                self.regression,
                graph,
                options.num_neighbors,
                options.sharpness or 2.0,
                1.0 if options.recency is None else options.recency,
            )
        attention.data *= np.float32(options.attention_weight)
        matrix = with_ones(attention)  # I + β M [N, N]
        del attention
        self.lists_alone: sp.csr_array | None = None  # I + β M, if there is a hop too
        self.adjacency: sp.csr_array | None = None
        if options.graph_weight:
            self.lists_alone, self.adjacency = matrix, graph.adjacency
            matrix = sp.csr_array(matrix + options.graph_weight * self.adjacency, dtype=np.float32)
        self.matrix = matrix  # I + β M + w Â [N, N]
        self.hop: SparseProduct | None = None  # Â on a device, if it is used
        self.tokens = normal_table(self.num_nodes, options.dim, rng)  # e [N, d]
        fixed = torch.zeros(self.num_nodes, 0, device=HOST)
        if encodings is not None:
            scale = options.encoding_scale or 0.2
            fixed = csr_matmul(self.matrix, scale * encodings)
        self.fixed = nn.Buffer(fixed, persistent=False)  # channels that are not trained [N, r]

    @classmethod
    def footprint(cls, config: ModelConfig, size: Size) -> Footprint:
        assert isinstance(config, cls.Config)
        table = 4 * size.num_nodes * config.dim
        users, items = (min(config.num_neighbors, n) for n in (size.num_users, size.num_items))
        lists = size.num_users * items + size.num_items * (users + items)
        matrix = 8 * (lists + size.num_nodes)
        if config.guide != "ridge":
            return Footprint(preparing=2 * matrix, held=matrix, table=table)
        options = config.given("num_predictors", "segment_weight")
        guide = Ridge.footprint(Ridge.Config(**options), size)
        # The attention is there while the identity is added to it, block by block.
        block = 24 * min(BLOCK_ENTRIES, items * size.num_pairs)
        preparing = max(guide.preparing, guide.held + 2 * matrix + block)
        return Footprint(preparing=preparing, held=guide.held + matrix, table=table)

    def fix_sizes(self) -> None:
        if self.shards is not None:
            self.lists = PaddedRows(self.matrix)
            return
        # Rows of a hop on the graph may be long; those of the lists are not.
        self.lists = PaddedRows(self.matrix if self.lists_alone is None else self.lists_alone)
        if self.adjacency is not None:
            self.hop = SparseProduct(self.adjacency)

    def outputs(self, nodes: Tensor) -> Tensor:
        """Return h [q, d + r] of distinct nodes."""
        tokens: Tensor = self.tokens
        if not on_host(nodes):
            h = self.lists(tokens, nodes, sparse_gradient=self.sparse_gradients and not self.hop)
            if self.hop is not None:
                h = h + self.config.graph_weight * self.hop.rows(tokens, nodes)
            return self._with_fixed(h, nodes)
        rows = self.matrix[nodes.numpy()]
        if self.sparse_gradients:
            columns, places = np.unique(rows.indices, return_inverse=True)
            parts = (rows.data, places.astype(np.int32), rows.indptr)
            rows = sp.csr_array(parts, shape=(len(nodes), len(columns)))
            wanted = torch.from_numpy(columns).long()
            tokens = functional.embedding(wanted, self.tokens, sparse=True)
        return self._with_fixed(sparse_product(rows, tokens), nodes)

    def _with_fixed(self, h: Tensor, nodes: Tensor | slice = slice(None)) -> Tensor:
        """Return rows with their fixed channels beside them, without a copy if there are none."""
        return torch.cat([h, self.fixed[nodes]], dim=1) if self.fixed.shape[1] else h

    def loss(self, batch: Batch, generator: torch.Generator) -> Tensor:
        config, shares = self.config, self.shares(batch)
        if shares is not None:  # every process adds what its own nodes are to the nodes of a batch
            sides = batch.users, batch.items + self.num_users
            h_users, h_items = (shares[0].share(self.outputs(side)) for side in sides)
        else:
            nodes, (users, items) = places_of(batch.users, batch.items + self.num_users)
            h = self.outputs(nodes)
            h_users, h_items = rows_at(h, users), rows_at(h, items)
        return align_uniform(
            h_users,
            h_items,
            config.uniformity_weight,
            t=config.uniformity_t,
            sides="mean",
            shares=shares,
        )

    def shard(self, world: World) -> None:
        if self.fixed.shape[1]:
            raise ConfigError(
                "guided with guide = spectral does not train on several processes; set"
                " model.guide=ridge, or start it without torchrun"
            )
        shards = self.keep_own(world, "tokens")
        # Columns of own nodes: the lists in which they stand.
        self.matrix = sp.csr_array(self.matrix[:, shards.own.numpy()])
        self.lists_alone = self.adjacency = None

    def scorer(self) -> DotScorer:
        with torch.no_grad():
            if self.shards is not None:
                return self.dot_scorer(self._own_outputs(self.shards))
            if on_host(self.tokens):
                return self.dot_scorer(self._with_fixed(csr_matmul(self.matrix, self.tokens)))
            h = self.lists(self.tokens)
            if self.hop is not None:
                h = h + self.config.graph_weight * self.hop(self.tokens)
            return self.dot_scorer(self._with_fixed(h))

    def _own_outputs(self, shards: Shards) -> Tensor:
        """Return h [n, d] of own nodes: every process adds what its own nodes are to them."""
        blocks = self.tokens.new_zeros(shards.world.size, shards.longest, self.config.dim)
        for rank, nodes in enumerate(shards.nodes_of):
            blocks[rank, : len(nodes)] = csr_matmul(self.matrix[nodes], self.tokens)
        return shards.world.exchanged(blocks).sum(0)[: len(shards.own)]

    def guide(self) -> HistoryScorer | None:
        return self.regression

    def tables(self) -> list[nn.Parameter]:
        return [self.tokens]

    def insides(self, graph: Graph, before: Mapping[str, Tensor] | None) -> list[Inside]:
        return [*attention_insides(self.attention, graph)] if self.config.attention_weight else []

    @property
    def attention(self) -> sp.csr_array:
        """M [N, N], worked out from I + β M: a large graph has no room for both; β is not 0."""
        matrix = self.matrix if self.lists_alone is None else self.lists_alone
        own = kept_entries(matrix, row_numbers(matrix) != matrix.indices)
        own.data /= np.float32(self.config.attention_weight)
        return own


def _guide(options: Guided.Config, graph: Graph, rng: np.random.Generator) -> HistoryScorer:
    """Return the closed-form model that guides."""
    if options.guide == "gfcf":
        return GFCF(GFCF.Config(**options.given("rank")), graph, rng).scorer()
    given = options.given("num_predictors", "l2", "dropout", "segment_weight")
    return Ridge(Ridge.Config(**given), graph, rng).scorer()


def guided_attention(
    guide: HistoryScorer, graph: Graph, count: int, sharpness: float, kappa: float = 0.0
) -> sp.csr_array:
    """Return M [N, N]: what users and items attend to, `count` nodes of a kind each.

    Items of a user age by κ, if the graph knows their positions.
    """
    alone = sp.eye_array(graph.num_items, dtype=np.float32, format="csr")
    users = guide_lists(guide, aged_histories(graph, kappa), count)
    items = guide_lists(guide, sp.csr_array(alone), count)
    to_users = top_per_row(sp.csr_array(users.T.tocsr()), count)
    of_users = attention_weights(users, sharpness)
    del users
    of_items = [0.5 * attention_weights(part, sharpness) for part in (to_users, items)]
    del to_users, items
    return in_one_matrix(of_users, *of_items)


def in_one_matrix(
    of_users: sp.csr_array, to_users: sp.csr_array, to_items: sp.csr_array
) -> sp.csr_array:
    """Return [[0, of_users], [to_users, to_items]] with sorted columns, and entries in place.

    `scipy.sparse.block_array` takes three times the memory of its result.
    """
    num_users, num_items = of_users.shape
    entries = of_users.nnz + to_users.nnz + to_items.nnz
    num_nodes = num_users + num_items
    kind = np.int32 if max(entries, num_nodes) <= INT32_MAX else np.int64
    counts = np.diff(to_users.indptr) + np.diff(to_items.indptr)
    starts = np.empty(num_nodes + 1, dtype=kind)
    starts[: num_users + 1] = of_users.indptr
    np.cumsum(counts, dtype=kind, out=starts[num_users + 1 :])
    starts[num_users + 1 :] += kind(of_users.nnz)
    columns, values = np.empty(entries, dtype=kind), np.empty(entries, dtype=np.float32)
    columns[: of_users.nnz] = of_users.indices
    columns[: of_users.nnz] += kind(num_users)
    values[: of_users.nnz] = of_users.data
    for rows in block_slices(num_items, max(1, int(counts.max(initial=1)))):
        first, last = starts[num_users + rows.start], starts[num_users + rows.stop]
        both = sp.hstack([to_users[rows], to_items[rows]], format="csr")
        columns[first:last], values[first:last] = both.indices, both.data
    return sp.csr_array((values, columns, starts), shape=(num_nodes, num_nodes))


def with_ones(matrix: sp.csr_array) -> sp.csr_array:
    """Return I + matrix in float32, block by block; the columns of the matrix are sorted."""
    blocks, width = list[sp.csr_array](), max(1, matrix.nnz // max(1, matrix.shape[0]))
    for rows in block_slices(matrix.shape[0], width):
        size = rows.stop - rows.start
        itself = sp.eye_array(size, matrix.shape[1], k=rows.start, dtype=np.float32, format="csr")
        blocks.append(sp.csr_array(itself + matrix[rows], dtype=np.float32))
    return stacked(blocks, matrix.shape[1])


def aged_histories(graph: Graph, kappa: float) -> sp.csr_array:
    """Return R [U, I], in which an item at position p counts exp(−κ (1 − p)); R without order."""
    r = graph.interactions
    if graph.positions is None or not kappa:
        return r
    return sp.csr_array((recency(graph.positions, kappa), r.indices, r.indptr), shape=r.shape)


def guide_lists(guide: HistoryScorer, histories: sp.csr_array, count: int) -> sp.csr_array:
    """Return the items with the highest positive guide scores for histories [n, I], without these.

    With sparse weights the cost grows with the entries of the histories. Other guides score all
    items for every history.
    """
    if isinstance(guide.weights, sp.csr_array):
        return top_of_product(
            histories,
            guide.weights,
            count,
            diagonal=True,
            left_out=sp.csr_array(histories.sign()),  # aged items are left out whole
            name="guide lists",
        )
    scorer = guide.fold_in(histories)
    found = top_k(scorer, np.arange(scorer.num_users), count, seen=histories)
    rows, places = np.nonzero(found.scores > 0)
    parts = (found.scores[rows, places], (rows, found.items[rows, places]))
    return sp.csr_array(parts, shape=histories.shape)


def attention_weights(scores: sp.csr_array, sharpness: float) -> sp.csr_array:
    """Return softmax(sharpness · log score) of each row of positive scores; empty rows stay empty.

    This is score^sharpness, divided by the sum of the row.
    """
    counts = np.diff(scores.indptr)
    peaks = scores.max(axis=1).toarray().ravel()
    weights = (scores.data / np.repeat(peaks, counts)) ** np.float32(sharpness)
    powers = sp.csr_array((weights, scores.indices, scores.indptr), shape=scores.shape)
    powers.data /= np.repeat(powers.sum(axis=1), counts)
    return powers


def spectral_attention(encodings: Tensor, count: int, sharpness: float) -> sp.csr_array:
    """Return M [N, N]: softmax over the nearest nodes by cosine of their unit encodings."""
    nodes, cosines = nearest_nodes(encodings, count)
    # Nodes without an encoding have no neighbors; missing neighbors get weight 0.
    far = (encodings.square().sum(1) == 0)[:, None] | ~cosines.isfinite()
    weights = (sharpness * cosines.masked_fill(far, 0)).softmax(1) * ~far
    starts = np.arange(0, nodes.numel() + 1, nodes.shape[1], dtype=np.int32)
    parts = (weights.flatten().numpy(), nodes.flatten().numpy().astype(np.int32), starts)
    return sp.csr_array(parts, shape=(len(nodes), len(nodes)))
