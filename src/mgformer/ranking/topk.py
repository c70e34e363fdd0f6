"""Exact top-k: every item is scored, seen items are left out, ties go to the smaller item number.

A matrix product gives the scores of a tile of users × items; the few best of each row are found
through the maxima of blocks of columns, which costs one pass over the tile instead of a sort. The
product rounds differently for different tile shapes, so the few best (k and some slack) are scored
again pair by pair in double precision, and ordered by that. A row is accepted only if nothing left
out could have come in; the rest, which is rows with many equal scores, is sorted in full. So the
result depends on the model alone, never on tiles, batches or threads.

Shapes: B users of a tile, T items of a tile, n = k + slack candidates, D channels.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from mgformer.errors import ConfigError
from mgformer.progress import phase
from mgformer.ranking.scorers import DotScorer, Scorer

SLACK = 4  # candidates beyond k; more makes full sorts rarer and every row dearer
NUM_BLOCKS = (
    2048  # blocks of columns whose maxima are compared; measured best between 1,024 and 4,096
)
MAX_USERS = 256  # users of a tile: enough to keep the matrix product at full speed
NOTHING = -torch.inf


class TopK(NamedTuple):
    """The best items of each user, best first; -1 (score -inf) where there are fewer than k."""

    items: NDArray[np.int32]  # [users, k]
    scores: NDArray[np.float32]  # [users, k]


def top_k(
    scorer: Scorer,
    users: ArrayLike,
    k: int,
    *,
    seen: sp.csr_array | None = None,
    candidates: ArrayLike | None = None,
    memory_mb: int = 256,
) -> TopK:
    """Return the `k` best items of each user.

    Args:
        scorer: The trained recommender.
        users: Numbers of the users to rank for.
        k: How many items; may exceed the catalogue.
        seen: [U, I] pairs never to be returned, indexed like the scorer's users.
        candidates: Numbers of the items to choose from; all by default.
        memory_mb: Bound on the working memory, in megabytes.
    """
    if k < 1:
        raise ConfigError(f"k must be at least 1, got {k}")
    if memory_mb < 1:
        raise ConfigError(f"memory_mb must be at least 1, got {memory_mb}")
    asked = np.ascontiguousarray(users, dtype=np.int64).reshape(-1)
    choice = None if candidates is None else np.unique(np.asarray(candidates, dtype=np.int64))
    if choice is not None and seen is not None:
        seen = sp.csr_array(seen[:, choice])
    rank = _rank_dot if isinstance(scorer, DotScorer) else _rank_rows
    items = np.full((len(asked), k), -1, dtype=np.int32)
    scores = np.full((len(asked), k), -np.inf, dtype=np.float32)
    width = min(k, scorer.num_items if choice is None else len(choice))
    if width:
        with torch.no_grad(), phase("ranking", len(asked)) as advance:

            def keep(start: int, best: Tensor, values: Tensor) -> None:
                stop = start + len(best)
                found = best.numpy() if choice is None else choice[best.numpy()]
                items[start:stop, :width] = np.where(values.isneginf().numpy(), -1, found)
                scores[start:stop, :width] = values.numpy()
                advance(len(best))

            rank(scorer, asked, width, seen, choice, memory_mb * 1_000_000, keep)  # type: ignore[arg-type]
    return TopK(items, scores)


Keep = Callable[[int, Tensor, Tensor], None]


def _rank_dot(
    scorer: DotScorer,
    users: NDArray[np.int64],
    k: int,
    seen: sp.csr_array | None,
    choice: NDArray[np.int64] | None,
    memory: int,
    keep: Keep,
) -> None:
    items = scorer.items if choice is None else scorer.items[torch.from_numpy(choice)]
    items = items.float().contiguous()
    num_items, dim = items.shape
    n = min(k + SLACK, num_items)
    # A tile of scores takes half of the memory; the other half is for what is gathered from it.
    rows = max(1, min(MAX_USERS, len(users), memory // (8 * min(num_items, 8 * NUM_BLOCKS))))
    tile = _Tile(rows, min(num_items, max(n, memory // (8 * rows))))
    # |fl(u·v) - u·v| <= gamma_D |u||v|; two more roundings cover the comparison in float32.
    largest = float(items.norm(dim=1).max())
    unit = (dim + 2) * torch.finfo(torch.float32).eps / 2
    for start in range(0, len(users), rows):
        batch = users[start : start + rows]
        vectors = scorer.users[torch.from_numpy(batch)].float()
        mask = _Mask(seen, batch, tile.blocks)
        found: list[tuple[Tensor, Tensor]] = []
        for left in range(0, num_items, tile.columns):
            part = items[left : left + tile.columns]
            tile.clear(len(batch), len(part))
            for at, chunk in tile.chunks():
                # While a chunk is in the cache, it is masked and its maxima are noted.
                torch.mm(vectors, part[at : at + chunk.shape[1]].T, out=chunk)
                mask.apply(chunk, left + at)
                tile.note_maxima(chunk)
            best, values = tile.best(n)
            found.append((best + left, values))
        best, values = _merge(found, n)
        exact = (vectors.double()[:, None, :] * items[best].double()).sum(-1).float()
        exact = torch.where(values.isneginf(), values, exact)
        margin = unit * largest * vectors.norm(dim=1)
        best, exact, unsure = _settle(best, values, exact, k, margin, num_items)
        for row in unsure.tolist():
            full = (items.double() @ vectors[row].double()).float()
            full[mask.of_row(row)] = NOTHING
            exact[row], best[row] = _sort_row(full, k)
        keep(start, best, exact)


def _rank_rows(
    scorer: Scorer,
    users: NDArray[np.int64],
    k: int,
    seen: sp.csr_array | None,
    choice: NDArray[np.int64] | None,
    memory: int,
    keep: Keep,
) -> None:
    """Rank with a scorer whose rows come whole and exact, such as history × item-item matrix."""
    num_items = scorer.num_items if choice is None else len(choice)
    n = min(k + SLACK, num_items)
    rows = max(1, min(MAX_USERS, len(users), memory // (16 * scorer.num_items)))
    tile = _Tile(rows, num_items)
    for start in range(0, len(users), rows):
        batch = users[start : start + rows]
        given = scorer.scores(torch.from_numpy(batch))
        given = given if choice is None else given[:, torch.from_numpy(choice)]
        mask = _Mask(seen, batch, tile.blocks)
        tile.clear(len(batch), num_items)
        for at, chunk in tile.chunks():
            chunk.copy_(given[:, at : at + chunk.shape[1]])
            mask.apply(chunk, at)
            tile.note_maxima(chunk)
        best, values = tile.best(n)
        best, exact, unsure = _settle(best, values, values, k, torch.zeros(len(batch)), num_items)
        for row in unsure.tolist():
            exact[row], best[row] = _sort_row(tile.scores[row], k)
        keep(start, best, exact)


class _Tile:
    """A reused buffer of scores and, for each block of columns, the maximum of every row.

    Block b holds the columns b, b + blocks, b + 2 · blocks, …, so that the maxima of all blocks
    are the elementwise maximum of chunks of `blocks` adjacent columns.
    """

    def __init__(self, rows: int, columns: int) -> None:
        self.blocks = min(NUM_BLOCKS, columns)
        self.depth = -(-columns // self.blocks)
        self.columns = self.depth * self.blocks
        self.buffer = torch.empty(rows, self.columns)
        self.maxima = torch.empty(rows, self.blocks)

    def clear(self, rows: int, columns: int) -> None:
        """Begin with a tile of this size; the buffer's columns beyond it are never chosen."""
        self.scores = self.buffer[:rows, :columns]
        self.buffer[:rows, columns:] = NOTHING
        self.maxima[:rows] = NOTHING

    def chunks(self) -> Iterator[tuple[int, Tensor]]:
        """Yield the first column and a view of each chunk, to be written to."""
        for left in range(0, self.scores.shape[1], self.blocks):
            yield left, self.scores[:, left : left + self.blocks]

    def note_maxima(self, chunk: Tensor) -> None:
        """Take a finished chunk into the maxima of the blocks."""
        noted = self.maxima[: chunk.shape[0], : chunk.shape[1]]
        torch.maximum(noted, chunk, out=noted)

    def best(self, n: int) -> tuple[Tensor, Tensor]:
        """Return columns and scores of n best per row; none left out scores above the lowest.

        n blocks with the highest maxima contain n best scores, because each of them holds one that
        is at least the lowest of these maxima.
        """
        rows, columns = self.scores.shape
        if n >= self.blocks // 4 or self.depth < 4:
            values, places = self.scores.topk(min(n, columns), sorted=False)
            return places, values
        blocks = self.maxima[:rows].topk(n, sorted=False).indices  # [B, n]
        scores = self.buffer[:rows].view(rows, self.depth, self.blocks)
        inside = scores.gather(2, blocks[:, None, :].expand(rows, self.depth, n))  # [B, depth, n]
        values, places = inside.view(rows, -1).topk(n, sorted=False)
        column = places // n * self.blocks + blocks.gather(1, places % n)
        return column, values


