"""The contract of a model.

A model is built from its `Config`, the training graph and a generator, and ends as a `Scorer`.
It knows nothing of files, devices, optimisers, metrics or external ids.
"""

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor, nn

from mgformer.data.sampling import Batch
from mgformer.graph.bipartite import Graph
from mgformer.models.space import Space
from mgformer.ranking.score import Kind
from mgformer.ranking.scorers import DotScorer, Scorer


class ModelConfig(BaseModel):
    """Hyper-parameters of a model; each is written once, with its meaning below it."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Model(ABC):
    """A recommender without gradient training: everything happens in `scorer`."""

    Config: ClassVar[type[ModelConfig]]
    space: ClassVar[Space]
    """Where its options are looked for by tuning; options that are not in it stay as given."""
    score_kinds: ClassVar[tuple[Kind, ...]] = ()
    """How its embeddings may be compared unless the run says; the best on validation is taken, the
    first without validation. Empty: it has no embeddings."""

    @abstractmethod
    def __init__(self, config: ModelConfig, graph: Graph, rng: np.random.Generator) -> None:
        """Keep what is needed; the graph holds training pairs only."""

    @abstractmethod
    def scorer(self) -> Scorer:
        """Return the trained recommender."""


class TrainableModel(nn.Module, Model):
    """A recommender trained by gradient descent on batches of pairs, ending as embeddings.

    Its parameters are what training changes and a checkpoint keeps, together with its persistent
    buffers; everything else follows from the config, the graph and the generator.
    """

    score_kinds: ClassVar[tuple[Kind, ...]] = ("dot",)
    sparse_gradients: bool = False
    """Whether gradients of `tables` hold only the rows touched; the training loop sets it."""

    def __init__(self) -> None:
        nn.Module.__init__(self)

    @abstractmethod
    def loss(self, batch: Batch, generator: torch.Generator) -> Tensor:
        """Return the scalar to minimise on a batch; what is random is drawn from `generator`."""

    @abstractmethod
    def scorer(self) -> DotScorer:
        """Return the recommender as it is now."""

    def tables(self) -> list[nn.Parameter]:
        """Return the parameters of which a batch touches a few rows only."""
        return []

    def on_epoch(self, rng: np.random.Generator) -> None:
        """Prepare for an epoch, such as by drawing anew what is drawn once per epoch."""
