"""Losses as pure functions of embeddings.

Alignment and uniformity come from Wang & Isola (ICML 2020, arXiv:2005.10242); DirectAU (KDD 2022,
arXiv:2206.12811) uses them for recommendation. Every loss is a mean over the batch, so that weights
do not depend on its size.

Shapes: B pairs in a batch, D channels, C candidates.
"""

import math
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from mgformer.graph.sparse import block_slices
from mgformer.world import Shards

BLOCK_ROWS = 256
"""Rows compared with all others at a time; their weights fit into the cache."""
SHORTEST = 1e-12
"""Smallest length that a row is divided by: a row of zeros has no direction."""
BLOCK_SCORES = 1 << 21
"""Scores held at a time when rows are compared with a table; 2^20 to 2^22 are equally fast."""


def bpr(users: Tensor, items: Tensor, others: Tensor, *, batch: int | None = None) -> Tensor:
    """Return the mean of -log σ(u·i - u·j) over pairs [B, D] and their negatives j [B, C, D].

    If the pairs are a share of a batch, `batch` is its size: shares add up to the mean.
    """
    positive = (users * items).sum(1, keepdim=True)  # [B, 1]
    negative = (others @ users[:, :, None]).squeeze(2)  # [B, C]
    found = functional.logsigmoid(positive - negative)
    return -found.mean() if batch is None else -found.sum() / (batch * others.shape[1])


def l2_of_rows(*rows: Tensor, batch: int | None = None) -> Tensor:
    """Return half the sum of the squared norms of tensors [B, …, D], divided by B.

    If the rows are a share of a batch, `batch` is its size.
    """
    return 0.5 * torch.stack([part.square().sum() for part in rows]).sum() / (batch or len(rows[0]))


def align_uniform(
    users: Tensor,
    items: Tensor,
    weight: float,
    *,
    t: float = 1.0,
    sides: Literal["sum", "mean"] = "sum",
    block_rows: int = BLOCK_ROWS,
    shares: tuple[Shards, int] | None = None,
) -> Tensor:
    """Return alignment plus `weight` times uniformity of matching rows [B, D]: Eq. (13).

    Rows are scaled to unit length. Alignment is the mean ‖u - i‖² over pairs. Uniformity of a side
    is log mean exp(-t ‖x_a - x_b‖²) over all a ≠ b; `sides` says how users and items are combined.
    MGFormer's paper has t = 1 and the sum, DirectAU t = 2 and the mean. Duplicates in a batch count
    as different rows. A batch of one pair has no uniformity. If the rows are the share of a rank,
    `shares` says of whom and how large the batch is; the losses of all ranks add up to the loss.
    """
    weight = weight if sides == "sum" else 0.5 * weight

    def compute(users: Tensor, items: Tensor) -> tuple[Tensor, ...]:
        # For a unit row x_a with partner y_a the gradient is 2 (x_a - y_a) / B plus `weight` times
        # 4t Σ_b w_ab x_b / Σ w, with w_ab = exp(-t ‖x_a - x_b‖²). For h_a = ‖h_a‖ x_a it is the
        # part orthogonal to x_a, divided by ‖h_a‖.
        batch = len(users) if shares is None else shares[1]
        lengths = [side.norm(dim=1, keepdim=True).clamp_min(SHORTEST) for side in (users, items)]
        units = [side / length for side, length in zip((users, items), lengths, strict=True)]
        apart = units[0] - units[1]
        value = apart.square().sum() / batch
        gradients = []
        for x, length, sign in zip(units, lengths, (2, -2), strict=True):
            gradient = apart * (sign / batch)
            if batch > 1:
                if shares is None:
                    (total, sums), ranks = _pair_weights(x, t, block_rows), 1
                else:
                    total, sums = _own_pair_weights(x, t, block_rows, *shares)
                    ranks = shares[0].world.size
                value = value + weight / ranks * (total.log() - math.log(batch * (batch - 1)))
                gradient.addcmul_(sums, 4 * t * weight / total)
            along = (gradient * x).sum(1, keepdim=True)
            gradients.append(gradient.addcmul_(x, along, value=-1).div_(length))
        return value, *gradients

    return _with_gradients(compute, users, items)


def _pair_weights(x: Tensor, t: float, block_rows: int) -> tuple[Tensor, Tensor]:
    """Return Σ_ab w_ab and, for every row, Σ_b w_ab x_b [B, D], over a ≠ b, each pair once.

    Rows have unit length, so logits lie in [-4t, 0]: the sums cannot overflow, and vanish only for
    very large t. The [B, B] weights are never kept.
    """
    batch, total = len(x), x.new_zeros(())
    sums, shift = torch.zeros_like(x), x.new_tensor(-2 * t)
    for start in range(0, batch, block_rows):
        stop = min(start + block_rows, batch)
        # By symmetry, an earlier block has computed the pairs with rows before `start`.
        weights = torch.addmm(shift, x[start:stop], x[start:].T, alpha=2 * t).exp_()
        weights.diagonal().zero_()
        total = total + weights.sum()
        sums[start:stop].addmm_(weights, x[start:])
        if stop < batch:
            later = weights[:, stop - start :]
            sums[stop:].addmm_(later.T, x[start:stop])
            total = total + later.sum()
    return total, sums


