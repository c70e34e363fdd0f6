"""GFormer (Li et al., SIGIR 2023, arXiv:2306.02330): edges are masked by attention and rebuilt.

A graph transformer scores the edges. Those of low score feed a linear encoder; those of high score,
the rationale, are mostly masked, and a decoder, the same transformer on a graph of rebuilt edges,
makes up for them. Two sparse views, of edges of high and of low score, add contrastive terms.

This follows the authors' code, which is what produced their numbers, where it and the paper differ:
the sampler is not trained, and ranking uses neither positions nor the decoder. In their code the
part of a node itself in its position is, by the way it is tiled, the mean of other nodes. It is so
here too (`reference_quirks`): with the node itself, training sees a map of X that ranking does not,
and X learns more slowly. Negatives are drawn anew for every step, gradients are not clipped (at a
norm of 20), and embeddings are normal, not uniform, numbers at the start. Every output of the
position layers counts in Z.

Shapes: N nodes (users, then items), d channels, H heads, A anchors, E edges; B pairs.
"""

from typing import Annotated, ClassVar, NamedTuple, cast

import numpy as np
import scipy.sparse as sp
import torch
from pydantic import Field, NonNegativeFloat, PositiveInt, model_validator
from torch import Tensor, nn

from mgformer.data.sampling import Batch, UnseenItems
from mgformer.graph.bipartite import Graph
from mgformer.graph.sparse import SparseProduct
from mgformer.models.base import ModelConfig, TrainableModel
from mgformer.models.gformer.anchors import closeness
from mgformer.models.gformer.edge_attention import EdgeAttention, EdgePattern
from mgformer.models.gformer.positions import anchor_encoding, drawn_linear, tiled_means
from mgformer.models.gformer.sampled_edges import (
    drawn_edges,
    edges_with_loops,
    normalized_by_rows,
    subgraph,
    with_loops,
    with_random_edges,
    with_rebuilt_edges,
)
from mgformer.models.space import Choice, Float, Int, Space
from mgformer.nn.losses import bpr, mean_log_sum_exp
from mgformer.nn.propagation import Propagation
from mgformer.nn.tables import drawn_table
from mgformer.ranking.scorers import DotScorer

HIGHEST_SCORE = 3.0
"""Scores of edges are clipped here; they are at most H."""
LEAST_WEIGHT = 1e-3
"""Added to the scores by which the rationale is drawn."""

Share = Annotated[float, Field(ge=0, le=1)]


class View(NamedTuple):
    """A graph to average over, and to attend along."""

    average: SparseProduct
    edges: EdgePattern

    @classmethod
    def of(cls, pattern: sp.csr_array) -> "View":
        """Return the view of some edges, with loops."""
        matrix = normalized_by_rows(with_loops(pattern))
        return cls(SparseProduct(matrix), EdgePattern(matrix))


class Graphs(NamedTuple):
    """What is drawn every few steps."""

    encoder: SparseProduct
    decoder: EdgePattern
    rationale: View
    complement: View


class Encoded(NamedTuple):
    """Embeddings of all nodes, for training."""

    z: Tensor  # [N, d]
    rationale: Tensor  # S [N, d]
    complement: Tensor  # C [N, d]


