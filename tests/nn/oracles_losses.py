"""Slow references of losses, row by row."""

import torch


def alignment(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The mean squared distance of matching rows on the sphere, row by row."""
    total = torch.zeros((), dtype=x.dtype)
    for a, b in zip(x, y, strict=True):
        total = total + (a / a.norm() - b / b.norm()).square().sum()
    return total / len(x)


def uniformity(x: torch.Tensor, t: float) -> torch.Tensor:
    """log of the mean over pairs a < b of exp(-t ‖x_a - x_b‖²) on the sphere, pair by pair."""
    rows = [row / row.norm() for row in x]
    terms = [
        torch.exp(-t * (rows[a] - rows[b]).square().sum())
        for a in range(len(rows))
        for b in range(a + 1, len(rows))
    ]
    return torch.stack(terms).mean().log()


def info_nce(
    a: torch.Tensor, b: torch.Tensor, candidates: torch.Tensor, temperature: float
) -> torch.Tensor:
    """The mean of -log(exp(cos(a_r, b_r) / τ) / Σ_k exp(cos(a_r, c_k) / τ)), row by row."""

    def weight(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.exp(x @ y / (x.norm() * y.norm() * temperature))

    total = torch.zeros((), dtype=a.dtype)
    for x, y in zip(a, b, strict=True):
        everything = torch.stack([weight(x, c) for c in candidates]).sum()
        total = total - torch.log(weight(x, y) / everything)
    return total / len(a)
