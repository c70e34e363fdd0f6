"""The best scores of each row, and whether rough scores are enough to know them.

Shapes: B users of a tile, T items of a tile, n candidates.
"""

import torch
from torch import Tensor

from mgformer.ranking.exact import DEPTH, LEVELS


def best_columns(scores: Tensor, n: int, levels: int = LEVELS) -> tuple[Tensor, Tensor]:
    """Return columns and scores of the n best per row [B, min(n, T)], in any order.

    Block b holds the columns b, b + width, b + 2 · width, …, so that block maxima are maxima of
    whole vectors. The n blocks with the highest maxima contain the n best scores, because each of
    these blocks holds a score that is at least the lowest of these maxima. The last columns, which
    fill no layer, are candidates too.
    """
    rows, num = scores.shape
    if levels == 0 or num < 4 * DEPTH * n:
        values, places = scores.topk(min(n, num), sorted=False)
        return places, values
    width = num // DEPTH
    whole = width * DEPTH
    layers = scores[:, :whole].unflatten(1, (DEPTH, width))
    blocks, _ = best_columns(layers.amax(1), n, levels - 1)  # [B, n]
    firsts = width * torch.arange(DEPTH, device=scores.device)[:, None]
    inside = (blocks[:, None, :] + firsts).flatten(1)  # [B, DEPTH · n] columns of these blocks
    rest = torch.arange(whole, num, device=scores.device).expand(rows, -1)
    columns = torch.cat([inside, rest], 1)
    values, places = scores.gather(1, columns).topk(n, sorted=False)
    return columns.gather(1, places), values


def merge(
    found: tuple[Tensor, Tensor] | None, more: tuple[Tensor, Tensor], n: int
) -> tuple[Tensor, Tensor]:
    """Return the n best of the candidates so far and those of another tile of items."""
    if found is None:
        return more
    best, values = (torch.cat(part, 1) for part in zip(found, more, strict=True))
    values, places = values.topk(n, sorted=False)
    return best.gather(1, places), values


def settle(
    best: Tensor, rough: Tensor, exact: Tensor, k: int, margin: Tensor, num_items: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Order candidates by exact score, then by number; return a mask of the uncertain rows.

    The rough score of any other item is at most the lowest rough score of a candidate, and it is
    off by at most `margin`. A row is uncertain if such an item could reach the k-th exact score.
    """
    order = best.argsort(1)
    best, ranked = best.gather(1, order), exact.gather(1, order)
    order = ranked.argsort(dim=1, descending=True, stable=True)[:, :k]
    best, ranked = best.gather(1, order), ranked.gather(1, order)
    last = ranked[:, -1]
    unsure = (rough.amin(1) + margin >= last) & ~last.isneginf()
    if exact.shape[1] == num_items:
        unsure = torch.zeros_like(unsure)
    return best, ranked, unsure


def sort_row(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the k best scores of a row and their columns, ties by column."""
    values, places = scores.sort(descending=True, stable=True)
    return values[:k], places[:k]