class GFormer(TrainableModel):
    """score(u, i) = z_u · z_i, with z = Σ_{l≤L} Âˡ X and loops in Â."""

    class Config(ModelConfig):
        """Options of GFormer.

        The authors add reg·‖all parameters‖² to the loss: that is train.weight_decay = 2 reg, which
        adds to gradients; theirs is reg = 1e-4, and 1e-5 on iFashion.
        """

        dim: PositiveInt = 64
        """d, channels of the embeddings; 32 in the authors' code."""
        num_layers: PositiveInt = 2
        """L, steps on the graph; 3 in the paper's run on Yelp."""
        num_heads: PositiveInt = 4
        """H of the graph transformer, among which the channels are shared out."""
        num_anchors: PositiveInt = 32
        """A, nodes drawn for every epoch by which positions are told."""
        num_position_layers: PositiveInt = 1
        """Layers that add positions, one upon the other."""
        reference_quirks: bool = True
        """Whether the part of a node itself in its position is the mean of A others, as in the
        authors' code; False: the node, as meant."""
        refresh: PositiveInt = 10
        """Steps for which the graphs that are drawn stay the same."""
        keep_share: Share = 0.9
        """Share of the edges that the encoder keeps."""
        added_share: NonNegativeFloat = 0.01
        """Random edges among those that are scored, for each edge of the graph."""
        rebuilt_share: NonNegativeFloat = 0.8
        """Random edges of the decoder's graph between ends of masked edges, for each edge."""
        pool_share: NonNegativeFloat = 0.5
        """Ends of kept edges among which the decoder's are drawn too, for each masked edge."""
        view_share: Share = 0.1
        """Share of the edges in the rationale, and in the complement."""
        view_attention: NonNegativeFloat = 0.1
        """Weight of attention in these two views."""
        uniformity_weight: NonNegativeFloat = 1.0
        """Weight of the terms that push users apart, and items apart (ssl)."""
        independence_weight: NonNegativeFloat = 1e-3
        """Weight of the term that pushes rationale and complement apart (ctra)."""
        rationale_weight: NonNegativeFloat = 1.0
        """Weight of ranking by the rationale (b2); 1e-6 in the paper's run on LastFM."""

        @model_validator(mode="after")
        def _heads_share_channels(self) -> "GFormer.Config":
            if self.dim % self.num_heads:
                raise ValueError(
                    f"dim = {self.dim} cannot be shared out among num_heads = {self.num_heads}"
                )
            return self

    space: ClassVar[Space] = {
        "dim": Choice((32, 64, 128)),
        "num_layers": Int(1, 3),
        "uniformity_weight": Float(0.1, 5.0, log=True),
        "rationale_weight": Float(1e-6, 1.0, log=True),
    }

    def __init__(self, config: ModelConfig, graph: Graph, rng: np.random.Generator) -> None:
        super().__init__()
        self.config = config = cast(GFormer.Config, config)
        self.num_users, self.num_nodes = graph.num_users, graph.num_nodes
        self.pattern = edges_with_loops(graph)
        self.average = Propagation(normalized_by_rows(self.pattern))
        self.unseen = UnseenItems(graph.interactions)
        self.embeddings = drawn_table(graph.num_nodes, config.dim, rng)  # X
        self.attention = EdgeAttention(config.dim, config.num_heads, rng)
        maps = [
            drawn_linear(config.dim, 2 * config.dim, rng)
            for _ in range(config.num_position_layers + 1)
        ]
        weights, biases = (torch.stack(parts) for parts in zip(*maps, strict=True))
        self.position_weights = nn.Parameter(weights[1:].clone())  # [layers, d, 2d]
        self.position_biases = nn.Parameter(biases[1:].clone())  # [layers, d]
        # The sampler's own map gets no gradient, so it is as it was drawn and no parameter.
        self.sampler_weight = nn.Buffer(weights[0].clone(), persistent=False)
        self.sampler_bias = nn.Buffer(biases[0].clone(), persistent=False)
        self.anchors: Tensor = nn.Buffer(torch.empty(0).long(), persistent=False)  # [A]
        self.closeness: Tensor = nn.Buffer(torch.empty(0, 0), persistent=False)  # [N, A]
        self.steps = 0  # for which the graphs have been used
        self.on_epoch(rng)

    def on_epoch(self, rng: np.random.Generator) -> None:
        count = min(self.config.num_anchors, self.num_nodes)
        self.anchors = torch.from_numpy(rng.choice(self.num_nodes, count, replace=False))
        self.closeness = closeness(self.pattern, self.anchors).to(self.embeddings.dtype)
        # Graphs are drawn anew with the next step: an epoch does not depend on the one before.
        self.graphs: Graphs | None = None

    def edge_scores(self, edges: EdgePattern) -> Tensor:
        """Return the attention that edges get [E], over all heads."""
        with torch.no_grad():
            x = self._positions(self.embeddings, self.sampler_weight, self.sampler_bias)
            return self.attention.shares(edges, x).sum(1).clamp_max(HIGHEST_SCORE)

    def drawn_graphs(self, generator: torch.Generator) -> Graphs:
        """Score the edges and draw the graphs by their scores."""
        config = self.config
        pattern = with_random_edges(self.pattern, config.added_share, generator)
        scores = self.edge_scores(EdgePattern(pattern))
        count, view_count = (
            int(share * pattern.nnz) for share in (config.keep_share, config.view_share)
        )
        kept = drawn_edges(-scores, count, generator)
        decoder = with_rebuilt_edges(
            pattern,
            kept,
            pool_share=config.pool_share,
            share=config.rebuilt_share,
            generator=generator,
        )
        rationale = drawn_edges((scores + LEAST_WEIGHT).log(), view_count, generator)
        complement = drawn_edges(-scores, view_count, generator)
        return Graphs(
            SparseProduct(normalized_by_rows(with_loops(subgraph(pattern, kept)))),
            EdgePattern(decoder),
            View.of(subgraph(pattern, rationale)),
            View.of(subgraph(pattern, complement)),
        )

    def encode(self, graphs: Graphs) -> Encoded:
        """Return the embeddings of all nodes that the loss compares."""
        layers = [cast(Tensor, self.embeddings)]
        for _ in range(self.config.num_layers):
            layers.append(graphs.encoder(layers[-1]))
        below = torch.stack(layers[:-1]).sum(0)  # averages are linear: one product for all layers
        rationale, complement = (
            self.embeddings
            + self.config.view_attention * self.attention(view.edges, self.embeddings)
            + view.average(below)
            for view in (graphs.rationale, graphs.complement)
        )
        x, z = layers[-1], below + layers[-1]
        for weight, bias in zip(self.position_weights, self.position_biases, strict=True):
            x = self._positions(x, weight, bias)
            z = z + x
        return Encoded(z + self.attention(graphs.decoder, x), rationale, complement)

    def loss(self, batch: Batch, generator: torch.Generator) -> Tensor:
        if self.graphs is None or self.steps == self.config.refresh:
            self.graphs, self.steps = self.drawn_graphs(generator), 0
        self.steps += 1
        negatives = self.unseen.draw(batch.users, 1, generator)  # [B, 1]
        return self.objective(batch, negatives, self.encode(self.graphs))

    def objective(self, batch: Batch, negatives: Tensor, encoded: Encoded) -> Tensor:
        """Return the loss of a batch with negatives [B, 1]."""
        config = self.config
        users, items = encoded.z.split([self.num_users, self.num_nodes - self.num_users])
        positive = (users[batch.users] * items[batch.items]).sum(1).mean()
        reconstruction = mean_log_sum_exp(users[batch.users], items) - positive
        uniformity = mean_log_sum_exp(users[batch.users.unique()], users) + mean_log_sum_exp(
            items[batch.items.unique()], items
        )
        of_users = encoded.rationale[batch.users]  # [B, d]
        independence = (of_users * encoded.complement[batch.users]).logsumexp(1).mean()
        # The negative is of the whole encoder, not of the rationale.
        of_items = encoded.rationale[self.num_users + batch.items]
        ranking = bpr(of_users, of_items, items[negatives])
        return (
            reconstruction
            + config.uniformity_weight * uniformity
            + config.independence_weight * independence
            + config.rationale_weight * ranking
        )

    def scorer(self) -> DotScorer:
        num_layers = self.config.num_layers
        with torch.no_grad():
            z = (num_layers + 1) * self.average.mean(self.embeddings, num_layers)
        return DotScorer(z[: self.num_users].clone(), z[self.num_users :].clone())

    def _positions(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        own = tiled_means(x, len(self.anchors)) if self.config.reference_quirks else x
        return anchor_encoding(x, self.anchors, self.closeness, weight, bias, own)
