"""Popularity: everyone is shown what most users took.

The floor below which no recommender should fall. Shapes: U users, I items.
"""

from typing import ClassVar, cast

import numpy as np
import torch

from mgformer.graph.bipartite import Graph
from mgformer.models.base import Model, ModelConfig
from mgformer.models.space import Space
from mgformer.ranking.scorers import DotScorer


class Popularity(Model):
    """score(u, i) = number of users of item i."""

    class Config(ModelConfig):
        """Popularity has no options."""

    space: ClassVar[Space] = {}

    def __init__(self, config: ModelConfig, graph: Graph, rng: np.random.Generator) -> None:
        self.config = cast(Popularity.Config, config)
        self.graph = graph

    def scorer(self) -> DotScorer:
        counts = torch.from_numpy(self.graph.item_degrees).float()
        return DotScorer(torch.ones(self.graph.num_users, 1), counts[:, None])
