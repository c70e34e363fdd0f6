"""A model in closed form, a model that is trained, a metric and a split of your own.

docs/guide/own-model.md walks through this file.
"""

from typing import Annotated

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from mgformer.data.interactions import Interactions
from mgformer.data.options import SplitConfig
from mgformer.data.sampling import Batch
from mgformer.graph.bipartite import Graph
from mgformer.models.base import Model, ModelConfig, TrainableModel
from mgformer.models.space import Float, Int
from mgformer.ranking.metrics import Counts, Hits, Values
from mgformer.ranking.scorers import DotScorer, HistoryScorer


class Cosine(Model):
    """Items are similar if the same users took them: a user's items vote for similar ones."""

    class Config(ModelConfig):
        """Options of Cosine."""

        shrink: Annotated[float, Float(0.1, 100.0, log=True)] = 10.0
        """Lowers the similarity of items that few users took."""

    config: Config

    def scorer(self) -> HistoryScorer:
        pairs = self.graph.interactions  # [users, items], 1 where a user took an item
        together = (pairs.T @ pairs).toarray()  # [items, items], users who took both
        norms = np.sqrt(together.diagonal())
        similar = together / (np.outer(norms, norms) + self.config.shrink)
        np.fill_diagonal(similar, 0.0)
        return HistoryScorer(pairs, torch.from_numpy(similar.astype(np.float32)))


class Factors(TrainableModel):
    """One vector for each user and item; a user's items score above random items."""

    class Config(ModelConfig):
        """Options of Factors."""

        dim: Annotated[int, Int(8, 64, log=True)] = 32
        """Length of the vectors."""

    config: Config

    def __init__(self, config: Config, graph: Graph, rng: np.random.Generator) -> None:
        super().__init__(config, graph, rng)
        drawn = 0.1 * rng.standard_normal((graph.num_nodes, config.dim), dtype=np.float32)
        self.vectors = nn.Parameter(torch.from_numpy(drawn))  # users first, then items

    def loss(self, batch: Batch, generator: torch.Generator) -> Tensor:
        random = torch.randint(self.num_items, batch.items.shape, generator=generator)
        user, item, other = (
            self.vectors[nodes]
            for nodes in (batch.users, batch.items + self.num_users, random + self.num_users)
        )
        return -functional.logsigmoid((user * (item - other)).sum(1)).mean()

    def scorer(self) -> DotScorer:
        return self.dot_scorer(self.vectors.detach().clone())


def rank_biased(hits: Hits, relevant: Counts, k: int) -> Values:
    """Return rank-biased precision: a reader looks at the next item with probability 0.8."""
    found = hits[:, :k]
    return found @ (0.2 * 0.8 ** np.arange(found.shape[1]))


def every_tenth(
    pairs: Interactions, options: SplitConfig, rng: np.random.Generator
) -> NDArray[np.int8]:
    """Return the part of each pair: 0 for train, 1 for validation, 2 for test."""
    place = rng.permutation(len(pairs)) % 10
    return np.where(place == 0, 1, np.where(place == 1, 2, 0)).astype(np.int8)
