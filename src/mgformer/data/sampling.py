"""Batches of training pairs in random order, and random negative items.

Shapes: B pairs in a batch, C draws for each.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mgformer.data.interactions import Interactions
from mgformer.device import double_on


class Batch(NamedTuple):
    """Training pairs of a user and an item."""

    users: Tensor  # [B] int64
    items: Tensor  # [B] int64


def num_batches(pairs: Interactions, batch_size: int) -> int:
    """Return the number of batches per epoch; the last batch may be smaller."""
    return math.ceil(len(pairs) / batch_size)


def shuffled_batches(
    pairs: Interactions,
    batch_size: int,
    rng: np.random.Generator,
    chances: NDArray[np.float64] | None = None,
    device: torch.device | None = None,
) -> Iterator[Batch]:
    """Yield every pair once, in random order, on a device: by default the processor.

    With `chances` [E], which sum to 1, as many pairs are drawn by chance: some of them repeatedly.
    """
    if chances is None:
        order = torch.from_numpy(rng.permutation(len(pairs)))
    else:
        order = torch.from_numpy(rng.choice(len(pairs), len(pairs), p=chances))
    order = order.to(device)
    users, items = (torch.from_numpy(side).to(device) for side in (pairs.rows, pairs.indices))
    for chosen in torch.split(order, batch_size):
        yield Batch(users[chosen].long(), items[chosen].long())


class UnseenItems(nn.Module):
    """Draw uniformly from the items that a user does not have, without rejection.

    If a user has the items i_0 < i_1 < …, then i_k − k unseen items are smaller than i_k. So the
    unseen item of rank r is r + k, where k is the number of the user's items i_j with i_j − j ≤ r.
    """

    def __init__(self, interactions: sp.csr_array) -> None:
        """Prepare for a CSR matrix of pairs with sorted rows."""
        super().__init__()
        num_users, self.num_items = interactions.shape
        counts = np.diff(interactions.indptr).astype(np.int64)
        starts = interactions.indptr[:-1].astype(np.int64)
        rows = np.repeat(np.arange(num_users), counts)
        places = np.arange(len(rows)) - np.repeat(starts, counts)
        below = interactions.indices - places  # [E], not decreasing within a row
        keys = torch.from_numpy(rows * self.num_items + below)
        self._keys = nn.Buffer(keys, persistent=False)  # [E], not decreasing
        self._starts = nn.Buffer(torch.from_numpy(starts), persistent=False)
        self._unseen = nn.Buffer(torch.from_numpy(self.num_items - counts), persistent=False)  # [U]

    def draw(self, users: Tensor, count: int, generator: torch.Generator) -> Tensor:
        """Return items [B, C] drawn for users [B]; a user who has all items gets any of them."""
        unseen = self._unseen[users]
        among = torch.where(unseen > 0, unseen, self.num_items)[:, None]
        size, kind = (len(users), count), double_on(users.device)
        uniform = torch.rand(size, generator=generator, dtype=kind, device=users.device)
        ranks = (uniform * among).long()  # [B, C]
        keys = users[:, None] * self.num_items + ranks
        seen_below = torch.searchsorted(self._keys, keys, right=True) - self._starts[users][:, None]
        return torch.where(unseen[:, None] > 0, ranks + seen_below, ranks)
