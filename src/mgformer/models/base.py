"""The contract of a model.

A model is built from its `Config`, the training graph and a generator, and ends as a `Scorer`.
It knows nothing of files, devices, optimisers, metrics or external ids.
"""

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
from pydantic import BaseModel, ConfigDict

from mgformer.graph.bipartite import Graph
from mgformer.ranking.scorers import Scorer


class ModelConfig(BaseModel):
    """Hyper-parameters of a model; each is written once, with its meaning below it."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Model(ABC):
    """A recommender without gradient training: everything happens in `scorer`."""

    Config: ClassVar[type[ModelConfig]]

    @abstractmethod
    def __init__(self, config: ModelConfig, graph: Graph, rng: np.random.Generator) -> None:
        """Keep what is needed; the graph holds training pairs only."""

    @abstractmethod
    def scorer(self) -> Scorer:
        """Return the trained recommender."""
