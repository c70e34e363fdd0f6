"""Local ridge: regress every item on its nearest other items, in closed form.

EASE regresses each item on all others, which takes a dense [I, I] inverse. Local ridge gives each
item j its own N predictors C: the items that share most users with it, by cosine. It solves

    (G_CC + diag(λ + ρ G_cc)) w = G_Cj    with the co-occurrences G = RᵀR,

and puts w into column j of a sparse B [I, I]. The method is fsSLIM (Ning & Karypis, ICDM 2011)
with the penalty of a denoising autoencoder (Steck, NeurIPS 2020): λ holds back items with few
users, ρ the popular ones. The cost grows linearly with the number of items.

Shapes: U users, I items, N predictors of an item, b items of a block.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from threading import local

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from mgformer.graph.sparse import block_slices, kept_entries, ranges, top_of_product
from mgformer.progress import phase
from mgformer.world import current

THREAD_ENTRIES = 1 << 21
"""Numbers that a thread holds at a time, unless one item needs more."""
SMALL_CATALOG = 10_000
"""Up to so many items, the co-occurrences of all pairs are counted once: at most 400 MB."""


def nearest_items(
    interactions: sp.csr_array, count: int, wanted: NDArray[np.bool_] | None = None
) -> sp.csr_array:
    """Return the co-occurrences [I, I] of each item with the `count` nearest by cosine.

    With a mask [I] of wanted items, the rows of the other items are empty.
    """
    items = sp.csr_array(interactions.T.tocsr())
    lengths, are_counts = np.sqrt(squares(items)), bool((items.data == 1).all())
    near = top_of_product(
        items if wanted is None else kept_entries(items, np.repeat(wanted, np.diff(items.indptr))),
        interactions,
        count,
        weigh=lambda values, i, j: values / (lengths[i] * lengths[j]),
    )
    for rows in block_slices(near.shape[0], count):
        part = slice(near.indptr[rows.start], near.indptr[rows.stop])
        of_rows = np.repeat(lengths[rows], np.diff(near.indptr[rows.start : rows.stop + 1]))
        shared = near.data[part] * of_rows * lengths[near.indices[part]]
        near.data[part] = np.rint(shared) if are_counts else shared
    return near.astype(np.float32, copy=False)


def squares(items: sp.csr_array) -> NDArray[np.float64]:
    """Return the sum of squares of each row: its number of entries, if they are ones."""
    rows = np.repeat(np.arange(items.shape[0]), np.diff(items.indptr))
    entries = items.data.astype(np.float64)
    return np.asarray(np.bincount(rows, entries**2, items.shape[0]), dtype=np.float64)


def local_ridge(
    interactions: sp.csr_array, num_predictors: int, l2: float, dropout: float
) -> sp.csr_array:
    """Return B [I, I]; scores of a history are its product with B."""
    (weights,) = local_ridges(interactions, num_predictors, (l2,), dropout)
    return weights


def local_ridges(
    interactions: sp.csr_array,
    num_predictors: int,
    l2s: Sequence[float],
    dropout: float,
    *,
    wanted: NDArray[np.bool_] | None = None,
    block_entries: int = THREAD_ENTRIES,
) -> list[sp.csr_array]:
    """Return B [I, I] for each of several λ; most of the work is shared.

    Processes that train together divide the systems, and every process gets all weights.

    Args:
        interactions: R [U, I]: ones or, with weights, their roots. A pair of weight w then counts
            w times in its own item, and √(w w') times with another of the same user.
        num_predictors: N, predictors of each item.
        l2s: λ, the penalties on every weight.
        dropout: ρ, the penalty per user of the predictor.
        wanted: A mask [I] of the items to predict, all by default; columns of others are empty.
        block_entries: Numbers that a thread holds at a time.
    """
    near = nearest_items(interactions, num_predictors, wanted)
    items = sp.csr_array(interactions.T.tocsr())
    system = _Systems(items, near, l2s, dropout)
    weights = np.empty((len(l2s), near.nnz), dtype=np.float32)

    def solve(chosen: NDArray[np.intp]) -> NDArray[np.intp]:
        places, found = system.solve(chosen)
        weights[:, places] = found
        return places

    world, solved = current(), [np.zeros(0, dtype=np.intp)]
    blocks = list(system.blocks(block_entries))
    blocks = blocks[world.part_of(len(blocks))]
    with phase("item regression", sum(map(len, blocks))) as advance, _one_thread_each() as threads:
        for block, places in zip(blocks, threads.map(solve, blocks), strict=True):
            if world.size > 1:  # nobody else needs them, and they take more than the weights
                solved.append(places)
            advance(len(block))
    if world.size > 1:
        own = np.concatenate(solved)
        found = world.concatenated(np.ascontiguousarray(weights[:, own].T))
        weights[:, world.concatenated(own)] = found.T
    by_target = (sp.csr_array((one, near.indices, near.indptr), near.shape) for one in weights)
    return [sp.csr_array(one.T.tocsr()) for one in by_target]


class _Systems:
    """The normal equations of all items, solved in blocks."""

    def __init__(
        self,
        items: sp.csr_array,
        near: sp.csr_array,
        l2s: Sequence[float],
        dropout: float,
    ) -> None:
        self.items, self.near, self.l2s, self.dropout = items, near, l2s, dropout
        self.sizes = np.diff(items.indptr).astype(np.int64)
        self.degrees = squares(items)
        self.counts = np.diff(near.indptr)
        self.buffers = local()
        self.all_shared = None
        if items.shape[0] <= SMALL_CATALOG:
            # Catalogs of dense data are small, and there most pairs would be counted many times.
            self.all_shared = np.empty((items.shape[0],) * 2, dtype=np.float32)
            for rows in block_slices(*self.all_shared.shape):
                (items[rows] @ items.T).toarray(out=self.all_shared[rows])

    def blocks(self, block_entries: int) -> Iterator[NDArray[np.intp]]:
        """Yield items in blocks whose systems and users have bounded size."""
        entries = np.zeros(len(self.counts), dtype=np.int64)  # users of all predictors
        for rows in block_slices(len(self.counts), max(1, int(self.counts.max(initial=0)))):
            starts = self.near.indptr[rows.start : rows.stop + 1]
            of_predictors = self.sizes[self.near.indices[starts[0] : starts[-1]]]
            sums = np.concatenate([[0], np.cumsum(of_predictors)])
            entries[rows] = np.diff(sums[starts - starts[0]])
        order = np.lexsort((entries, self.counts))  # systems of a block have similar sizes
        order = order[np.searchsorted(self.counts[order], 1) :]  # without items to leave out
        start = users = 0
        for place, item in enumerate(order):
            users += entries[item]
            # Every system of the block is padded to the width of this one, its widest.
            size = (place + 1 - start) * int(self.counts[item]) ** 2 + 8 * users
            if size > block_entries and place > start:
                yield order[start:place]
                start, users = place, entries[item]
        if start < len(order):
            yield order[start:]

    def solve(self, chosen: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
        """Return the places of the predictors of some items in `near` [p], and weights [λ, p]."""
        counts = self.counts[chosen]
        places = ranges(self.near.indptr[chosen], counts)
        predictors, width = self.near.indices[places], int(counts.max())
        system = np.repeat(np.arange(len(chosen)), counts)
        column = places - np.repeat(self.near.indptr[chosen], counts)  # within the system
        if self.all_shared is not None:
            left = self._from_all(predictors, system, column, counts)
        else:
            left = np.zeros((len(chosen), width, width), dtype=np.float32)
            together = self._shared_users(predictors, system, len(chosen))
            rows = np.repeat((system * width + column) * width, np.diff(together.indptr))
            left.reshape(-1)[rows + column[together.indices]] = together.data
        # Padding has 1 on the diagonal and 0 on the right: its weights are 0.
        left[:, np.arange(width), np.arange(width)] = 1
        right = np.zeros((len(chosen), width, 1), dtype=np.float32)
        right[system, column, 0] = self.near.data[places]
        found = []
        for l2 in self.l2s:
            left[system, column, column] = (1 + self.dropout) * self.degrees[predictors] + l2
            factor = torch.linalg.cholesky(torch.from_numpy(left))
            weights = torch.cholesky_solve(torch.from_numpy(right), factor)
            found.append(weights.numpy()[system, column, 0])
        return places, np.stack(found)

    def _from_all(
        self,
        predictors: NDArray[np.int32],
        system: NDArray[np.intp],
        column: NDArray[np.intp],
        counts: NDArray[np.int32],
    ) -> NDArray[np.float32]:
        """Return the shared users of the predictors of each system [b, N, N], padded with zeros."""
        assert self.all_shared is not None
        padded = np.zeros((len(counts), counts.max()), dtype=np.intp)
        padded[system, column] = predictors
        real = np.arange(padded.shape[1]) < counts[:, None]
        left = self.all_shared[padded[:, :, None], padded[:, None, :]]
        left *= real[:, :, None] & real[:, None, :]
        return left

    def _shared_users(
        self, predictors: NDArray[np.int32], system: NDArray[np.intp], num_systems: int
    ) -> sp.csr_array:
        """Return how many users two predictors of the same system share, [p, p]."""
        sizes = self.sizes[predictors]
        places = ranges(self.items.indptr[predictors], sizes)
        users, entries = self.items.indices[places], self.items.data[places]
        ends = np.concatenate([[0], np.cumsum(sizes)])
        # A column per user and system. The last entry of a user in a system names the column.
        names, numbers = self._table(), np.arange(len(users), dtype=np.int32)
        columns = np.empty_like(numbers)
        for start, end in pairwise(ends[np.searchsorted(system, np.arange(num_systems + 1))]):
            names[users[start:end]] = numbers[start:end]
            columns[start:end] = names[users[start:end]]
        # Most users have one of the predictors only: they are in no count of shared users.
        several = np.bincount(columns, minlength=len(users))[columns] > 1
        starts = np.concatenate([[0], np.cumsum(several)])[ends]
        parts = entries[several], columns[several], starts.astype(np.int32)
        x = sp.csr_array(parts, shape=(len(predictors), len(users)))
        return sp.csr_array(x @ x.T.tocsr())

    def _table(self) -> NDArray[np.int32]:
        """Return an uninitialized table of this thread, with a place for every user."""
        if not hasattr(self.buffers, "table"):
            self.buffers.table = np.empty(self.items.shape[1], dtype=np.int32)
        table: NDArray[np.int32] = self.buffers.table
        return table


@contextmanager
def _one_thread_each() -> Iterator[ThreadPoolExecutor]:
    """Yield a pool of threads, one for each core; linear algebra inside has one thread."""
    cores = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(cores) as threads:
            yield threads
    finally:
        torch.set_num_threads(cores)
