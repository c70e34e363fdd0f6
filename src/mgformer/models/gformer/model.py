"""GFormer (Li et al., SIGIR 2023, arXiv:2306.02330): masks edges by attention and rebuilds them.

A graph transformer scores the edges. Edges with low scores feed a linear encoder. Most edges with
high scores, the rationale, are masked. A decoder, the same transformer on a graph of rebuilt edges,
replaces them. Two sparse views, with edges of high and of low score, add contrastive terms.

Where paper and code of the authors differ, this follows the code, which produced their numbers. The
sampler is not trained, and ranking uses neither positions nor the decoder. Their code tiles a
tensor the wrong way, so the term of the node itself in its position is a mean of other nodes. By
default it is so here too (`reference_quirks`): with the node itself, training sees a map of X that
ranking does not use, and X learns more slowly.

Other differences from that code: every step draws new negatives, gradients are not clipped
(at a norm of 20), embeddings start as normal instead of uniform numbers, and every output of the
position layers counts in Z.

Shapes: N nodes (users, then items), d channels, H heads, A anchors, E edges; B pairs.
"""

from typing import Annotated, NamedTuple

import numpy as np
import torch
from pydantic import Field, NonNegativeFloat, PositiveInt, model_validator
from torch import Tensor, nn

from mgformer.data.sampling import Batch, UnseenItems
from mgformer.device import HOST, first_of_each, on_host
from mgformer.graph.bipartite import Graph
from mgformer.graph.sparse import SparseProduct, pattern_of
from mgformer.models.base import EmbeddingDim, ModelConfig, TrainableModel, heads_must_divide
from mgformer.models.gformer import sampled_edges as sampled
from mgformer.models.gformer.edge_attention import EdgeAttention, EdgePattern
from mgformer.models.gformer.positions import anchor_encoding, closeness, drawn_linear, tiled_means
from mgformer.models.space import Float, Int
from mgformer.nn.embeddings import mean_of_layers, normal_table, rows_at
from mgformer.nn.losses import bpr, mean_log_sum_exp
from mgformer.ranking.scorers import DotScorer

HIGHEST_SCORE = 3.0
"""Upper bound on the score of an edge, which is at most H."""
LEAST_WEIGHT = 1e-3
"""Term added to the scores before the rationale is drawn by them."""

Share = Annotated[float, Field(ge=0, le=1)]


class View(NamedTuple):
    """A sparse graph for averages and for attention."""

    average: SparseProduct
    edges: EdgePattern


class Graphs(NamedTuple):
    """The random graphs, which are drawn again every few steps."""

    encoder: SparseProduct
    decoder: EdgePattern
    rationale: View
    complement: View


