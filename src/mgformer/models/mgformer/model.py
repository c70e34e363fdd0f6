"""MGFormer (Masked Graph Transformer, SIGIR 2024): users and items as tokens of one transformer.

A node's input is its token and its structural encoding, x = [e, p], Eq. (4). A layer lets every
node attend to all others; its attention has one of these forms:

    kernel      the paper's: random features and a mask of degrees, at linear cost: Eq. (5)-(12)
    landmarks   kernel attention with features that are sharp: how close a node is to the nearest
                of thousands of centres of the encodings; all pairs, at linear cost
    neighbors   softmax attention over the nodes nearest by encoding; linear cost, sharpest
    softmax     exact attention over all pairs, for small graphs
    none        no attention: what the others are measured against

A layer computes the rows that are wanted from rows that it says it needs (`reach`), so that a
training step touches its batch and the keys that the batch attends to, and no other node. Where
training does not change the weights (neighbors or none, without a mask), all layers together are
one fixed sparse matrix, and what they make of the encodings is computed once.

Shapes: N nodes (users, then items), d channels of tokens, r of encodings, m = d + r, H heads,
F features, K neighbours, R landmarks; k rows known, q rows wanted.
"""

import math
from typing import ClassVar, Literal, cast

import numpy as np
import scipy.sparse as sp
import torch
from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)
from torch import Tensor, nn
from torch.nn import functional

from mgformer.data.sampling import Batch
from mgformer.graph.bipartite import Graph
from mgformer.graph.spectral import structural_encodings
from mgformer.models.base import ModelConfig, TrainableModel
from mgformer.models.mgformer.layers import (
    Attention,
    DegreeAngles,
    ExactAttention,
    Heads,
    KernelAttention,
)
from mgformer.models.mgformer.structural import (
    FixedLayers,
    GraphAverage,
    LandmarkAttention,
    NeighborAttention,
    NoAttention,
)
from mgformer.models.space import Choice, Float, Int, Space
from mgformer.nn.features import FEATURE_MAPS
from mgformer.nn.losses import align_uniform
from mgformer.nn.tables import drawn_table
from mgformer.ranking.score import Kind
from mgformer.ranking.scorers import DotScorer