class _Mask:
    """The seen pairs of a batch of users, by chunk of columns."""

    def __init__(self, seen: sp.csr_array | None, users: NDArray[np.int64], width: int) -> None:
        if seen is None:
            seen = sp.csr_array((int(users.max()) + 1, 1), dtype=np.float32)
        starts, counts = seen.indptr[users], np.diff(seen.indptr)[users]
        rows = np.repeat(np.arange(len(users)), counts)
        within = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        columns = seen.indices[np.repeat(starts, counts) + within].astype(np.int64)
        chunks = columns // width
        order = np.argsort(chunks, kind="stable")
        self.width = width
        self.rows, self.columns = (torch.from_numpy(x[order]) for x in (rows, columns))
        self.bounds = np.concatenate([[0], np.cumsum(np.bincount(chunks))]).tolist()

    def apply(self, chunk: Tensor, left: int) -> None:
        """Set the seen pairs of a chunk of scores that begins at column `left`."""
        number = left // self.width
        if number + 1 < len(self.bounds):
            pairs = slice(self.bounds[number], self.bounds[number + 1])
            chunk[self.rows[pairs], self.columns[pairs] - left] = NOTHING

    def of_row(self, row: int) -> Tensor:
        """Return the seen columns of one row."""
        return self.columns[self.rows == row]


