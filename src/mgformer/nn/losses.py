"""Training objectives as pure functions of scores and rows.

alignment and uniformity are those of Wang & Isola (ICML 2020, arXiv:2005.10242), put to use for
recommendation by DirectAU (KDD 2022, arXiv:2206.12811). Every loss is a mean over the batch, so
that weights do not depend on its size.

Shapes: B pairs in a batch, D channels, C candidates.
"""

import math
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional


def bpr(positive: Tensor, negative: Tensor) -> Tensor:
    """Return the mean of -log σ(positive - negative) over scores [B]."""
    return functional.softplus(negative - positive).mean()


def l2_of_rows(*rows: Tensor) -> Tensor:
    """Return half the squared norms of tensors [B, D], summed, per pair of the batch."""
    return 0.5 * torch.stack([part.square().sum() for part in rows]).sum() / len(rows[0])


def alignment(x: Tensor, y: Tensor) -> Tensor:
    """Return the mean squared distance of matching rows of x, y [B, D], each of unit length."""
    return (functional.normalize(x) - functional.normalize(y)).square().sum(1).mean()


def uniformity(x: Tensor, t: float) -> Tensor:
    """Return log mean exp(-t ‖x_a - x_b‖²) over the pairs a < b of rows of x [B, D] of unit length.

    Equal rows are different rows: duplicates count. A single row has no pairs and gives 0.
    """
    batch = len(x)
    if batch < 2:
        return 0.0 * x.sum()
    x = functional.normalize(x)
    squared = (2 - 2 * x @ x.T).clamp_min(0)  # [B, B]
    itself = torch.eye(batch, dtype=torch.bool, device=x.device)
    logits = (-t * squared).masked_fill(itself, -math.inf)
    return logits.flatten().logsumexp(0) - math.log(batch * (batch - 1))  # a < b and a > b


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
    uniform = uniformity(users, t) + uniformity(items, t)
    return alignment(users, items) + weight * (uniform if sides == "sum" else 0.5 * uniform)


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
    logits = a @ c.T / temperature  # [B, C]
    return (logits.logsumexp(1) - (a * b).sum(1) / temperature).mean()
