"""MGFormer (Masked Graph Transformer, SIGIR 2024): users and items as tokens of one transformer.

The equations of the paper, in order, and where they are:

    Eq. (2)       the tokens e                      `MGFormer.tokens`
    Eq. (3)       the structural encodings p        `structural.encodings_of`
    Eq. (4)       the input x = [e, p]              `MGFormer.inputs`
    Eq. (5)-(12)  masked kernel attention           `layers.KernelAttention`, `nn.kernel_attention`
    Eq. (7)       the random features               `nn.features`
    Eq. (10)      the angles of the sine mask       `layers.DegreeAngles`
    Eq. (13)      alignment and uniformity          `MGFormer.loss`, `nn.losses.align_uniform`

`options.py` lists the options and the forms of attention. A layer computes only the rows that are
wanted, so a training step touches only the nodes of its batch and their keys. If training does not
change the weights (neighbors or none, without a mask), all layers together are one fixed sparse
matrix, and their effect on the encodings is computed once.

Shapes: N nodes (users, then items), d channels of tokens, r of encodings, m = d + r, H heads,
F features, K neighbors, R landmarks; q nodes wanted, k nodes known.
"""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn
from torch.nn import functional

from mgformer.data.sampling import Batch
from mgformer.graph.bipartite import Graph
from mgformer.models.base import ModelConfig, TrainableModel
from mgformer.models.insides import Inside
from mgformer.models.mgformer import layers, structural
from mgformer.models.mgformer.insides import attention_insides
from mgformer.models.mgformer.options import MGFormerConfig
from mgformer.nn.embeddings import normal_table, rows_at
from mgformer.nn.losses import align_uniform
from mgformer.ranking.score import Kind
from mgformer.ranking.scorers import DotScorer


