import numpy as np
import pytest
import scipy.sparse as sp
import torch

from mgformer.graph import regression
from mgformer.graph.regression import local_ridge, local_ridges, nearest_items
from tests.models.simple import oracles_simple as oracles


@pytest.fixture(params=["small catalog", "large catalog"], autouse=True)
def catalog(request, monkeypatch):
    """Both ways to count the users that predictors share."""
    monkeypatch.setattr(regression, "SMALL_CATALOG", 10_000 if "small" in request.param else 0)


SIZES = [(1, 3), (2, 3), (7, 2), (33, 20), (13, 29)]


def distinct(num_users, num_items, seed=4):
    """A matrix whose items have different degrees: no cut falls between equal cosines."""
    random = np.random.default_rng(seed)
    shares = random.permutation(np.linspace(0.08, 0.9, num_items))
    return sp.csr_array((random.random((num_users, num_items)) < shares).astype(np.float32))


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize(("l2", "dropout"), [(0.5, 0.0), (3.0, 0.7)])
def test_all_predictors(size, l2, dropout, random_graph):
    r = random_graph(*size).interactions
    expected = oracles.ridge(r.toarray().astype(np.float64), 1000, l2, dropout)
    np.testing.assert_allclose(local_ridge(r, 1000, l2, dropout).toarray(), expected, atol=2e-6)


@pytest.mark.parametrize("num_predictors", [1, 4, 11])
def test_few_predictors(num_predictors):
    r = distinct(301, 17)
    expected = oracles.ridge(r.toarray().astype(np.float64), num_predictors, 2.0, 0.3)
    actual = local_ridge(r, num_predictors, 2.0, 0.3).toarray()
    np.testing.assert_allclose(actual, expected, atol=2e-6)
    assert (np.count_nonzero(actual, axis=0) <= num_predictors).all()


@pytest.mark.parametrize("block_entries", [1, 500, 20_000])
def test_blocks_do_not_matter(block_entries):
    r = distinct(97, 23)
    whole = local_ridge(r, 9, 2.0, 0.3)
    (parts,) = local_ridges(r, 9, (2.0,), 0.3, block_entries=block_entries)
    np.testing.assert_array_equal(whole.indices, parts.indices)
    np.testing.assert_allclose(whole.data, parts.data, atol=1e-6)


def test_blocks_have_a_bounded_size():
    # One item is near to many, most are near to one other item, some to none.
    pairs = [np.eye(400, dtype=np.float32)]
    for center, count in ((0, 40), (50, 2), (60, 7), (70, 7)):
        rows = np.zeros((count, 400), dtype=np.float32)
        rows[:, center] = rows[np.arange(count), center + 1 + np.arange(count)] = 1
        pairs.append(rows)
    r = sp.csr_array(np.concatenate(pairs))
    systems = regression._Systems(sp.csr_array(r.T.tocsr()), nearest_items(r, 30), (1.0,), 0.0)
    blocks = [*systems.blocks(2_000)]
    found = np.concatenate(blocks)
    assert sorted(found) == [*np.flatnonzero(systems.counts)]
    for block in blocks:
        assert len(block) == 1 or len(block) * systems.counts[block].max() ** 2 <= 2_000


def test_several_penalties_at_once():
    r, l2s = distinct(97, 23), (0.5, 2.0, 40.0)
    for l2, found in zip(l2s, local_ridges(r, 9, l2s, 0.3), strict=True):
        np.testing.assert_array_equal(found.toarray(), local_ridge(r, 9, l2, 0.3).toarray())


def test_only_wanted_items_are_predicted():
    r, wanted = distinct(97, 23), np.arange(23) % 3 == 1
    whole = local_ridge(r, 9, 2.0, 0.3).toarray()
    (part,) = local_ridges(r, 9, (2.0,), 0.3, wanted=wanted)
    np.testing.assert_allclose(part.toarray(), whole * wanted, atol=1e-6)


def test_nearest_items_are_counts_of_shared_users():
    r = distinct(200, 12)
    near = nearest_items(r, 5).toarray()
    counts = (r.T @ r).toarray()
    assert (near[near > 0] == counts[near > 0]).all()
    assert (np.diag(near) == 0).all()
    assert (np.count_nonzero(near, axis=1) == 5).all()


def test_items_without_users_have_no_weights():
    r = sp.csr_array(np.array([[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 0, 1]], dtype=np.float32))
    b = local_ridge(r, 3, 1.0, 0.0).toarray()
    np.testing.assert_allclose(b[:2, :2], [[0, 2 / 3], [2 / 3, 0]], atol=1e-6)
    assert not b[2:].any()
    assert not b[:, 2:].any()


def test_the_number_of_threads_is_restored(monkeypatch):
    before = torch.get_num_threads()

    def broken(self, chosen):
        raise MemoryError

    monkeypatch.setattr(regression._Systems, "solve", broken)
    with pytest.raises(MemoryError):
        local_ridge(distinct(30, 8), 3, 1.0, 0.0)
    assert torch.get_num_threads() == before
