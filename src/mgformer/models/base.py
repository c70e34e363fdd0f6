"""The contract of a model.

A model is built from its `Config`, the training graph and a generator, and returns a `Scorer`.
It knows nothing about files, devices, optimizers, metrics or external ids.

A model may build on another model: it may inherit from it (SGL is LightGCN with one more term in
its loss) or import functions from its module. Code that serves one model lives in that model's
module or package; code that several unrelated models share lives in `nn` or `graph`.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Annotated, ClassVar, NamedTuple

import numpy as np
import torch
from pydantic import BaseModel, PositiveInt
from torch import Tensor, nn
from torch.nn import functional

from mgformer.data.options import OPTIONS
from mgformer.data.sampling import Batch
from mgformer.errors import ConfigError
from mgformer.graph.bipartite import Graph
from mgformer.models.insides import Inside
from mgformer.models.space import Choice, Space, space_of
from mgformer.ranking.score import Kind
from mgformer.ranking.scorers import DotScorer, HistoryScorer, Scorer
from mgformer.world import Shards, World

EmbeddingDim = Annotated[PositiveInt, Choice((32, 64, 128))]
"""The type of the option `dim`: tuning tries the same sizes for all models."""


class Size(NamedTuple):
    """How large the data of a run are."""

    num_users: int
    num_items: int
    num_pairs: int

    @property
    def num_nodes(self) -> int:
        return self.num_users + self.num_items


class Footprint(NamedTuple):
    """Bytes that a model needs beside the pairs; what is not known is 0."""

    preparing: int = 0
    """While it is prepared, if every list is full."""
    held: int = 0
    """Of what it was prepared with, from then on, if every list is full."""
    table: int = 0
    """Of the tables by node that gradient descent trains."""


class ModelConfig(BaseModel):
    """The options of a model. The docstring below each option is shown to users."""

    model_config = OPTIONS


def heads_must_divide(name: str, channels: int, num_heads: int) -> None:
    """Raise an error unless the heads can split the channels of the option `name` evenly."""
    if channels % num_heads:
        raise ValueError(f"num_heads: got {num_heads}, expected a divisor of {name} = {channels}")


class Model(ABC):
    """A recommender without gradient training: `scorer` does all the work.

    A subclass defines its options as the nested class `Config` and declares `config: Config`. An
    option with a search space is annotated with it: `dim: Annotated[int, Choice((32, 64))] = 64`.
    """

    Config: ClassVar[type[ModelConfig]]
    space: ClassVar[Space] = {}
    """The values that tuning tries for each option; it leaves other options unchanged. Every class
    gets them from the annotations of its `Config`."""
    score_kinds: ClassVar[tuple[Kind, ...]] = ()
    """The kinds of score to choose from if the run names none. The best one on validation is used,
    or the first one without validation. Empty if the model has no embeddings."""
    weights: ClassVar[str | None] = None
    """What the weights of pairs (`graph.strengths`) do, for users to read. None if the model
    ignores them: it then refuses data with weights."""
    config: ModelConfig

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "Config" in vars(cls) and "space" not in vars(cls):
            cls.space = space_of(cls.Config)

    def __init__(self, config: ModelConfig, graph: Graph, rng: np.random.Generator) -> None:
        """Keep the options, the graph of training pairs, and the source of random numbers."""
        self.config, self.graph, self.rng = config, graph, rng

    @classmethod
    def footprint(cls, config: ModelConfig, size: Size) -> Footprint:
        """Return what the model needs, before it is built."""
        return Footprint()

    @abstractmethod
    def scorer(self) -> Scorer:
        """Return the trained recommender."""

    def guide(self) -> HistoryScorer | None:
        """Return a closed-form scorer whose scores are added to those of embeddings, if any.

        Its weight is chosen on validation.
        """
        return None


class TrainableModel(nn.Module, Model):
    """A recommender with embeddings that gradient descent trains on batches of pairs.

    Checkpoints keep its parameters and persistent buffers. Everything else must follow from the
    config, the graph and the generator. Nodes are numbered with users first, then items.
    """

    score_kinds: ClassVar[tuple[Kind, ...]] = ("dot",)
    bf16: ClassVar[bool] = False
    """Whether its loss has large products whose factors may have 8 bits of precision."""
    weights: ClassVar[str | None] = "a pair is drawn with a chance proportional to its weight"
    shards: Shards | None = None
    """Who owns which nodes, if several processes train the model; `shard` sets it."""
    sharded: tuple[str, ...] = ()
    """Names of the tables of which a process keeps its own rows."""
    sparse_gradients: bool = False
    """Whether gradients of `tables` hold only the rows of the batch; the training loop sets it."""

    def __init__(self, config: ModelConfig, graph: Graph, rng: np.random.Generator) -> None:
        """Keep the options and the size of the graph; a subclass draws its parameters from rng."""
        nn.Module.__init__(self)
        self.config = config
        self.num_users, self.num_items = graph.num_users, graph.num_items
        self.num_nodes = graph.num_nodes

    @classmethod
    def footprint(cls, config: ModelConfig, size: Size) -> Footprint:
        """Return what the model needs: by default, a row of `dim` channels for every node."""
        dim = getattr(config, "dim", 0)
        return Footprint(table=4 * size.num_nodes * dim if isinstance(dim, int) else 0)

    @abstractmethod
    def loss(self, batch: Batch, generator: torch.Generator) -> Tensor:
        """Return the scalar loss of a batch; random numbers come from `generator`."""

    @abstractmethod
    def scorer(self) -> DotScorer:
        """Return the recommender in its current state of training."""

    def tables(self) -> list[nn.Parameter]:
        """Return the parameters that are looked up by node: a batch uses only a few rows."""
        return []

    @classmethod
    def takes_rows(cls, config: ModelConfig) -> bool:
        """Return whether the model has `tables`, which `train.optimizer = "rows"` needs."""
        return cls.tables is not TrainableModel.tables

    def on(self, device: torch.device) -> None:
        """Move to a device, with what only devices need."""
        if device.type != "cpu":
            self.fix_sizes()
        self.to(device)

    def fix_sizes(self) -> None:
        """Prepare forms of fixed size for a device, or refuse to leave the processor."""

    def shard(self, world: World) -> None:
        """Keep only the rows of the nodes that this process owns.

        A model that can do so calls `keep_own` and reads its tables with `lookup`.
        """
        raise ConfigError(
            f"{type(self).__name__} does not train on several processes; start it without torchrun"
        )

    def keep_own(self, world: World, *tables: str) -> Shards:
        """Cut parameters and buffers with a row per node to the own rows."""
        self.shards = Shards(world, self.num_users, self.num_items)
        self.sharded = (*self.sharded, *tables)
        for name in tables:
            own = getattr(self, name).detach()[self.shards.own]
            setattr(self, name, nn.Parameter(own) if name in self._parameters else own)
        return self.shards

    def on_epoch(self, rng: np.random.Generator) -> None:
        """Prepare for an epoch, for example by drawing what changes once per epoch."""

    def insides(self, graph: Graph, before: Mapping[str, Tensor] | None) -> list[Inside]:
        """Return what a report can show of this model, trained on `graph`; by default nothing.

        `before` is the `state_dict` before training. It is None if the trained weights were not
        kept: the model is then untrained, and shows only what training does not change.
        """
        return []

    def lookup(self, table: Tensor, nodes: Tensor) -> Tensor:
        """Return rows […, d] of one of `tables` [N, d] for nodes […].

        If several processes train the model, these are the rows of the own share of the nodes.
        """
        if self.shards is not None:
            return self.shards.rows(table, nodes, sparse=self.sparse_gradients)
        return functional.embedding(nodes, table, sparse=self.sparse_gradients)

    def shares(self, batch: Batch) -> tuple[Shards, int] | None:
        """Return who works on which share of a batch, and its size; None in a single process."""
        return None if self.shards is None else (self.shards, len(batch.users))

    def dot_scorer(self, embeddings: Tensor) -> DotScorer:
        """Return the scorer of embeddings [N, d] of all nodes, without copying them.

        If several processes train the model, embeddings are those of the own nodes.
        """
        if self.shards is not None:
            embeddings = self.shards.whole(embeddings)
        return DotScorer(embeddings[: self.num_users], embeddings[self.num_users :])