class MGFormer(TrainableModel):
    """score(u, i) = h_u · h_i, with h = layers([e, p])."""

    score_kinds: ClassVar[tuple[Kind, ...]] = ("prior", "degree")

    class Config(MGFormerConfig):
        """Options of MGFormer; `options.py` describes them."""

    config: Config

    def __init__(self, config: ModelConfig, graph: Graph, rng: np.random.Generator) -> None:
        super().__init__(config, graph, rng)
        options = self.config
        widest = max(options.rank, options.neighbor_rank or 0 if options.structural else 0)
        encodings = torch.zeros(self.num_nodes, 0)
        if widest:
            encodings = structural.encodings_of(graph, widest, rng, normalized=options.normalized)
        # Nearest nodes are those of the largest cosine, whatever the length of the encodings in x.
        near = functional.normalize(encodings[:, : options.neighbor_rank or options.rank])
        encodings = encodings[:, : options.rank].contiguous()
        if options.normalized:
            encodings = functional.normalize(encodings)
        self.encodings = nn.Buffer(encodings, persistent=False)  # P [N, r]
        self.tokens = normal_table(self.num_nodes, options.dim, rng)  # E [N, d]
        self.layers = nn.ModuleList(_layers(options, graph, near, rng))
        self.adjacency = graph.adjacency if options.local_weight else None
        self.fixed = _fixed_layers(options, graph, self.layers)
        structure = torch.zeros(0)
        if self.fixed is not None:
            # The encodings never change. If the weights do not either, their part of h is fixed.
            structure = self.fixed.everywhere(options.encoding_scale * self.encodings)
        self.structure = nn.Buffer(structure, persistent=False)  # [N, r] if fixed

    def inputs(self, nodes: Tensor) -> Tensor:
        """Return x = [e, p] [q, m] of nodes: Eq. (4)."""
        tokens = self.lookup(self.tokens, nodes)
        return torch.cat([tokens, self.config.encoding_scale * self.encodings[nodes]], dim=1)

    def outputs(self, nodes: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Return h [q, m] of nodes, which may repeat; without a generator all keys are used."""
        if self.fixed is not None:
            tokens = self.fixed.rows(self.tokens, nodes, sparse=self.sparse_gradients)
            return torch.cat([tokens, self.structure[nodes]], dim=1)
        wanted, places = nodes.unique(return_inverse=True)
        return rows_at(self._after(len(self.layers), wanted, generator), places)

    def _after(self, depth: int, wanted: Tensor, generator: torch.Generator | None) -> Tensor:
        """Return the rows [q, m] of ascending nodes after the first `depth` layers."""
        if depth == 0:
            return self.inputs(wanted)
        config, layer = self.config, self.layers[depth - 1]
        assert isinstance(layer, layers.Attention)
        known, keys = layer.reach(wanted, generator)
        if self.adjacency is not None:
            known = torch.cat([known, layers.graph_neighbors(self.adjacency, wanted)]).unique()
        x = self._after(depth - 1, known, generator)  # [k, m]
        attended = layer(x, known, keys, wanted)
        if config.centered:
            attended = attended - x[torch.searchsorted(known, keys)].mean(0)
        if config.residual == "none":
            return attended
        # He & Hofmann (ICLR 2024, arXiv:2311.01906): αI + βA − γC, with C the uniform attention.
        h = x[torch.searchsorted(known, wanted)] + config.attention_weight * attended
        if self.adjacency is not None:
            h = h + config.local_weight * layers.graph_sums(self.adjacency, x, known, wanted)
        return h

    def loss(self, batch: Batch, generator: torch.Generator) -> Tensor:
        """Alignment of the pairs, uniformity of their users and of their items: Eq. (13)."""
        config = self.config
        nodes = torch.cat([batch.users, batch.items + self.num_users])
        users, items = self.outputs(nodes, generator).split(len(batch.users))
        weight, t, sides = config.uniformity_weight, config.uniformity_t, config.uniformity_sides
        return align_uniform(users, items, weight, t=t, sides=sides)

    def scorer(self) -> DotScorer:
        with torch.no_grad():
            return self.dot_scorer(self.outputs(torch.arange(self.num_nodes)))

    def tables(self) -> list[nn.Parameter]:
        return [self.tokens]

    def on_epoch(self, rng: np.random.Generator) -> None:
        if self.config.redraw:
            for layer in self.layers:
                if isinstance(layer, layers.KernelAttention):
                    layer.draw(rng)

    def insides(self, graph: Graph, before: Mapping[str, Tensor] | None) -> list[Inside]:
        return attention_insides(self, graph, before)


def _layers(
    config: MGFormerConfig, graph: Graph, near: Tensor, rng: np.random.Generator
) -> list[layers.Attention]:
    """Return the layers of attention; none of them if there is no attention."""

    def layer() -> layers.Attention:
        angles = None
        if config.mask == "sine":
            angles = layers.DegreeAngles(graph.degrees, config.degree_dim, rng)
        if config.attention == "neighbors":
            return structural.NeighborAttention(config, near, angles)
        if config.attention == "landmarks":
            return structural.LandmarkAttention(config, near, rng)
        return layers.KernelAttention(config, graph, angles, rng)

    if config.attention == "none":
        return []
    first = layer()
    if not list(first.parameters()):
        return [first] * config.num_layers  # equal layers: share one, which is slow to build
    return [first, *(layer() for _ in range(config.num_layers - 1))]


def _fixed_layers(
    config: MGFormerConfig, graph: Graph, attention: nn.ModuleList
) -> structural.FixedLayers | None:
    """Return all layers as one sparse matrix, or None if training changes their weights."""
    matrix = None
    if config.attention == "none":
        matrix = sp.csr_array((graph.num_nodes, graph.num_nodes), dtype=np.float32)
    elif isinstance(attention[0], structural.NeighborAttention):
        matrix = attention[0].matrix()
    if matrix is None:
        return None
    if config.residual == "shaped":
        identity = sp.eye_array(graph.num_nodes, dtype=np.float32, format="csr")
        matrix = identity + config.attention_weight * matrix
        if config.local_weight:
            matrix = matrix + config.local_weight * graph.adjacency
    return structural.FixedLayers(sp.csr_array(matrix, dtype=np.float32), config.num_layers)
