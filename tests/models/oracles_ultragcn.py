"""UltraGCN as published, in plain torch: dense tables, one batch after the other, no shortcuts.

Written from the equations of the paper and the update rule of its public code: the loss is a *sum*
over the pairs of a batch, every pair has its own drawn items, the squared norm is that of both
whole tables, and Adam updates all rows at every step. It shares no code with `models/ultragcn.py`.

Shapes: U users, I items, d channels; B pairs in a batch, C drawn items, K neighbors of an item.
"""

import math
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor
from torch.nn.functional import softplus


class Published(NamedTuple):
    """Options, with the names of the paper; the defaults are its settings for Yelp2018."""

    dim: int = 64
    spread: float = 1e-4
    w1: float = 1e-8
    w2: float = 1.0
    w3: float = 1e-8
    w4: float = 1.0
    negative_num: int = 800
    negative_weight: float = 300.0
    neighbors: int = 10
    item_lambda: float = 5e-4
    gamma: float = 1e-4
    batch_size: int = 1024
    lr: float = 1e-3


class Reference:
    """The tables of users [U, d] and items [I, d], and one step of training."""

    def __init__(
        self, pairs: sp.csr_array, options: Published, seed: int, dtype: torch.dtype = torch.float32
    ) -> None:
        self.pairs, self.options = sp.csr_array(pairs, dtype=np.float64), options
        self.generator = torch.Generator().manual_seed(seed)
        self.users, self.items = (
            (
                torch.randn(rows, options.dim, generator=self.generator, dtype=dtype)
                * options.spread
            ).requires_grad_()
            for rows in pairs.shape
        )
        self.user_degrees = torch.from_numpy(self.pairs.sum(axis=1)).to(dtype)
        self.item_degrees = torch.from_numpy(self.pairs.sum(axis=0)).to(dtype)
        self.near, omega = neighbors_of(self.pairs, options.neighbors)
        self.omega = omega.to(dtype)
        self.adam = torch.optim.Adam([self.users, self.items], lr=options.lr)

    def beta(self, users: Tensor, items: Tensor) -> Tensor:
        """β_ui = √((d_u + 1) / (d_i + 1)) / d_u."""
        d_u, d_i = self.user_degrees[users], self.item_degrees[items]
        return ((d_u + 1) / (d_i + 1)).sqrt() / d_u

    def loss(self, users: Tensor, items: Tensor, drawn: Tensor) -> Tensor:
        """Return the loss of pairs [B], [B] with drawn items [B, C], summed over the pairs."""
        o = self.options
        scores = self.users[users] @ self.items.T  # [B, I], of which a few are used
        column = users[:, None]
        seen = (o.w1 + o.w2 * self.beta(users, items)) * softplus(
            -scores.gather(1, items[:, None])[:, 0]
        )
        unseen = (o.w3 + o.w4 * self.beta(column, drawn)) * softplus(scores.gather(1, drawn))
        near = self.omega[items] * softplus(-scores.gather(1, self.near[items]))
        norm = self.users.square().sum() + self.items.square().sum()
        return (
            seen.sum()
            + o.negative_weight * unseen.mean(1).sum()
            + o.item_lambda * near.sum()
            + o.gamma / 2 * norm
        )

    def epoch(self, learning_rates: list[float] | None = None) -> float:
        """Train one epoch and return its mean loss of a pair; learning rates are those of steps."""
        rows, columns = (torch.from_numpy(side).long() for side in self.pairs.nonzero())
        order, total = torch.randperm(len(rows), generator=self.generator), 0.0
        for step, chosen in enumerate(order.split(self.options.batch_size)):
            if learning_rates is not None:
                self.adam.param_groups[0]["lr"] = learning_rates[step]
            size = (len(chosen), self.options.negative_num)
            drawn = torch.randint(self.pairs.shape[1], size, generator=self.generator)
            loss = self.loss(rows[chosen], columns[chosen], drawn)
            self.adam.zero_grad()
            loss.backward()
            self.adam.step()
            total += loss.item()
        return total / len(rows)


def neighbors_of(pairs: sp.csr_array, count: int) -> tuple[Tensor, Tensor]:
    """Return the items with the largest ω of each item [I, K], and ω [I, K], item by item."""
    g = sp.csr_array(pairs.T @ pairs)
    totals = np.asarray(g.sum(axis=1)).ravel()
    chosen, values = [], []
    for item, total in enumerate(totals):
        row = g[[item]].toarray()[0]
        omega = row * math.sqrt(total + 1) / (max(total, 1) * np.sqrt(totals + 1))
        best = np.argsort(-omega, kind="stable")[:count]
        chosen.append(best)
        values.append(omega[best])
    return torch.from_numpy(np.array(chosen)), torch.from_numpy(np.array(values))
