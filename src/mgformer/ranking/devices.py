"""Scorers on a device: vectors move there, and histories are multiplied there.

A history scorer keeps its sparse matrices in the memory of the processor, where lists of masked
items are too. The entries of a few users are sent to the device for each tile, and nothing but
finished lists comes back.

Shapes: U users, I items, B users of a batch, L items of the longest history, D channels.
"""

from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor
from torch.nn import functional

from mgformer.device import HOST
from mgformer.graph.sparse import Entries, PaddedRows, csr_matmul, entries_of, row_numbers
from mgformer.ranking.scorers import DotScorer, HistoryScorer, Scorer, SumScorer

FOLDED_ENTRIES = 1 << 24
"""Numbers that are held while new users are folded in."""


def moved(scorer: Scorer, device: torch.device) -> Scorer:
    """Return the scorer with its tensors on a device."""
    if isinstance(scorer, SumScorer):
        vectors, history = moved(scorer.vectors, device), moved(scorer.history, device)
        assert isinstance(vectors, DotScorer)
        assert isinstance(history, HistoryScorer)
        return SumScorer(vectors, history)
    if isinstance(scorer, DotScorer):
        there = scorer.items.device == device
        kind = DotScorer if device.type == "cpu" else DeviceDotScorer
        if there and type(scorer) is kind:
            return scorer
        values = {own.name: getattr(scorer, own.name) for own in fields(scorer)}
        sides = {side: values[side].to(device) for side in ("users", "items")}
        return kind(**{**values, **sides})
    assert isinstance(scorer, HistoryScorer)
    values = {own.name: getattr(scorer, own.name) for own in fields(HistoryScorer)}
    if device.type == "cpu":
        return HistoryScorer(**values) if isinstance(scorer, DeviceHistoryScorer) else scorer
    if isinstance(scorer, DeviceHistoryScorer) and scorer.device == device:
        return scorer
    return DeviceHistoryScorer(**values, device=device)


def device_of(scorer: Scorer) -> torch.device:
    """Return where a scorer makes scores."""
    if isinstance(scorer, SumScorer):
        scorer = scorer.vectors
    if isinstance(scorer, DotScorer):
        return scorer.items.device
    return scorer.device if isinstance(scorer, DeviceHistoryScorer) else HOST


@dataclass(frozen=True, eq=False)
class DeviceDotScorer(DotScorer):
    """Vectors on a device; new users are folded in there, many at a time."""

    def fold_in(self, histories: sp.csr_array) -> "DotScorer":
        varying = self.items[:, : self.num_varying].double()
        users = self.items.new_ones(histories.shape[0], self.items.shape[1])
        longest = int(np.diff(histories.indptr).max(initial=0))
        of_a_user = max(longest, self.num_varying) * self.num_varying
        rows = max(1, FOLDED_ENTRIES // max(of_a_user, 1))
        for start in range(0, histories.shape[0], rows):
            padded = PaddedRows(sp.csr_array(histories[start : start + rows])).to(varying.device)
            folded = self._folded(varying, padded.columns, padded.weights.double())
            if self.unit:
                folded = functional.normalize(folded)
            users[start : start + rows, : self.num_varying] = folded.to(users.dtype)
        return replace(self, users=users)

    def _folded(self, varying: Tensor, items: Tensor, counts: Tensor) -> Tensor:
        """Solve (α₀ VᵀV + λ (Σ c + α₀ I) + Σ c v vᵀ) w = Σ c v for items and counts [B, L]."""
        own = functional.embedding(items, varying)  # [B, L, D]
        weighted = own * counts[:, :, None]
        ridge = self.l2 * (counts.sum(1) + self.unobserved_weight * self.num_items)  # [B]
        identity = torch.eye(varying.shape[1], dtype=varying.dtype, device=varying.device)
        system = self.unobserved_weight * (varying.T @ varying) + ridge[:, None, None] * identity
        return torch.linalg.solve(system + own.mT @ weighted, weighted.sum(1))


@dataclass(frozen=True, eq=False)
class DeviceHistoryScorer(HistoryScorer):
    """Multiplies histories by an item-item matrix on a device."""

    device: torch.device = HOST

    def scores(self, users: Tensor) -> Tensor:
        scores = self._products(self.histories[users.cpu().numpy()])
        return scores if self.item_factors is None else scores * self._there("item_factors")

    def _products(self, rows: sp.csr_array) -> Tensor:
        """Return the scores of histories [B, I] without the factors of items.

        Every product is a sum of rows in a fixed order: it does not depend on the batch.
        """
        entries = Entries(*(part.to(self.device) for part in entries_of(rows)))
        places = torch.from_numpy(row_numbers(rows)).to(self.device), entries.columns
        dense = torch.zeros(rows.shape, device=self.device).index_put_(places, entries.values).T
        total = torch.zeros_like(dense)  # [I, B]
        if isinstance(self.weights, Tensor):
            total = total + csr_matmul(entries, self._there("weights")).T
        elif self.weights is not None:
            total = total + csr_matmul(self._sparse["weights"], dense)
        if self.through is not None:
            total = total + csr_matmul(
                self._sparse["into"], csr_matmul(self._sparse["through"], dense)
            )
        if self.left is not None and self.right is not None:
            through = csr_matmul(entries, self._there("left")).double()
            total = total + (self._there("right").double() @ through.T).float()
        return total.T.contiguous()

    @cached_property
    def _tensors(self) -> dict[str, Tensor]:
        return {}

    def _there(self, name: str) -> Tensor:
        """Return a dense part on the device; it is sent once."""
        if name not in self._tensors:
            self._tensors[name] = getattr(self, name).to(self.device)
        return self._tensors[name]

    @cached_property
    def _sparse(self) -> dict[str, Entries]:
        """The sparse parts on the device, transposed for products with columns."""
        found = {}
        if self.weights is not None and not isinstance(self.weights, Tensor):
            found["weights"] = sp.csr_array(self.weights.T)
        if self.through is not None:
            found["through"], found["into"] = self.through, sp.csr_array(self.through.T)
        return {
            name: Entries(*(part.to(self.device) for part in entries_of(matrix)))
            for name, matrix in found.items()
        }
