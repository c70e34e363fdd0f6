"""MGFormer (Masked Graph Transformer, SIGIR 2024): users and items as tokens of one transformer.

This module follows the equations of the paper in their order:

    Eq. (2)        the tokens e                     `starting_tokens`
    Eq. (3)        the structural encodings p       `structural_encodings`
    Eq. (4)        the input x = [e, p]             `combined`
    Eq. (5)        queries, keys and values         `KernelAttention`
    Eq. (6)-(9)    kernel attention with a mask     `masked_attention`, `nn.kernel_attention`
    Eq. (7)        the random features              `nn.features`
    Eq. (10)       the sine mask                    `DegreeAngles`
    Eq. (11)-(12)  its attention at linear cost     `masked_attention`, `nn.kernel_attention`
    Eq. (13)       alignment and uniformity         `MGFormer.loss`, `nn.losses.align_uniform`

If several processes train it, each attends from its own nodes to the keys of all. They send each
other summaries of their keys, and no keys. Lists of nodes are then lists of own rows.

A layer computes only the rows that are wanted. A training step therefore needs only the nodes of
its batch and the keys drawn for it. After training all nodes are keys.

The paper has no residual: h = A x. By default a layer has the shaped residual of He & Hofmann (ICLR
2024, arXiv:2311.01906), h = αx + β(Ax − Cx). C is uniform attention: C x is the mean over the keys.

Shapes: N nodes (users, then items), d channels of tokens, r of encodings, m = d + r, H heads,
F = m/H features of a head; q nodes wanted, k nodes known, j keys. Lists of nodes that stand for
rows are ascending and have no duplicates.
"""

import math
from collections.abc import Mapping
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from mgformer.data.sampling import Batch
from mgformer.device import HOST, first_of_each, on_host
from mgformer.errors import ConfigError
from mgformer.graph.bipartite import Graph
from mgformer.graph.sparse import row_numbers
from mgformer.graph.spectral import encodings_of
from mgformer.models.base import ModelConfig, TrainableModel
from mgformer.models.insides import Inside
from mgformer.models.mgformer_config import MGFormerConfig
from mgformer.models.mgformer_insides import attention_insides
from mgformer.nn import kernel_attention as attention
from mgformer.nn.embeddings import normal_table, rows_at, xavier_matrices
from mgformer.nn.features import FEATURE_MAPS, FeatureMap
from mgformer.nn.losses import align_uniform
from mgformer.ranking.score import Kind
from mgformer.ranking.scorers import DotScorer
from mgformer.world import ALONE, Shards, World

ENCODING_SCALE = 0.2
"""Factor of unit encodings in x: tokens are short when training begins."""
TOKEN_NORM = 3.0
"""Expected length of tokens at the start, without a residual: h_i then sees e_i only through the
query, and short tokens would make attention uniform."""
DEGREE_DIM = 16
"""Channels of the embedding of a degree."""
CHUNK = 16_384
"""Nodes whose features are held at a time."""


def starting_tokens(config: MGFormerConfig, num_nodes: int, rng: np.random.Generator) -> Tensor:
    """Return the tokens e [N, d] before training: Eq. (2)."""
    deviation = TOKEN_NORM / math.sqrt(config.dim) if config.has_large_tokens else None
    return normal_table(num_nodes, config.dim, rng, deviation)


def structural_encodings(config: MGFormerConfig, graph: Graph, rng: np.random.Generator) -> Tensor:
    """Return the encodings p [N, r] of all nodes: Eq. (3), with the factor that they have in x."""
    if not config.rank:
        return torch.zeros(graph.num_nodes, 0, device=HOST)
    encodings = encodings_of(graph, config.rank, rng, normalized=config.normalized)
    return encoding_length(config) * (
        functional.normalize(encodings) if config.normalized else encodings
    )


def encoding_length(config: MGFormerConfig) -> float:
    """Return the length of encodings in x, or the factor of their own length."""
    return ENCODING_SCALE if config.normalized and not config.has_large_tokens else 1.0


def combined(tokens: Tensor, encodings: Tensor) -> Tensor:
    """Return x = [e, p] [q, m]: Eq. (4)."""
    return torch.cat([tokens, encodings], dim=1)


class Reach(NamedTuple):
    """The nodes that a layer looks at."""

    known: Tensor  # [k] nodes that the wanted nodes depend on
    keys: Tensor  # [j] the keys among them
    counted: Tensor | None = None
    """Mask [j] of the keys that count. If there is one, the known nodes are the wanted ones, then
    the keys; repeated keys stay, so that sizes are fixed, and do not count."""


