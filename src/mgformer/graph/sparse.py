"""Sparse matrices: products in bounded memory, scaling, and the largest entries of each row.

Products run on the device of the dense factor. Everything else prepares matrices, with scipy.

Shapes: M rows, N columns, K columns of a dense factor, E stored entries, W entries of the longest
row.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from mgformer.device import on_host
from mgformer.progress import phase
from mgformer.world import World, current

INT32_MAX = 2**31 - 1
"""Largest index of 32 bits; a matrix with more entries has indices of 64."""
BLOCK_ENTRIES = 1 << 24
"""Entries of the largest dense block held at a time (64 MB in float32)."""

Weigh = Callable[[NDArray[np.float32], NDArray[np.int32], NDArray[np.int32]], NDArray[np.floating]]
"""Returns new values [E] of entries, given the old ones, their rows [E] and columns [E]."""


class Entries(NamedTuple):
    """The arrays of a CSR matrix [M, N] as tensors."""

    starts: Tensor  # [M + 1]
    columns: Tensor  # [E]
    values: Tensor  # [E]


def entries_of(matrix: sp.csr_array) -> Entries:
    """Return the arrays of a matrix as tensors, without a copy."""
    return Entries(*(torch.from_numpy(a) for a in (matrix.indptr, matrix.indices, matrix.data)))


def csr_matmul(matrix: sp.csr_array | Entries, dense: Tensor) -> Tensor:
    """Return the [M, K] product of a float32 CSR matrix [M, N] and a dense one [N, K]."""
    entries = matrix if isinstance(matrix, Entries) else entries_of(matrix)
    # Summing embedding rows is several times faster than the CSR product of scipy or torch, as
    # long as the rows are contiguous.
    return functional.embedding_bag(
        entries.columns,
        dense.contiguous(),
        entries.starts,
        mode="sum",
        per_sample_weights=entries.values.to(dense.dtype),
        include_last_offset=True,
    )


def sparse_product(matrix: sp.csr_array, dense: Tensor) -> Tensor:
    """Return what `csr_matmul` returns, with gradients; for a matrix that is used once."""
    return _product(entries_of(matrix), entries_of(sp.csr_array(matrix.T)), dense)


class SparseProduct(nn.Module):
    """Multiplies dense matrices by a fixed float32 CSR matrix [M, N], with gradients."""

    def __init__(self, matrix: sp.csr_array, *, symmetric: bool = False) -> None:
        super().__init__()
        self.matrix = matrix
        self._keep("", entries_of(matrix))
        self.symmetric = symmetric
        if not symmetric:
            self._keep("transposed_", entries_of(sp.csr_array(matrix.T)))

    def forward(self, dense: Tensor) -> Tensor:
        """Return the product [M, K] with a dense matrix [N, K]."""
        entries = self._entries("")
        transposed = entries if self.symmetric else self._entries("transposed_")
        return _product(entries, transposed, dense)

    def rows(self, dense: Tensor, numbers: Tensor) -> Tensor:
        """Return only some rows [q, K] of the product."""
        if on_host(dense):  # the gradient follows only the entries of these rows
            return sparse_product(self.matrix[numbers.numpy()], dense)
        # Rows differ in length: to cut them out, their total length would have to leave the device.
        return functional.embedding(numbers, self(dense))

    def _keep(self, prefix: str, entries: Entries) -> None:
        for name, tensor in entries._asdict().items():
            self.register_buffer(f"{prefix}{name}", tensor, persistent=False)

    def _entries(self, prefix: str) -> Entries:
        return Entries(*(self.get_buffer(f"{prefix}{name}") for name in Entries._fields))


class PaddedRows(nn.Module):
    """The rows of a float32 CSR matrix [M, N] in W columns each: products of fixed size.

    Shorter rows are filled up with weights of 0.
    """

    def __init__(self, matrix: sp.csr_array) -> None:
        super().__init__()
        counts = np.diff(matrix.indptr)
        filled = np.arange(counts.max(initial=1)) < counts[:, None]  # [M, W]
        columns = np.zeros(filled.shape, dtype=np.int32)
        weights = np.zeros(filled.shape, dtype=np.float32)
        columns[filled], weights[filled] = matrix.indices, matrix.data
        self.columns = nn.Buffer(torch.from_numpy(columns), persistent=False)
        self.weights = nn.Buffer(torch.from_numpy(weights), persistent=False)

    def forward(
        self, dense: Tensor, numbers: Tensor | None = None, *, sparse_gradient: bool = False
    ) -> Tensor:
        """Return rows [q, K], or all [M, K], of the product with a dense matrix [N, K]."""
        columns: Tensor = self.columns
        weights: Tensor = self.weights.to(dense.dtype)
        if numbers is not None:
            columns, weights = (functional.embedding(numbers, p) for p in (columns, weights))
        return functional.embedding_bag(
            columns, dense, mode="sum", per_sample_weights=weights, sparse=sparse_gradient
        )


def _product(entries: Entries, transposed: Entries, dense: Tensor) -> Tensor:
    product: Tensor = _Product.apply(dense, entries, transposed)  # type: ignore[no-untyped-call]
    return product


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, dense: Tensor, entries: Entries, transposed: Entries) -> Tensor:
        ctx.transposed = transposed
        return csr_matmul(entries, dense)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return csr_matmul(ctx.transposed, gradient), None, None


def row_numbers(matrix: sp.csr_array) -> NDArray[np.int32]:
    """Return the row [E] of every stored entry, in CSR order."""
    return np.repeat(np.arange(matrix.shape[0], dtype=np.int32), np.diff(matrix.indptr))


def scaled(
    matrix: sp.csr_array, rows: NDArray[np.float64], columns: NDArray[np.float64]
) -> sp.csr_array:
    """Return diag(rows) @ matrix @ diag(columns) in float32."""
    values = np.repeat(rows, np.diff(matrix.indptr)) * matrix.data * columns[matrix.indices]
    result = (values.astype(np.float32), matrix.indices, matrix.indptr)
    return sp.csr_array(result, shape=matrix.shape)


def pattern_of(matrix: sp.csr_array, keep: NDArray[np.bool_]) -> sp.csr_array:
    """Return the entries of a mask [E], in CSR order, as a matrix of ones."""
    kept = kept_entries(matrix, keep)
    kept.data = np.ones(kept.nnz, dtype=np.float32)
    return kept


def kept_entries(matrix: sp.csr_array, keep: NDArray[np.bool_]) -> sp.csr_array:
    """Return a matrix with only the entries of a mask [E], in CSR order."""
    starts = np.concatenate([[0], np.cumsum(keep)])[matrix.indptr].astype(matrix.indptr.dtype)
    return sp.csr_array((matrix.data[keep], matrix.indices[keep], starts), shape=matrix.shape)


def block_slices(
    num_rows: int, num_columns: int, block_entries: int = BLOCK_ENTRIES
) -> Iterator[slice]:
    """Yield slices of rows that cut [num_rows, num_columns] into blocks of bounded size."""
    step = max(1, block_entries // max(1, num_columns))
    for start in range(0, num_rows, step):
        yield slice(start, min(start + step, num_rows))


def product_blocks(
    left: sp.csr_array, right: sp.csr_array, block_entries: int = BLOCK_ENTRIES
) -> list[slice]:
    """Return blocks of rows such that left @ right has a bounded number of entries in each."""
    of_rows = np.diff(right.indptr)[left.indices]
    before = np.concatenate([[0], np.cumsum(of_rows, dtype=np.int64)])[left.indptr]  # [M + 1]
    starts = [0]
    while starts[-1] < left.shape[0]:
        stop = int(np.searchsorted(before, before[starts[-1]] + block_entries, side="right")) - 1
        starts.append(max(stop, starts[-1] + 1))  # a single row may be larger
    return [slice(*bounds) for bounds in pairwise(starts)]


def top_of_product(
    left: sp.csr_array,
    right: sp.csr_array,
    k: int,
    *,
    weigh: Weigh | None = None,
    diagonal: bool = False,
    left_out: sp.csr_array | None = None,
    name: str = "item neighbors",
    block_entries: int = BLOCK_ENTRIES,
) -> sp.csr_array:
    """Return the k largest positive entries of each row of left @ right [M, N].

    Threads share the rows, and so do processes that train together; every process gets all rows.
    The cost grows with the entries of the product, not with M × N.

    Args:
        left: [M, any].
        right: [any, N].
        k: Entries of a row to keep; of equal ones the first by column.
        weigh: Changes the entries of the product before the largest are chosen.
        diagonal: Whether entries on the diagonal are kept, or count as zero.
        left_out: A matrix [M, N] of ones; entries of the product at these places count as zero.
        name: The name of this work in progress reports.
        block_entries: Entries of the product that a thread holds.
    """

    def top(rows: slice) -> sp.csr_array:
        block = sp.csr_array(left[rows] @ right)
        of_entries = row_numbers(block) + np.int32(rows.start)
        if weigh is not None:
            block.data[:] = weigh(block.data, of_entries, block.indices)
        if not diagonal:
            block.data[of_entries == block.indices] = 0
        if left_out is not None:
            block = sp.csr_array(block - block.multiply(left_out[rows]))
        return top_per_row(block, k)

    world, kept = current(), []
    blocks = product_blocks(left, right, block_entries)
    blocks = blocks[world.part_of(len(blocks))]
    threads = ThreadPoolExecutor(torch.get_num_threads())
    with phase(name, sum(rows.stop - rows.start for rows in blocks)) as advance, threads:
        for rows, block in zip(blocks, threads.map(top, blocks), strict=True):
            kept.append(block)
            advance(rows.stop - rows.start)
    return _of_all(stacked(kept, right.shape[1]), world)


def _of_all(own: sp.csr_array, world: World) -> sp.csr_array:
    """Return the rows of the matrices of all processes."""
    if world.size == 1:
        return own
    counts = world.concatenated(np.diff(own.indptr).astype(np.int64))
    starts = np.concatenate([[0], np.cumsum(counts)])
    kind = np.int32 if starts[-1] <= INT32_MAX else np.int64
    columns = world.concatenated(own.indices.astype(np.int32))
    parts = world.concatenated(own.data), columns, starts.astype(kind)
    return sp.csr_array(parts, shape=(len(counts), own.shape[1]))


def stacked(blocks: list[sp.csr_array], num_columns: int) -> sp.csr_array:
    """Return blocks of rows as one matrix; the list is emptied, so that they are not held twice."""
    entries = sum(block.nnz for block in blocks)
    kind = np.int32 if max(entries, num_columns) <= INT32_MAX else np.int64
    counts = [np.diff(block.indptr) for block in blocks]
    starts = np.concatenate([np.zeros(1, dtype=kind), *counts])
    np.cumsum(starts, dtype=kind, out=starts)
    indices, data = np.empty(entries, dtype=kind), np.empty(entries, dtype=np.float32)
    stop = entries
    while blocks:
        block = blocks.pop()
        own = slice(stop - block.nnz, stop)
        indices[own], data[own] = block.indices, block.data
        stop = own.start
    return sp.csr_array((data, indices, starts), shape=(len(starts) - 1, num_columns))


def top_per_row(matrix: sp.csr_array, k: int) -> sp.csr_array:
    """Return the k largest positive entries of each row; of equal ones the first by column."""
    counts = np.diff(matrix.indptr)
    rows = row_numbers(matrix)
    keep = matrix.data > 0
    # The k-th value of a row discards most entries, so that few are left to sort.
    floor = np.zeros(len(counts), dtype=matrix.dtype)
    crowded = np.flatnonzero(counts > k)
    crowded = crowded[np.argsort(counts[crowded], kind="stable")]  # rows of similar length together
    while len(crowded):
        size = max(1, BLOCK_ENTRIES // int(counts[crowded[-1]]))
        longest, crowded = crowded[-size:], crowded[:-size]
        floor[longest] = _kth_values(matrix, longest, k)
    keep &= matrix.data >= floor[rows]
    rows, columns, values = rows[keep], matrix.indices[keep], matrix.data[keep]
    order = np.lexsort((columns, -values, rows))
    rows, columns, values = rows[order], columns[order], values[order]
    sizes = np.bincount(rows, minlength=len(counts))
    place = np.arange(len(rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    starts = np.concatenate([[0], np.cumsum(np.minimum(sizes, k))]).astype(matrix.indptr.dtype)
    parts = (values[place < k], columns[place < k], starts)
    top = sp.csr_array(parts, shape=matrix.shape)
    top.sort_indices()
    return top


def _kth_values(matrix: sp.csr_array, rows: NDArray[np.intp], k: int) -> NDArray[np.floating]:
    """Return the k-th largest entry of rows that have more than k entries."""
    counts = np.diff(matrix.indptr)[rows]
    padded = np.full((len(rows), counts.max()), -np.inf, dtype=matrix.dtype)
    padded[np.arange(counts.max()) < counts[:, None]] = matrix.data[
        ranges(matrix.indptr[rows], counts)
    ]
    values: NDArray[np.floating] = torch.from_numpy(padded).topk(k).values[:, -1].numpy()
    return values


def ranges(starts: NDArray[np.integer], counts: NDArray[np.integer]) -> NDArray[np.intp]:
    """Return the numbers start, start + 1, … of each range, one range after the other."""
    offsets = np.cumsum(counts) - counts
    return np.arange(counts.sum()) + np.repeat(starts - offsets, counts)
