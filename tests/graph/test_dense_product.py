import numpy as np
import pytest
import scipy.sparse as sp

from mgformer.graph import dense_product as module
from mgformer.graph.dense_product import dense_product


def some(shape: tuple[int, int], density: float, seed: int) -> sp.csr_array:
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(shape) * (rng.random(shape) < density)
    return sp.csr_array(values.astype(np.float32))


def by_loops(rows: sp.csr_array, *factors: sp.csr_array) -> np.ndarray:
    """Multiply in float64, entry by entry of the left matrix."""
    left = rows.toarray().astype(np.float64)
    for factor in factors:
        right, product = factor.toarray(), np.zeros((len(left), factor.shape[1]))
        for row, column in zip(*left.nonzero(), strict=True):
            product[row] += left[row, column] * right[column]
        left = product
    return left


@pytest.mark.parametrize(("entries", "most"), [(1, 1), (40, 90), (1 << 18, 1 << 22)])
@pytest.mark.parametrize("ones", [True, False])
def test_equals_loops_in_float64(
    entries: int, most: int, ones: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ENTRIES", entries)
    monkeypatch.setattr(module, "MOST_ENTRIES", most)
    rows = some((37, 23), 0.2, seed=1)
    rows = rows.sign().power(2) if ones else rows
    through, last = some((23, 31), 0.3, seed=2), some((31, 41), 0.4, seed=3)
    direct = some((23, 41), 0.4, seed=4)
    for factors in ((direct,), (through, last)):
        found = dense_product(rows, *factors)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, by_loops(rows, *factors), atol=1e-5)


def test_bits_of_a_row_do_not_depend_on_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, last = some((37, 23), 0.4, seed=1), some((23, 41), 0.5, seed=2)
    whole = dense_product(rows, last)
    np.testing.assert_array_equal(whole, (rows @ last).toarray())
    monkeypatch.setattr(module, "ENTRIES", 30)
    for most in (1, 1 << 22):
        monkeypatch.setattr(module, "MOST_ENTRIES", most)
        np.testing.assert_array_equal(dense_product(rows, last), whole)


@pytest.mark.parametrize("shape", [(0, 5), (3, 5)])
def test_rows_without_entries(shape: tuple[int, int]) -> None:
    empty = sp.csr_array(shape, dtype=np.float32)
    found = dense_product(empty, some((5, 7), 0.5, seed=1))
    np.testing.assert_array_equal(found, np.zeros((shape[0], 7), dtype=np.float32))
