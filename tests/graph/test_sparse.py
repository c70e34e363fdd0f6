"""Sparse matrices against dense ones."""

from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from mgformer.graph.sparse import (
    PaddedRows,
    SparseProduct,
    csr_matmul,
    product_blocks,
    stacked,
    top_of_product,
    top_per_row,
)
from tests.graph.oracles_graph import largest


@pytest.mark.parametrize("shape", [(1, 1), (7, 33), (33, 2)])
def test_csr_matmul(shape, rng):
    values = rng.standard_normal(shape) * (rng.random(shape) < 0.4)
    matrix = sp.csr_array(values.astype(np.float32))
    dense = torch.from_numpy(rng.standard_normal((5, shape[1]))).T
    expected = matrix.toarray().astype(np.float64) @ dense.numpy()
    np.testing.assert_allclose(csr_matmul(matrix, dense), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("k", [1, 2, 7, 40])
def test_top_per_row_with_ties(k, rng):
    matrix = sp.csr_array(rng.integers(-1, 4, (23, 33)).astype(np.float32))
    expected = np.stack([largest(row, k) for row in matrix.toarray()])
    np.testing.assert_array_equal(top_per_row(matrix, k).toarray(), expected)


@pytest.mark.parametrize("diagonal", [False, True])
@pytest.mark.parametrize("block_entries", [1, 50, 1 << 24])
def test_top_of_a_weighted_product(diagonal, block_entries, rng):
    left, right = (rng.integers(0, 3, shape).astype(np.float32) for shape in ((9, 6), (6, 9)))
    factors = rng.random((9, 9)).astype(np.float32) + 0.5

    def weigh(values, rows, columns):
        return values * factors[rows, columns]

    expected = left @ right * factors
    if not diagonal:
        np.fill_diagonal(expected, 0)
    expected = np.stack([largest(row, 3) for row in expected])
    found = top_of_product(
        sp.csr_array(left),
        sp.csr_array(right),
        3,
        weigh=weigh,
        diagonal=diagonal,
        block_entries=block_entries,
    )
    np.testing.assert_allclose(found.toarray(), expected, rtol=1e-6)


def test_top_of_a_product_without_some_entries(rng):
    left, right = (rng.integers(0, 3, shape).astype(np.float32) for shape in ((11, 6), (6, 17)))
    seen = (rng.random((11, 17)) < 0.4).astype(np.float32)
    expected = np.stack([largest(row, 4) for row in left @ right * (1 - seen)])
    found = top_of_product(
        *map(sp.csr_array, (left, right)), 4, diagonal=True, left_out=sp.csr_array(seen)
    )
    np.testing.assert_array_equal(found.toarray(), expected)


@pytest.mark.parametrize("block_entries", [1, 7, 10**6])
def test_blocks_cover_the_rows_and_are_bounded(block_entries, rng):
    left, right = (
        sp.csr_array((rng.random(shape) < 0.4).astype(np.float32)) for shape in ((23, 9), (9, 31))
    )
    blocks = product_blocks(left, right, block_entries)
    assert np.concatenate([np.arange(23)[rows] for rows in blocks]).tolist() == [*range(23)]
    costs = left @ np.diff(right.indptr)
    assert all(costs[rows].sum() <= block_entries or rows.stop - rows.start == 1 for rows in blocks)


@pytest.mark.parametrize(
    ("shape", "density"), [((1, 1), 1.0), ((7, 33), 0.3), ((33, 2), 0.5), ((6, 5), 0.0)]
)
def test_sparse_products_equal_dense_ones(shape, density, rng):
    values = rng.standard_normal(shape) * (rng.random(shape) < density)
    matrix = sp.csr_array(values.astype(np.float32))
    exact = torch.from_numpy(matrix.toarray()).double()
    dense, same = (
        torch.from_numpy(np.random.default_rng(1).standard_normal((shape[1], 4))).requires_grad_()
        for _ in range(2)
    )
    weights = torch.from_numpy(rng.standard_normal((4, shape[0]))).T  # not contiguous
    product, expected = SparseProduct(matrix)(dense), exact @ same
    torch.testing.assert_close(product, expected, rtol=0, atol=1e-12)
    for result in (product, expected):
        (result * weights).sum().backward()
    torch.testing.assert_close(dense.grad, same.grad, rtol=0, atol=1e-12)
    assert bool(same.grad.any()) is (density > 0)
    single = SparseProduct(matrix)(dense.detach().float())
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), expected.detach(), rtol=0, atol=1e-5)


@pytest.mark.parametrize("shape", [(1, 1), (7, 3), (33, 20)])
def test_padded_rows_multiply_as_the_matrix(shape, rng):
    """Values and gradients, of all rows and of some, with rows that are empty and that repeat."""
    dense = rng.standard_normal(shape) * (rng.random(shape) < 0.4)
    dense[-1] = 0
    matrix = sp.csr_array(dense.astype(np.float32))
    factor = torch.from_numpy(rng.standard_normal((shape[1], 4))).requires_grad_()
    same = factor.detach().clone().requires_grad_()
    numbers = torch.from_numpy(rng.integers(0, shape[0], 9))
    exact = torch.from_numpy(matrix.toarray()).double()
    padded, weights = PaddedRows(matrix), torch.from_numpy(rng.standard_normal((9, 4)))
    torch.testing.assert_close(padded(factor), exact @ same, rtol=0, atol=1e-12)
    (padded(factor, numbers) * weights).sum().backward()
    ((exact @ same)[numbers] * weights).sum().backward()
    torch.testing.assert_close(factor.grad, same.grad, rtol=0, atol=1e-12)
    sparse = factor.detach().clone().requires_grad_()
    (padded(sparse, numbers, sparse_gradient=True) * weights).sum().backward()
    torch.testing.assert_close(sparse.grad.to_dense(), same.grad, rtol=0, atol=1e-12)


def test_blocks_of_rows_become_one_matrix_with_small_indices(rng):
    dense = rng.random((11, 7)).astype(np.float32) * (rng.random((11, 7)) < 0.4)
    cuts = [0, 3, 3, 4, 11]
    blocks = [sp.csr_array(dense[a:b]) for a, b in pairwise(cuts)]
    whole = stacked(blocks, 7)
    np.testing.assert_array_equal(whole.toarray(), dense)
    assert blocks == []
    assert whole.indices.dtype == whole.indptr.dtype == np.int32
