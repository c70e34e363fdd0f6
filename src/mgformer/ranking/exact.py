"""Exact scores of pairs, and the ranking of one user.

An exact score does not depend on which other users or items are ranked with it. It is the product
of two vectors, plus what a history adds to it, if the scorer is a sum. A service often ranks one
user at a time, which is little more than a matrix-vector product. It is done in numpy, because the
fixed cost of twenty tensor operations would exceed the product. The lists are the same
as those of `topk.py`, to the bit.

Shapes: n candidates or items, D channels, I items.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from mgformer.ranking.scorers import DotScorer

SLACK = 4  # candidates beyond k; more makes full sorts rarer but every row more expensive
DEPTH = 8  # columns of a block; 8 and 12 measured alike, 6 and 16 slower
LEVELS = 2  # levels of block maxima; a third is not faster
CHUNK = 1 << 14  # items scored at a time by a full sort
HALF_EPS = float(np.finfo(np.float32).eps) / 2
INFINITY_BITS = 0x7F800000  # of a float32
PAIR_BYTES = 12  # per pair and channel: the float32 of the item and the float64 product

Floats = NDArray[np.float32]
Numbers = NDArray[np.int64]


def exact_scores(vectors: Floats, rows: Floats) -> Floats:
    """Return the products [..., n] of user vectors [..., D] with items' rows [..., n, D].

    The float64 products are summed in an order that depends on the channels only, so a pair has one
    score. A matrix product sums in a different order for every shape.
    """
    products = rows * vectors[..., None, :].astype(np.float64)
    with np.errstate(over="ignore"):  # vectors of a training that diverged give infinite scores
        return products.sum(-1).astype(np.float32)


def scores_at(vectors: Floats, items: Floats, places: Numbers, memory: int) -> Floats:
    """Return the exact scores [B, n] of users' vectors [B, D] with items [I, D] at places [B, n].

    Pairs are scored in parts that fit into `memory`, in bytes, because the gathered rows of a long
    list would be far larger than the list.
    """
    num, dim = places.shape[1], items.shape[1]
    pairs = max(1, memory // (PAIR_BYTES * max(1, dim)))
    columns = max(1, min(num, pairs))
    rows = max(1, pairs // columns)
    scores = np.empty(places.shape, dtype=np.float32)
    for top in range(0, len(places), rows):
        for left in range(0, num, columns):
            part = np.s_[top : top + rows, left : left + columns]
            scores[part] = _of_tile(vectors[part[0]], items, places[part])
    return scores


def _of_tile(vectors: Floats, items: Floats, places: Numbers) -> Floats:
    """Return what `exact_scores` returns for the items' rows at places [B, n], to the bit.

    For several users torch gathers and multiplies with all cores. numpy sums, so the order of the
    sum is the same.
    """
    if len(places) == 1:
        return exact_scores(vectors, items[places])
    rows = functional.embedding(torch.from_numpy(places), torch.from_numpy(items))
    products = (rows * torch.from_numpy(vectors).double()[:, None, :]).numpy()
    with np.errstate(over="ignore"):
        total: Floats = products.sum(-1).astype(np.float32)
    return total


def scores_on_device(vectors: Tensor, items: Tensor, places: Tensor, memory: int) -> Tensor:
    """Return what `scores_at` returns, computed on the device of the vectors."""
    wide = vectors.double()[:, None, :]
    columns = max(1, memory // (PAIR_BYTES * max(1, len(vectors) * items.shape[1])))
    parts = [(items[some] * wide).sum(-1).float() for some in places.split(columns, dim=1)]
    return torch.cat(parts, dim=1)


def rounding(scorer: DotScorer) -> float | Tensor:
    """Return the largest rounding error of a float32 product with a user vector of length 1."""
    # |fl(u·v) - u·v| <= gamma_D |u||v|; two more roundings cover the comparison in float32.
    return (scorer.items.shape[1] + 2) * HALF_EPS * scorer.largest_norm


def of_addition(
    scorer: DotScorer, length: float | Tensor, largest: float | Tensor
) -> float | Tensor:
    """Return the rounding errors that an added term of at most `largest` brings along."""
    # The sum is rounded twice: once in the rough score and once in the exact one.
    return 2 * HALF_EPS * (scorer.largest_norm * length + largest)


def rank_all(
    vector: Floats, items: Floats, masked: NDArray[np.integer], k: int, added: Floats | None = None
) -> tuple[Numbers, Floats]:
    """Return the k best items and their scores by a full sort, ties by number.

    `added` [n] is added to the product of the vectors.
    """
    scores = np.concatenate(
        [exact_scores(vector, items[at : at + CHUNK]) for at in range(0, len(items), CHUNK)]
    )
    if added is not None:
        scores += added
    scores[masked] = -np.inf
    order = np.argsort(-scores, kind="stable")[:k]
    return order, scores[order]


def rank_one(
    scorer: DotScorer,
    user: int,
    masked: NDArray[np.integer],
    k: int,
    memory: int,
    added: Floats | None = None,
    barred: NDArray[np.bool_] | None = None,
) -> tuple[Numbers, Floats]:
    """Return the k best items of a user and their scores; -inf where fewer items are left.

    The arrays of candidates take at most `memory` bytes. `added` [I] is added to the products,
    and `barred` [I] masks more items.
    """
    vector, items = (side.float().numpy() for side in (scorer.users[user], scorer.items))
    num_items = len(items)
    width = -(-num_items // DEPTH**LEVELS) * DEPTH**LEVELS
    padded = np.empty(width, dtype=np.float32)
    padded[num_items:] = -np.inf
    rough = padded[:num_items]
    np.dot(vector, scorer.by_channel, out=rough)
    if added is not None:
        rough += added
    rough[masked] = -np.inf
    if barred is not None:
        # The sign bit of an infinity is that of the mask: this takes a third of the time that an
        # assignment by mask takes.
        limits = barred.astype(np.int32)
        limits <<= 31
        limits |= INFINITY_BITS
        np.minimum(rough, limits.view(np.float32), out=rough)
    n = min(k + SLACK, num_items)
    best = np.sort(_best_columns(padded, n, LEVELS))
    values = padded[best]
    best = np.minimum(best, num_items - 1)  # padding is found if all else is masked
    scores = scores_at(vector[None], items, best[None], memory)[0]
    length = float(np.linalg.norm(vector))
    margin = rounding(scorer) * length
    if added is not None:
        scores += added[best]
        margin += of_addition(scorer, length, float(np.abs(added).max()))
    exact = np.where(np.isneginf(values), values, scores)
    order = np.argsort(-exact, kind="stable")[:k]
    last = exact[order[-1]]
    if n < num_items and values.min() + margin >= last > -np.inf:
        if barred is not None:
            masked = np.concatenate([masked, np.flatnonzero(barred)])
        return rank_all(vector, items, masked, k, added)
    return best[order], exact[order]


def _best_columns(scores: Floats, n: int, levels: int) -> Numbers:
    """Return the columns of the n best scores, as `best.best_columns` does for many rows."""
    if levels == 0 or len(scores) < 4 * DEPTH * n:
        return np.argpartition(scores, -n)[-n:]
    layers = scores.reshape(DEPTH, -1)
    blocks = _best_columns(layers.max(0), n, levels - 1)
    places = np.argpartition(layers[:, blocks].reshape(-1), -n)[-n:]
    return places // n * layers.shape[1] + blocks[places % n]
