"""Sparse products in bounded memory.

Shapes: M rows, N columns, K columns of a dense factor.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from mgformer.progress import phase

BLOCK_ENTRIES = 1 << 24
"""Entries of the largest dense block held at a time (64 MB in float32)."""


def csr_matmul(matrix: sp.csr_array, dense: Tensor) -> Tensor:
    """Return the [M, K] product of a float32 CSR matrix [M, N] and a dense one [N, K]."""
    # Summing embedding rows is several times faster than scipy's or torch's CSR product, as long
    # as the rows are contiguous.
    return torch.nn.functional.embedding_bag(
        torch.from_numpy(matrix.indices),
        dense.contiguous(),
        torch.from_numpy(matrix.indptr),
        mode="sum",
        per_sample_weights=torch.from_numpy(matrix.data).to(dense.dtype),
        include_last_offset=True,
    )


class SparseProduct:
    """A fixed float32 CSR matrix [M, N] to multiply dense matrices by, with gradients."""

    def __init__(self, matrix: sp.csr_array, *, symmetric: bool = False) -> None:
        self.matrix = matrix
        self.transposed = matrix if symmetric else sp.csr_array(matrix.T)

    def __call__(self, dense: Tensor) -> Tensor:
        """Return the product [M, K] with a dense matrix [N, K]."""
        product: Tensor = _Product.apply(dense, self.matrix, self.transposed)  # type: ignore[no-untyped-call]
        return product


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, dense: Tensor, matrix: sp.csr_array, transposed: sp.csr_array) -> Tensor:
        ctx.transposed = transposed
        return csr_matmul(matrix, dense)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return csr_matmul(ctx.transposed, gradient), None, None


def block_slices(num_rows: int, num_columns: int, most: int | None = None) -> Iterator[slice]:
    """Yield slices that cut [num_rows, num_columns] into blocks of at most so many entries.

    BLOCK_ENTRIES, if not given.
    """
    step = max(1, (BLOCK_ENTRIES if most is None else most) // max(1, num_columns))
    for start in range(0, num_rows, step):
        yield slice(start, min(start + step, num_rows))


def product_blocks(
    left: sp.csr_array, right: sp.csr_array, name: str
) -> Iterator[tuple[slice, sp.csr_array]]:
    """Yield left @ right in blocks of rows, as the phase `name`."""
    with phase(name, left.shape[0]) as advance:
        for rows in block_slices(left.shape[0], right.shape[1]):
            yield rows, sp.csr_array(left[rows] @ right)
            advance(rows.stop - rows.start)


def top_per_row(matrix: sp.csr_array, k: int) -> sp.csr_array:
    """Return `matrix` with only the k largest positive entries of each row, ties by column."""
    counts = np.diff(matrix.indptr)
    rows = np.repeat(np.arange(len(counts)), counts)
    keep = matrix.data > 0
    crowded = np.flatnonzero(counts > k)
    if len(crowded):
        # The k-th value of a row discards most entries, and what is left is cheap to sort.
        floor = np.zeros(len(counts), dtype=matrix.dtype)
        for part in block_slices(len(crowded), matrix.shape[1]):
            dense = torch.from_numpy(matrix[crowded[part]].toarray())
            floor[crowded[part]] = dense.topk(k, sorted=True).values[:, -1].numpy()
        keep &= matrix.data >= floor[rows]
    rows, columns, values = rows[keep], matrix.indices[keep], matrix.data[keep]
    order = np.lexsort((columns, -values, rows))
    rows, columns, values = rows[order], columns[order], values[order]
    sizes = np.bincount(rows, minlength=len(counts))
    place = np.arange(len(rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    rows, columns, values = rows[place < k], columns[place < k], values[place < k]
    top = sp.csr_array((values, (rows, columns)), shape=matrix.shape)
    top.sort_indices()
    return top
