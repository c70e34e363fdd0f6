"""Popularity: recommends the items with the most users to everyone.

Every other recommender should do better than this one.
"""

from typing import ClassVar

import torch

from mgformer.device import HOST
from mgformer.models.base import Model, ModelConfig
from mgformer.ranking.scorers import DotScorer


class Popularity(Model):
    """score(u, i) = number of users of item i."""

    weights: ClassVar[str | None] = "an item counts the sum of the weights of its pairs"

    class Config(ModelConfig):
        """Popularity has no options."""

    def scorer(self) -> DotScorer:
        counts = torch.from_numpy(self.graph.item_strengths).float()
        return DotScorer(torch.ones(self.graph.num_users, 1, device=HOST), counts[:, None])