def _own_pair_weights(
    x: Tensor, t: float, block_rows: int, shards: Shards, batch: int
) -> tuple[Tensor, Tensor]:
    """Return what `_pair_weights` returns, for rows that are a share of a batch.

    The first is that of the whole batch, the second has the own rows.
    """
    every, first = shards.every(x, batch), shards.part(batch).start
    total, sums = x.new_zeros(()), torch.zeros_like(x)
    for start in range(0, len(x), block_rows):
        own = slice(start, min(start + block_rows, len(x)))
        weights = torch.addmm(x.new_tensor(-2 * t), x[own], every.T, alpha=2 * t).exp_()
        itself = torch.arange(own.start, own.stop, device=x.device)
        weights[itself - own.start, itself + first] = 0
        total = total + weights.sum()
        torch.mm(weights, every, out=sums[own])
    return shards.world.summed(total), sums


def info_nce(
    a: Tensor,
    b: Tensor,
    temperature: float,
    *,
    candidates: Tensor | None = None,
    counted: Tensor | None = None,
    block_scores: int = BLOCK_SCORES,
) -> Tensor:
    """Return the mean over r of logsumexp_k(a_r·c_k / τ) - a_r·b_r / τ, with rows of unit length.

    a and b are two views [B, D] of the same rows. The candidates c_k [C, D] include the b_r; they
    are the rows of b if not given. With a mask `counted` [B], other rows neither count nor are
    candidates.
    """
    a, b = functional.normalize(a), functional.normalize(b)
    c = b if candidates is None else functional.normalize(candidates)
    a = a / temperature
    if counted is None:
        return mean_log_sum_exp(a, c, block_scores) - (a * b).sum(1).mean()
    among = counted if candidates is None else None
    near = ((a * b).sum(1) * counted).sum() / counted.sum()
    return mean_log_sum_exp(a, c, block_scores, counted=counted, among=among) - near


def mean_log_sum_exp(
    a: Tensor,
    c: Tensor,
    block_scores: int = BLOCK_SCORES,
    *,
    counted: Tensor | None = None,
    among: Tensor | None = None,
) -> Tensor:
    """Return the mean over the rows of a [B, D] of log Σ_k exp(a_r·c_k), over rows of c [C, D].

    The [B, C] scores are computed block by block and never kept. Masks `counted` [B] and `among`
    [C] leave out other rows of a and of c.
    """

    def compute(a: Tensor, c: Tensor) -> tuple[Tensor, ...]:
        # The gradients are p c / B and pᵀ a / B with p_rk = softmax_k(a_r·c_k).
        total = a.new_zeros(())
        batch = len(a) if counted is None else counted.sum().to(a.dtype)
        for_a, for_c = torch.empty_like(a), torch.zeros_like(c)
        for rows in block_slices(len(a), len(c), block_scores):
            p = a[rows] @ c.T  # [block, C]
            if among is not None:
                p.masked_fill_(~among, -torch.inf)
            peaks = p.amax(1, keepdim=True)
            p.sub_(peaks).exp_()
            sums = p.sum(1, keepdim=True)
            if counted is None:
                total = total + (peaks + sums.log()).sum()
                p /= sums * batch
            else:
                share = counted[rows, None].to(a.dtype)
                total = total + ((peaks + sums.log()) * share).sum()
                p *= share / (sums * batch)
            torch.mm(p, c, out=for_a[rows])
            for_c.addmm_(p.T, a[rows])
        return total / batch, for_a, for_c

    return _with_gradients(compute, a, c)


def _with_gradients(
    compute: Callable[[Tensor, Tensor], tuple[Tensor, ...]], a: Tensor, b: Tensor
) -> Tensor:
    """Return the value of a function that computes its two gradients together with its value."""
    # Under mixed precision too: logarithms of sums need all the digits.
    with nullcontext() if a.is_meta else torch.autocast(a.device.type, enabled=False):
        a, b = (x.float() if x.dtype == torch.bfloat16 else x for x in (a, b))
        value: Tensor = _WithGradients.apply(compute, a, b)  # type: ignore[no-untyped-call]
    return value


class _WithGradients(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, compute: Callable[..., Any], a: Tensor, b: Tensor) -> Tensor:
        value, *gradients = compute(a, b)
        ctx.save_for_backward(*gradients)
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return None, *(known * gradient for known in ctx.saved_tensors)