class GFormer(TrainableModel):
    """score(u, i) = z_u · z_i, with z = Σ_{l≤L} Âˡ X and loops in Â."""

    class Config(ModelConfig):
        """Options of GFormer.

        The authors add reg·‖all parameters‖² to the loss, with reg = 1e-4 (1e-5 on iFashion). Set
        train.weight_decay = 2 reg for the same gradients.
        """

        dim: EmbeddingDim = 64
        """d, channels of the embeddings; 32 in the authors' code."""
        num_layers: Annotated[PositiveInt, Int(1, 3)] = 2
        """L, layers of propagation; 3 in the paper's run on Yelp."""
        num_heads: PositiveInt = 4
        """H, heads of the graph transformer; they split the channels evenly."""
        num_anchors: PositiveInt = 32
        """A, anchor nodes drawn for every epoch; positions are distances to them."""
        num_position_layers: PositiveInt = 1
        """Number of layers that add positions."""
        reference_quirks: bool = True
        """Whether the term of a node itself in its position is the mean of A other nodes, as in the
        authors' code. With false it is the node itself, as the paper intends."""
        refresh: PositiveInt = 10
        """Number of steps before the random graphs are drawn again."""
        keep_share: Share = 0.9
        """Share of the edges that the encoder uses."""
        added_share: NonNegativeFloat = 0.01
        """Random edges added before scoring, per edge of the graph."""
        rebuilt_share: NonNegativeFloat = 0.8
        """Random edges between ends of masked edges in the decoder's graph, per edge."""
        pool_share: NonNegativeFloat = 0.5
        """Kept edges whose ends also serve the decoder's random edges, per masked edge."""
        view_share: Share = 0.1
        """Share of the edges in each of the two views, rationale and complement."""
        view_attention: NonNegativeFloat = 0.1
        """Weight of attention in the two views."""
        uniformity_weight: Annotated[NonNegativeFloat, Float(0.1, 5.0, log=True)] = 1.0
        """Weight of the terms that push users apart and items apart; `ssl` in the authors' code."""
        independence_weight: NonNegativeFloat = 1e-3
        """Weight of the term that pushes the two views apart; `ctra` in the authors' code."""
        rationale_weight: Annotated[NonNegativeFloat, Float(1e-6, 1.0, log=True)] = 1.0
        """Weight of ranking by the rationale; `b2` in the authors' code, 1e-6 on LastFM."""

        @model_validator(mode="after")
        def _heads_divide_channels(self) -> "GFormer.Config":
            heads_must_divide("dim", self.dim, self.num_heads)
            return self

    config: Config

    def __init__(self, config: ModelConfig, graph: Graph, rng: np.random.Generator) -> None:
        super().__init__(config, graph, rng)
        dim, num_layers = self.config.dim, self.config.num_position_layers
        self.pattern = sampled.edges_with_loops(graph)
        self.average = SparseProduct(sampled.normalized_by_rows(self.pattern), symmetric=True)
        self.unseen = UnseenItems(graph.interactions)
        self.embeddings = normal_table(graph.num_nodes, dim, rng)  # X
        self.attention = EdgeAttention(dim, self.config.num_heads, rng)
        maps = [drawn_linear(dim, 2 * dim, rng) for _ in range(num_layers + 1)]
        weights, biases = (torch.stack(parts) for parts in zip(*maps, strict=True))
        self.position_weights = nn.Parameter(weights[1:].clone())  # [layers, d, 2d]
        self.position_biases = nn.Parameter(biases[1:].clone())  # [layers, d]
        # The map of the sampler gets no gradient. It is not a parameter and keeps its first values.
        self.sampler_weight = nn.Buffer(weights[0].clone(), persistent=False)
        self.sampler_bias = nn.Buffer(biases[0].clone(), persistent=False)
        self.anchors: Tensor = nn.Buffer(
            torch.empty(0, device=HOST).long(), persistent=False
        )  # [A]
        self.closeness: Tensor = nn.Buffer(
            torch.empty(0, 0, device=HOST), persistent=False
        )  # [N, A]
        self.steps = 0  # since the graphs were drawn
        self.on_epoch(rng)

    def on_epoch(self, rng: np.random.Generator) -> None:
        count = min(self.config.num_anchors, self.num_nodes)
        anchors = torch.from_numpy(rng.choice(self.num_nodes, count, replace=False))
        self.closeness = closeness(self.pattern, anchors).to(self.embeddings)
        self.anchors = anchors.to(self.embeddings.device)
        # The next step draws the graphs again: an epoch does not depend on the one before.
        self.graphs: Graphs | None = None

    def edge_scores(self, edges: EdgePattern) -> Tensor:
        """Return the attention on each edge [E], summed over heads."""
        with torch.no_grad():
            x = self._positions(self.embeddings, self.sampler_weight, self.sampler_bias)
            return self.attention.shares(edges, x).sum(1).clamp_max(HIGHEST_SCORE)

    def drawn_graphs(self, generator: torch.Generator) -> Graphs:
        """Score the edges and draw the graphs by the scores.

        They are drawn in the memory of the processor, wherever the model trains.
        """
        device = self.embeddings.device
        if generator.device.type != "cpu":
            seed = torch.randint(2**62, (1,), generator=generator, device=device)
            generator = torch.Generator("cpu").manual_seed(int(seed))
        config = self.config
        pattern = sampled.with_random_edges(self.pattern, config.added_share, generator)
        scores = self.edge_scores(EdgePattern(pattern).to(device)).cpu()
        kept = sampled.drawn_edges(-scores, int(config.keep_share * pattern.nnz), generator)
        decoder = sampled.with_rebuilt_edges(
            pattern, kept, config.pool_share, config.rebuilt_share, generator
        )
        view_count = int(config.view_share * pattern.nnz)
        rationale = sampled.drawn_edges((scores + LEAST_WEIGHT).log(), view_count, generator)
        complement = sampled.drawn_edges(-scores, view_count, generator)
        encoder, *views = (
            sampled.normalized_by_rows(sampled.with_loops(pattern_of(pattern, mask.numpy())))
            for mask in (kept, rationale, complement)
        )
        return Graphs(
            SparseProduct(encoder).to(device),
            EdgePattern(decoder).to(device),
            *(View(SparseProduct(view).to(device), EdgePattern(view).to(device)) for view in views),
        )

    def encode(self, graphs: Graphs) -> tuple[Tensor, Tensor, Tensor]:
        """Return z of all nodes for the loss, and their rationale and complement, [N, d] each."""
        layers: list[Tensor] = [self.embeddings]
        for _ in range(self.config.num_layers):
            layers.append(graphs.encoder(layers[-1]))
        below = torch.stack(layers[:-1]).sum(0)  # averages are linear: one product serves all
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
        return z + self.attention(graphs.decoder, x), rationale, complement

    def loss(self, batch: Batch, generator: torch.Generator) -> Tensor:
        if self.graphs is None or self.steps == self.config.refresh:
            self.graphs, self.steps = self.drawn_graphs(generator), 0
        self.steps += 1
        negatives = self.unseen.draw(batch.users, 1, generator)  # [B, 1]
        return self.objective(batch, negatives, *self.encode(self.graphs))

    def objective(
        self, batch: Batch, negatives: Tensor, z: Tensor, rationale: Tensor, complement: Tensor
    ) -> Tensor:
        """Return the loss of a batch with negatives [B, 1]."""
        config = self.config
        users, items = z.split([self.num_users, self.num_items])
        positive = (rows_at(users, batch.users) * rows_at(items, batch.items)).sum(1).mean()
        reconstruction = mean_log_sum_exp(rows_at(users, batch.users), items) - positive
        uniformity = _uniformity(users, batch.users) + _uniformity(items, batch.items)
        of_users = rows_at(rationale, batch.users)  # [B, d]
        independence = (of_users * rows_at(complement, batch.users)).logsumexp(1).mean()
        # The negative comes from the whole encoder, not from the rationale.
        of_items = rationale[self.num_users + batch.items]
        ranking = bpr(of_users, of_items, rows_at(items, negatives))
        return (
            reconstruction
            + config.uniformity_weight * uniformity
            + config.independence_weight * independence
            + config.rationale_weight * ranking
        )

    def scorer(self) -> DotScorer:
        num_layers = self.config.num_layers
        with torch.no_grad():
            z = (num_layers + 1) * mean_of_layers([self.average] * num_layers, self.embeddings)
        return self.dot_scorer(z)

    def _positions(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        own = tiled_means(x, len(self.anchors)) if self.config.reference_quirks else x
        return anchor_encoding(x, own, self.anchors, self.closeness, weight, bias)


def _uniformity(side: Tensor, places: Tensor) -> Tensor:
    """Return how close the distinct rows at places [B] are to all rows of a side [n, d]."""
    if on_host(places):
        return mean_log_sum_exp(side[places.unique()], side)
    return mean_log_sum_exp(rows_at(side, places), side, counted=first_of_each(places))