def _merge(found: list[tuple[Tensor, Tensor]], n: int) -> tuple[Tensor, Tensor]:
    """Return the n best of the candidates that several tiles of items brought."""
    if len(found) == 1:
        return found[0]
    best, values = (torch.cat(part, 1) for part in zip(*found, strict=True))
    values, places = values.topk(n, sorted=False)
    return best.gather(1, places), values


def _settle(
    best: Tensor, rough: Tensor, exact: Tensor, k: int, margin: Tensor, num_items: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Order candidates by exact score, then by number; say which rows cannot be trusted.

    A row is unsure if an item that is no candidate (its rough score is at most the lowest rough
    score of a candidate, and off by at most `margin`) could reach the k-th exact score.
    """
    order = best.argsort(1)
    best, ranked = best.gather(1, order), exact.gather(1, order)
    order = ranked.argsort(dim=1, descending=True, stable=True)[:, :k]
    best, ranked = best.gather(1, order), ranked.gather(1, order)
    last = ranked[:, -1]
    unsure = (rough.amin(1) + margin >= last) & ~last.isneginf()
    if exact.shape[1] == num_items:
        unsure = torch.zeros_like(unsure)
    return best, ranked, unsure.nonzero()[:, 0]


def _sort_row(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    values, places = scores.sort(descending=True, stable=True)
    return values[:k], places[:k]
