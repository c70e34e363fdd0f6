"""Training objectives as pure functions of scores and rows.

alignment and uniformity are those of Wang & Isola (ICML 2020, arXiv:2005.10242), put to use for
recommendation by DirectAU (KDD 2022, arXiv:2206.12811). Every loss is a mean over the batch, so
that weights do not depend on its size.

Shapes: B pairs in a batch, D channels, C candidates.
"""

import math
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from mgformer.graph.products import block_slices

BLOCK_ROWS = 256
"""Rows whose distances to all others are held at a time: a block of weights stays in the cache."""
BLOCK_SCORES = 1 << 21
"""Scores held at a time where rows are compared with a whole table; 2^20 to 2^22 measured alike."""


def bpr(users: Tensor, items: Tensor, others: Tensor) -> Tensor:
    """Return the mean of -log σ(u·i - u·j) over pairs [B, D] and others j [B, C, D] of each."""
    positive = (users * items).sum(1, keepdim=True)  # [B, 1]
    negative = (others @ users[:, :, None]).squeeze(2)  # [B, C]
    return -functional.logsigmoid(positive - negative).mean()


def l2_of_rows(*rows: Tensor) -> Tensor:
    """Return half the squared norms of tensors [B, …, D], summed, per pair of the batch."""
    return 0.5 * torch.stack([part.square().sum() for part in rows]).sum() / len(rows[0])


def alignment(x: Tensor, y: Tensor) -> Tensor:
    """Return the mean squared distance of matching rows of x, y [B, D], each of unit length."""
    return _alignment_of_unit(functional.normalize(x), functional.normalize(y))


def _alignment_of_unit(x: Tensor, y: Tensor) -> Tensor:
    return (x - y).square().sum(1).mean()


def uniformity(x: Tensor, t: float) -> Tensor:
    """Return log mean exp(-t ‖x_a - x_b‖²) over the pairs a < b of rows of x [B, D] of unit length.

    Equal rows are different rows: duplicates count. A single row has no pairs and gives 0.
    """
    return _uniformity_of_unit(functional.normalize(x), t)


def _uniformity_of_unit(x: Tensor, t: float) -> Tensor:
    if len(x) < 2:
        return 0.0 * x.sum()
    value: Tensor = _Uniformity.apply(x, t)  # type: ignore[no-untyped-call]
    return value


class _Uniformity(torch.autograd.Function):
    """Uniformity of unit rows, block by block, every pair once.

    The gradient for row a is 4t Σ_b w_ab x_b / Σ w with w_ab = exp(-t ‖x_a - x_b‖²), so its sums
    are taken while a block of weights is at hand, and the [B, B] weights are never kept. Rows are
    of unit length: no logit lies outside [-4t, 0], and sums of their exponentials neither overflow
    nor, with t of a reasonable size, vanish.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, t: float) -> Tensor:
        batch, total = len(x), x.new_zeros(())
        sums = torch.zeros_like(x)  # [B, D] of w_ab x_b
        shift = x.new_tensor(-2 * t)
        for start in range(0, batch, BLOCK_ROWS):
            stop = min(start + BLOCK_ROWS, batch)
            # Pairs with rows before `start` are in an earlier block, which is symmetric to this.
            weights = torch.addmm(shift, x[start:stop], x[start:].T, alpha=2 * t).exp_()
            weights.diagonal().zero_()
            total = total + weights.sum()
            sums[start:stop] += weights @ x[start:]
            later = weights[:, stop - start :]
            sums[stop:].addmm_(later.T, x[start:stop])
            total = total + later.sum()
        ctx.save_for_backward(sums, total)
        ctx.t = t
        return total.log() - math.log(batch * (batch - 1))  # a < b and a > b

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        sums, total = ctx.saved_tensors
        return sums * (gradient * 4 * ctx.t / total), None


def align_uniform(
    users: Tensor,
    items: Tensor,
    weight: float,
    *,
    t: float = 1.0,
    sides: Literal["sum", "mean"] = "sum",
) -> Tensor:
    """Return alignment plus `weight` times uniformity of matching rows [B, D]: Eq. (13).

    Args:
        users: Embeddings of the users of the batch.
        items: Embeddings of their items.
        weight: λ of MGFormer, γ of DirectAU.
        t: Sharpness of uniformity: 1 in MGFormer's paper, 2 in DirectAU.
        sides: Users and items are summed in MGFormer's paper, averaged in DirectAU.
    """
    users, items = functional.normalize(users), functional.normalize(items)
    uniform = _uniformity_of_unit(users, t) + _uniformity_of_unit(items, t)
    aligned = _alignment_of_unit(users, items)
    return aligned + weight * (uniform if sides == "sum" else 0.5 * uniform)


def info_nce(
    a: Tensor, b: Tensor, temperature: float, *, candidates: Tensor | None = None
) -> Tensor:
    """Return the mean over r of logsumexp_k(a_r·c_k / τ) - a_r·b_r / τ, rows of unit length.

    Args:
        a: One view [B, D].
        b: The other view of the same rows [B, D].
        temperature: τ.
        candidates: The c_k [C, D] among which b_r is to be told apart, such as the other view of
            a whole table, b_r being one of them; the rows of b, if not given.
    """
    a, b = functional.normalize(a), functional.normalize(b)
    c = b if candidates is None else functional.normalize(candidates)
    a = a / temperature
    return mean_log_sum_exp(a, c) - (a * b).sum(1).mean()


def mean_log_sum_exp(a: Tensor, c: Tensor) -> Tensor:
    """Return the mean over the rows of a [B, D] of log Σ_k exp(a_r·c_k), over rows of c [C, D].

    The [B, C] products are made block by block and never kept.
    """
    value: Tensor = _MeanLogSumExp.apply(a, c)  # type: ignore[no-untyped-call]
    return value


class _MeanLogSumExp(torch.autograd.Function):
    """With p_rk = softmax_k(a_r·c_k), the gradients are p c / B and pᵀ a / B: taken on the way."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, c: Tensor) -> Tensor:
        batch, total = len(a), a.new_zeros(())
        for_a, for_c = torch.empty_like(a), torch.zeros_like(c)
        for rows in block_slices(batch, len(c), BLOCK_SCORES):
            p = a[rows] @ c.T  # [block, C]
            peaks = p.amax(1, keepdim=True)
            p.sub_(peaks).exp_()
            sums = p.sum(1, keepdim=True)
            total = total + (peaks + sums.log()).sum()
            p /= sums * batch
            torch.mm(p, c, out=for_a[rows])
            for_c.addmm_(p.T, a[rows])
        ctx.save_for_backward(for_a, for_c)
        return total / batch

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        for_a, for_c = ctx.saved_tensors
        return for_a * gradient, for_c * gradient