class KernelAttention(nn.Module):
    """Attention A of a layer, with queries x W_Q, keys x W_K and values x: Eq. (5)."""

    shards: Shards | None = None

    def __init__(self, config: MGFormerConfig, graph: Graph, rng: np.random.Generator) -> None:
        super().__init__()
        self.num_nodes, self.num_heads = graph.num_nodes, config.num_heads
        self.key_sample = config.key_sample
        self.angles = DegreeAngles(graph.degrees, rng) if config.mask == "sine" else None
        self.edges = graph.adjacency if config.mask == "adjacency" else None
        w_query, w_key = starting_matrices(config, rng)
        self.w_query, self.w_key = nn.Parameter(w_query), nn.Parameter(w_key)
        self.map = FEATURE_MAPS[config.features]
        width, drawn = len(w_query) // self.num_heads, None
        if self.map.project is not None:
            each = [self.map.project(width, width, rng) for _ in range(self.num_heads)]
            drawn = nn.Buffer(torch.stack(each).float())
        self.projections = drawn  # [H, F, m/H]

    @property
    def has_summary(self) -> bool:
        """Whether positive features summarize all keys, which `insides` can show."""
        return self.map.log and self.edges is None

    @property
    def world(self) -> World:
        """Who attends together."""
        return ALONE if self.shards is None else self.shards.world

    def keep_own(self, shards: Shards) -> None:
        """Keep what belongs to own nodes, and share the keys with other processes."""
        self.shards = shards
        if self.angles is not None:
            self.angles.places = nn.Buffer(self.angles.places[shards.own], persistent=False)

    def reach(self, wanted: Tensor, generator: torch.Generator | None) -> Reach:
        """Return the nodes that the wanted nodes [q] depend on, and the keys among them.

        With a generator the layer draws a sample of keys. Without one it uses all keys. Of several
        processes, all draw the same sample, and each keeps its own keys.
        """
        if self.edges is not None:
            neighbors = torch.from_numpy(self.edges[wanted.numpy()].indices).long()
            known = torch.cat([wanted, neighbors]).unique()
            return Reach(known, known)
        if self.key_sample is None or generator is None or self.key_sample >= self.num_nodes:
            count = self.num_nodes if self.shards is None else len(self.shards.own)
            everybody = torch.arange(count, device=wanted.device)
            return Reach(everybody, everybody)
        size = (self.key_sample,)
        keys = torch.randint(self.num_nodes, size, generator=generator, device=wanted.device)
        if self.shards is not None:
            keys = self.shards.places(keys.unique())[1]
            return Reach(torch.cat([wanted, keys]).unique(), keys)
        if not on_host(wanted):
            return Reach(torch.cat([wanted, keys]), keys, first_of_each(keys))
        keys = keys.unique()
        return Reach(torch.cat([wanted, keys]).unique(), keys)

    def forward(
        self,
        x: Tensor,
        wanted: Tensor,
        of_keys: Tensor,
        keys: Tensor,
        counted: Tensor | None = None,
    ) -> Tensor:
        """Return A x [q, m] of the wanted nodes, from their x [q, m] and that of the keys [j, m].

        Every head attends with its own channels.
        """
        edges = None if self.edges is None else self._edges_among(wanted, keys)
        angles = self.angles_of(wanted), self.angles_of(keys)
        parts = (*self.projected(x, of_keys), of_keys.chunk(self.num_heads, dim=1))
        heads = [
            masked_attention(
                queries,
                of_head,
                values,
                self.map,
                self.projection_of(head),
                *angles,
                edges,
                counted,
                self.world,
            )
            for head, (queries, of_head, values) in enumerate(zip(*parts, strict=True))
        ]
        return torch.cat(heads, dim=1)

    def projected(self, x: Tensor, of_keys: Tensor) -> list[tuple[Tensor, ...]]:
        """Return queries and keys of each head, [·, m/H], scaled by (m/H)^(-1/4)."""
        scale = (x.shape[1] // self.num_heads) ** -0.25
        return [
            (side @ w * scale).chunk(self.num_heads, dim=1)
            for side, w in ((x, self.w_query), (of_keys, self.w_key))
        ]

    def angles_of(self, nodes: Tensor) -> Tensor | None:
        """Return the angles [q] of the sine mask, or None without it."""
        return None if self.angles is None else self.angles(nodes)

    def projection_of(self, head: int) -> Tensor | None:
        """Return the random projection [F, m/H] of a head, or None if its features have none."""
        return None if self.projections is None else self.projections[head]

    def _edges_among(self, wanted: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        """Return the edges of the wanted nodes: places in `wanted`, and places in `keys`."""
        assert self.edges is not None
        part = self.edges[wanted.numpy()]
        columns = torch.searchsorted(keys, torch.from_numpy(part.indices).long())
        return torch.from_numpy(row_numbers(part)).long(), columns


def starting_matrices(config: MGFormerConfig, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Return W_Q and W_K [m, m] before training.

    With a sharpness, the scores of all heads together have it as the factor of a cosine.
    """
    channels = config.dim + config.rank
    if config.sharpness is None:
        w_query, w_key = xavier_matrices(2, channels, rng)
        return w_query, w_key
    if config.has_large_tokens:
        length = math.hypot(TOKEN_NORM, float(config.rank > 0))
        read = torch.ones(channels, device=HOST)
    else:
        length = encoding_length(config)
        read = (torch.arange(channels, device=HOST) >= config.dim).float()
    scale = math.sqrt(config.sharpness) * (channels // config.num_heads) ** 0.25 / length
    return torch.diag(scale * read), torch.diag(scale * read)


class DegreeAngles(nn.Module):
    """Angles c = πz/4 of the sine mask sin(c_i + c_j): Eq. (10).

    z = σ(w · embedding of the degree) lies in (0, 1) and is learned.
    """

    def __init__(self, degrees: NDArray[np.int64], rng: np.random.Generator) -> None:
        super().__init__()
        distinct, places = np.unique(degrees, return_inverse=True)
        self.places = nn.Buffer(torch.from_numpy(places), persistent=False)  # [N]
        self.embedding = normal_table(len(distinct), DEGREE_DIM, rng, deviation=1.0)
        drawn = rng.standard_normal(DEGREE_DIM, dtype=np.float32)
        self.projection = nn.Parameter(torch.from_numpy(drawn) / math.sqrt(DEGREE_DIM))

    def forward(self, nodes: Tensor) -> Tensor:
        """Return the angles [q] of nodes."""
        z = (rows_at(self.embedding, self.places[nodes]) @ self.projection).sigmoid()
        return math.pi / 4 * z


def masked_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    features: FeatureMap,
    projection: Tensor | None,
    query_angles: Tensor | None,
    key_angles: Tensor | None,
    edges: tuple[Tensor, Tensor] | None,
    counted: Tensor | None = None,
    world: World = ALONE,
) -> Tensor:
    """Return the attention [q, m/H] of one head: Eq. (6), or Eq. (8) with a mask.

    Angles [q] and [j] make the sine mask, by Eq. (11) and (12). Edges, from places among the
    queries to places among the keys, make the adjacency mask M = A. If there is a mask `counted`
    [j], other keys do not count. The processes of a `world` have different keys.
    """
    if not features.log or projection is None:
        plain = features(queries, projection), features(keys, projection)
        if key_angles is not None:
            plain = attention.sine_mask(*plain, key_angles, query_angles)
        if counted is not None:
            plain = plain[0], plain[1] * counted[:, None]
        return attention.linear_attention(*plain, values, world=world)
    if edges is None:
        return attention.kernel_attention(
            queries,
            keys,
            values,
            projection,
            key_angles,
            query_angles=query_angles,
            counted=counted,
            chunk=CHUNK,
            world=world,
        )
    scores = attention.edge_scores(
        attention.log_query_features(queries, projection, None),
        attention.log_key_features(keys, projection, None),
        *edges,
    )
    return attention.edge_attention(scores, *edges, values, len(queries))


class MGFormer(TrainableModel):
    """score(u, i) = h_u · h_i, with h = layers([e, p])."""

    score_kinds: ClassVar[tuple[Kind, ...]] = ("prior", "degree")
    bf16: ClassVar[bool] = True
    Config = MGFormerConfig
    config: MGFormerConfig

    def __init__(self, config: ModelConfig, graph: Graph, rng: np.random.Generator) -> None:
        super().__init__(config, graph, rng)
        options = self.config
        encodings = structural_encodings(options, graph, rng)
        self.encodings = nn.Buffer(encodings, persistent=False)  # P [N, r]
        self.tokens = nn.Parameter(starting_tokens(options, self.num_nodes, rng))  # E [N, d]
        mixed = None
        if options.num_heads > 1 and options.residual == 0:
            # Without a residual every head needs channels of tokens and of encodings.
            order = rng.permutation(options.dim + options.rank)
            mixed = nn.Buffer(torch.from_numpy(order), persistent=False)
        self.mixed = mixed  # [m]
        count = options.num_layers if options.attends else 0
        self.layers = nn.ModuleList(KernelAttention(options, graph, rng) for _ in range(count))

    def fix_sizes(self) -> None:
        if self.config.attends and self.config.mask == "adjacency":
            raise ConfigError(
                "mask = adjacency looks up edges in the memory of the processor; use --device cpu"
            )

    def inputs(self, nodes: Tensor) -> Tensor:
        """Return x [q, m] of nodes, with the channels in the order in which heads split them."""
        tokens = functional.embedding(nodes, self.tokens, sparse=self.sparse_gradients)
        x = combined(tokens, self.encodings[nodes])
        return x if self.mixed is None else x[:, self.mixed]

    def outputs(self, nodes: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Return h [q, m] of nodes, which may repeat; without a generator all keys are used."""
        wanted, places = nodes, None
        if on_host(nodes):
            wanted, places = nodes.unique(return_inverse=True)
        if self.config.attends:
            h = self._after(len(self.layers), wanted, generator)
        else:
            h = self.config.residual**self.config.num_layers * self.inputs(wanted)
        if self.mixed is not None:
            h = h[:, self.mixed.argsort()]
        return h if places is None else rows_at(h, places)

    def _after(self, depth: int, wanted: Tensor, generator: torch.Generator | None) -> Tensor:
        """Return the rows [q, m] of the wanted nodes after the first `depth` layers."""
        if depth == 0:
            return self.inputs(wanted)
        config, layer = self.config, self.layers[depth - 1]
        assert isinstance(layer, KernelAttention)
        known, keys, counted = layer.reach(wanted, generator)
        before = self._after(depth - 1, known, generator)  # [k, m]
        if counted is None:
            x, of_keys = _rows_of(wanted, known, before), _rows_of(keys, known, before)
        else:
            x, of_keys = before.split([len(wanted), len(keys)])
        attended: Tensor = layer(x, wanted, of_keys, keys, counted)
        if config.residual == 0:
            return attended
        if config.mask != "adjacency":
            attended = attended - _mean_of(of_keys, counted, layer.world)
        return config.residual * x + config.attention_weight * attended

    def loss(self, batch: Batch, generator: torch.Generator) -> Tensor:
        """Alignment of the pairs, uniformity of their users and of their items: Eq. (13)."""
        sides, shares = (batch.users, batch.items + self.num_users), self.shares(batch)
        if shares is None:
            users, items = self.outputs(torch.cat(sides), generator).split(len(batch.users))
        else:
            h = shares[0].encoded(
                torch.stack(sides, dim=1), lambda rows: self.outputs(rows, generator)
            )
            users, items = h.unbind(1)
        weight, t = self.config.uniformity_weight, self.config.uniformity_t
        return align_uniform(users, items, weight, t=t, sides="sum", shares=shares)

    def shard(self, world: World) -> None:
        if self.config.attends and self.config.mask == "adjacency":
            raise ConfigError(
                "mgformer with mask = adjacency does not train on several processes; set"
                " model.mask=sine, or start it without torchrun"
            )
        shards = self.keep_own(world, "tokens")
        self.encodings = nn.Buffer(self.encodings[shards.own], persistent=False)
        for layer in self.layers:
            assert isinstance(layer, KernelAttention)
            layer.keep_own(shards)

    def scorer(self) -> DotScorer:
        with torch.no_grad():
            everybody = torch.arange(len(self.tokens), device=self.tokens.device)
            return self.dot_scorer(self.outputs(everybody))

    def tables(self) -> list[nn.Parameter]:
        return [self.tokens]

    def insides(self, graph: Graph, before: Mapping[str, Tensor] | None) -> list[Inside]:
        return attention_insides(self, graph, before)


def _rows_of(nodes: Tensor, known: Tensor, x: Tensor) -> Tensor:
    """Return the rows of some of the known nodes, from x [k, m] of all known nodes."""
    if nodes is known or (on_host(nodes) and len(nodes) == len(known)):
        return x
    return rows_at(x, torch.searchsorted(known, nodes))


def _mean_of(rows: Tensor, counted: Tensor | None, world: World) -> Tensor:
    """Return the mean [m] of rows [j, m] of all processes, or of those in a mask [j]."""
    if world.size > 1:
        together = world.total(torch.cat([rows.sum(0), rows.new_tensor([len(rows)])]))
        return together[:-1] / together[-1]
    if counted is None:
        return rows.mean(0)
    return (rows * counted[:, None]).sum(0) / counted.sum()
