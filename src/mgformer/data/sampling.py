"""Batches of training pairs, shuffled anew for every epoch.

Shapes: B pairs in a batch.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from mgformer.data.interactions import Interactions


class Batch(NamedTuple):
    """Pairs of a user and an item the user has."""

    users: Tensor  # [B] int64
    items: Tensor  # [B] int64


def num_batches(pairs: Interactions, batch_size: int) -> int:
    """Return the number of batches of an epoch; the last may be smaller than the others."""
    return math.ceil(len(pairs) / batch_size)


def shuffled_batches(
    pairs: Interactions, batch_size: int, rng: np.random.Generator
) -> Iterator[Batch]:
    """Yield every pair once, in random order."""
    order = torch.from_numpy(rng.permutation(len(pairs)))
    users, items = (torch.from_numpy(side) for side in (pairs.rows, pairs.indices))
    for chosen in torch.split(order, batch_size):
        yield Batch(users[chosen].long(), items[chosen].long())