class MGFormer(TrainableModel):
    """score(u, i) = h_u · h_i, with h = layers([e, p])."""

    score_kinds: ClassVar[tuple[Kind, ...]] = ("prior", "degree")

    class Config(ModelConfig):
        """Options of MGFormer."""

        dim: PositiveInt = 128
        """d, channels of the tokens."""
        rank: NonNegativeInt = 128
        """r, channels of the structural encodings; the paper has r = d. 0: none."""
        normalized: bool = True
        """Encodings from D_u^(-1/2) R D_i^(-1/2), scaled to unit length; False: from R, as they
        are, as in the paper."""
        encoding_scale: PositiveFloat = 0.2
        """What the encodings are multiplied by in x; 1 in the paper."""
        attention: Literal["kernel", "landmarks", "neighbors", "softmax", "none"] = "neighbors"
        """The form of attention; see the top of the file."""
        num_layers: PositiveInt = 1
        """Layers; each attends to the output of the one before."""
        num_heads: PositiveInt = 1
        """H; every head attends for its share of the channels."""
        residual: Literal["none", "shaped"] = "shaped"
        """none: h = A x, as the paper writes it; shaped: h = x + attention_weight (A x − C x)."""
        attention_weight: NonNegativeFloat = 1.0
        """Weight of attention beside the residual."""
        centered: bool = False
        """With `shaped`: subtract C x, the mean of the keys' values, which blunt attention returns.
        For attention to all nodes, or to keys drawn from them."""
        local_weight: NonNegativeFloat = 0.0
        """With `shaped`: weight of Â x, the values of a node's own items or users on the graph,
        beside attention; 0, as in the paper, for none."""
        mask: Literal["sine", "none", "adjacency"] = "none"
        """sine: sin(π/4 (z_i + z_j)), learned from degrees; adjacency (kernel only): the graph."""
        degree_dim: NonNegativeInt = 16
        """Channels of the embedding of a degree from which z is projected; 0: no degrees."""
        sharpness: PositiveFloat = 10.0
        """Weight of a cosine of encodings in the logits of attention; for `kernel` at the start."""
        num_neighbors: PositiveInt = 32
        """K, nodes that a node attends to, with `neighbors`."""
        neighbor_rank: PositiveInt | None = None
        """Rank of the encodings by which neighbours and landmarks are found; `rank` if not set."""
        num_landmarks: PositiveInt = 4096
        """R, with `landmarks`."""
        active_landmarks: PositiveInt = 8
        """Landmarks that a node is described by, with `landmarks`."""
        features: Literal["simplex", "orthogonal", "iid", "fourier", "elu", "relu", "focused"] = (
            "simplex"
        )
        """Feature map of `kernel`."""
        num_features: PositiveInt | None = None
        """F for each head, a multiple of its m/H channels; as many as channels if not given."""
        redraw: bool = False
        """Draw the random features anew for every epoch."""
        query_init: Literal["structure", "xavier"] = "structure"
        """W_Q, W_K of `kernel` at the start: reading the encodings only, or at random."""
        key_sample: PositiveInt | None = None
        """Keys drawn for each training step, with `kernel` and `softmax`; all nodes if not given.
        Without training all nodes are keys."""
        uniformity_weight: NonNegativeFloat = 1.0
        """λ of the loss."""
        uniformity_t: float = Field(2.0, gt=0, le=20)
        """t in exp(−t ‖·‖²): 1 in the paper, 2 in DirectAU's code."""
        uniformity_sides: Literal["sum", "mean"] = "mean"
        """Users and items summed, as in the paper, or averaged, as in DirectAU's code."""

        @model_validator(mode="after")
        def _possible(self) -> "MGFormer.Config":
            _check(self)
            return self

    space: ClassVar[Space] = {
        "dim": Choice((32, 64, 128)),
        "rank": Choice((32, 64, 128, 256)),
        "encoding_scale": Float(0.05, 1.0, log=True),
        "num_neighbors": Int(8, 64, log=True, when={"attention": "neighbors"}),
        "active_landmarks": Int(2, 32, log=True, when={"attention": "landmarks"}),
        "sharpness": Float(2.0, 30.0, log=True),
        "attention_weight": Float(0.1, 2.0, log=True, when={"residual": "shaped"}),
        "uniformity_weight": Float(0.1, 10.0, log=True),
    }

    def __init__(self, config: ModelConfig, graph: Graph, rng: np.random.Generator) -> None:
        super().__init__()
        self.config = config = cast(MGFormer.Config, config)
        self.num_users, self.num_nodes = graph.num_users, graph.num_nodes
        widest = max(config.rank, config.neighbor_rank or 0 if _structural(config) else 0)
        encodings = torch.zeros(self.num_nodes, 0)
        if widest:
            encodings = structural_encodings(graph, widest, rng, normalized=config.normalized)
        near = encodings[:, : config.neighbor_rank or config.rank]
        encodings = encodings[:, : config.rank].contiguous()
        near = functional.normalize(near)  # nearness is a cosine, whatever x contains
        if config.normalized:
            encodings = functional.normalize(encodings)
        self.encodings = nn.Buffer(encodings, persistent=False)  # [N, r]
        self.tokens = drawn_table(self.num_nodes, config.dim, rng)  # [N, d]
        self.layers = nn.ModuleList(_layers(config, graph, near, rng))
        self.local = GraphAverage(graph.adjacency) if config.local_weight else None
        self.fixed = self._fixed(graph)
        structure = torch.zeros(0)
        if self.fixed is not None:
            # Half of x never changes, and where the weights do not either, half of h does not.
            structure = self.fixed.everywhere(config.encoding_scale * self.encodings)
        self.structure = nn.Buffer(structure, persistent=False)  # [N, r] if fixed

    def _fixed(self, graph: Graph) -> FixedLayers | None:
        """Return all layers as one sparse matrix, if training does not change their weights."""
        config = self.config
        matrix = cast(Attention, self.layers[0]).matrix()
        if matrix is None or config.centered:
            return None
        if config.residual == "shaped":
            identity = sp.eye_array(self.num_nodes, dtype=np.float32, format="csr")
            matrix = identity + config.attention_weight * matrix
            if config.local_weight:
                matrix = matrix + config.local_weight * graph.adjacency
        return FixedLayers(sp.csr_array(matrix, dtype=np.float32), config.num_layers)

    def loss(self, batch: Batch, generator: torch.Generator) -> Tensor:
        """Alignment of the pairs, uniformity of their users and of their items: Eq. (13)."""
        config = self.config
        nodes = torch.cat([batch.users, batch.items + self.num_users])
        h_users, h_items = self.outputs(nodes, generator).split(len(batch.users))
        return align_uniform(
            h_users,
            h_items,
            config.uniformity_weight,
            t=config.uniformity_t,
            sides=config.uniformity_sides,
        )

    def outputs(self, nodes: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Return h [q, m] of nodes, which may repeat; without a generator all keys are used."""
        if self.fixed is not None:
            tokens = self.fixed.rows(self.tokens, nodes, sparse=self.sparse_gradients)
            return torch.cat([tokens, self.structure[nodes]], dim=1)
        wanted, places = nodes.unique(return_inverse=True)
        plan = [(wanted, wanted, wanted)]  # rows known, their keys, rows wanted of them
        for layer in reversed(self.layers):
            wanted = plan[-1][0]
            known, keys = cast(Attention, layer).reach(wanted, generator)
            if self.local is not None:
                known = torch.cat([known, self.local.reach(wanted)]).unique()
            plan.append((known, keys, wanted))
        x = self.inputs(plan[-1][0])
        for layer, (known, keys, wanted) in zip(self.layers, reversed(plan), strict=False):
            attended = layer(x, known, keys, wanted)
            if self.config.centered:
                attended = attended - x[torch.searchsorted(known, keys)].mean(0)
            x = self._combine(x, attended, known, wanted)
        return x[places]

    def inputs(self, nodes: Tensor) -> Tensor:
        """Return x = [e, p] [q, m] of nodes: Eq. (4)."""
        tokens = functional.embedding(nodes, self.tokens, sparse=self.sparse_gradients)
        return torch.cat([tokens, self.config.encoding_scale * self.encodings[nodes]], dim=1)

    def _combine(self, x: Tensor, attended: Tensor, known: Tensor, wanted: Tensor) -> Tensor:
        """Put together what a layer attended to and its input; x is [k, m], attended [q, m]."""
        if self.config.residual == "none":
            return attended
        # He & Hofmann (ICLR 2024, arXiv:2311.01906): αI + βA − γC, with C the uniform attention.
        own = x[torch.searchsorted(known, wanted)]
        h = own + self.config.attention_weight * attended
        if self.local is not None:
            h = h + self.config.local_weight * self.local(x, known, wanted)
        return h

    def scorer(self) -> DotScorer:
        with torch.no_grad():
            h = self.outputs(torch.arange(self.num_nodes))
        return DotScorer(h[: self.num_users], h[self.num_users :])

    def tables(self) -> list[nn.Parameter]:
        return [self.tokens]

    def on_epoch(self, rng: np.random.Generator) -> None:
        if self.config.redraw:
            for layer in self.layers:
                cast(KernelAttention, layer).draw(rng)


def _structural(config: MGFormer.Config) -> bool:
    """Whether attention is decided by the encodings alone."""
    return config.attention in ("neighbors", "landmarks")


def _layers(
    config: MGFormer.Config, graph: Graph, near: Tensor, rng: np.random.Generator
) -> list[Attention]:
    first = _layer(config, graph, near, rng)
    if not list(first.parameters()):
        return [first] * config.num_layers  # nothing tells layers apart, and lists take long
    return [first, *(_layer(config, graph, near, rng) for _ in range(config.num_layers - 1))]


def _layer(
    config: MGFormer.Config, graph: Graph, near: Tensor, rng: np.random.Generator
) -> Attention:
    angles = None
    if config.mask == "sine":
        degrees = np.concatenate([graph.user_degrees, graph.item_degrees])
        angles = DegreeAngles(degrees, config.degree_dim, rng)
    channels, heads = config.dim + config.rank, config.num_heads
    if config.attention == "neighbors":
        return NeighborAttention(near, config.num_neighbors, config.sharpness, heads, angles)
    if config.attention == "landmarks":
        return LandmarkAttention(
            near, config.num_landmarks, config.active_landmarks, config.sharpness, rng
        )
    if config.attention == "none":
        return NoAttention(graph.num_nodes)
    # A cosine of encodings reaches the logits times the sharpness, m^(-1/2) being made up for.
    scale = math.sqrt(config.sharpness) * (channels // heads) ** 0.25 / config.encoding_scale
    start = (config.dim, scale) if config.query_init == "structure" else None
    shared = Heads(channels, heads, graph.num_nodes, start, angles, config.key_sample)
    if config.attention == "softmax":
        return ExactAttention(shared, rng)
    return KernelAttention(
        shared,
        rng,
        features=config.features,
        num_features=config.num_features or channels // heads,
        edges=graph.adjacency if config.mask == "adjacency" else None,
    )


def _check(config: MGFormer.Config) -> None:
    """Refuse, before any data is read, what cannot be built."""
    channels, heads, form = config.dim + config.rank, config.num_heads, config.attention
    if channels % heads:
        raise ValueError(
            f"dim + rank = {channels} channels cannot be shared by num_heads = {heads} heads;"
            " choose a divisor"
        )
    shaped = config.residual == "shaped"
    if form == "none" and not shaped:
        raise ValueError("attention = none needs residual = shaped")
    if config.centered and (form in ("none", "neighbors") or config.mask == "adjacency"):
        # Few nodes are loaded then, and their mean would depend on what else is asked for.
        raise ValueError("centered needs attention to all nodes, not to neighbours or none")
    if config.mask == "sine" and form == "none":
        raise ValueError("mask = sine has no use with attention = none; set mask = none")
    if config.local_weight and not shaped:
        raise ValueError("local_weight needs residual = shaped")
    if _structural(config) and not (config.neighbor_rank or config.rank):
        raise ValueError(f"attention = {form} needs encodings; set rank or neighbor_rank")
    if config.query_init == "structure" and form in ("kernel", "softmax") and not config.rank:
        raise ValueError("query_init = structure needs encodings; set rank, or query_init = xavier")
    if config.mask == "sine" and not config.degree_dim:
        raise ValueError("mask = sine needs degrees; set degree_dim to at least 1, or mask = none")
    if config.mask == "sine" and form == "landmarks":
        raise ValueError("mask = sine has no landmarks form; set mask = none, or another attention")
    if config.mask == "adjacency" and form != "kernel":
        raise ValueError(f"mask = adjacency needs attention = kernel, and attention is {form}")
    if config.mask == "adjacency" and not FEATURE_MAPS[config.features].log:
        raise ValueError(f"mask = adjacency needs positive random features, not {config.features}")
    if heads > 1 and form == "landmarks":
        raise ValueError("attention = landmarks has one head; set num_heads = 1")
    width = channels // heads
    if config.num_features is not None and FEATURE_MAPS[config.features].project is None:
        raise ValueError(f"num_features has no use with features = {config.features}; leave it out")
    if config.num_features is not None and config.num_features % width:
        near = max(1, round(config.num_features / width)) * width
        raise ValueError(
            f"num_features must be a multiple of the {width} channels of a head, got"
            f" {config.num_features}; choose {near}"
        )
    if config.redraw and (form != "kernel" or FEATURE_MAPS[config.features].project is None):
        raise ValueError("redraw needs attention = kernel and random features")
    if config.key_sample is not None and form not in ("kernel", "softmax"):
        raise ValueError(f"key_sample needs attention = kernel or softmax, and it is {form}")
