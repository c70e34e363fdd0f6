"""Negative items are drawn uniformly from the items that a user does not have."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from mgformer.data.dataset import read_dataset
from mgformer.data.sampling import UnseenItems, shuffled_batches


def draws(matrix, users, count, seed=0):
    unseen = UnseenItems(sp.csr_array(np.asarray(matrix, dtype=np.float32)))
    return unseen.draw(torch.tensor(users), count, torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("density", [0.05, 0.5, 0.95])
def test_every_unseen_item_is_drawn_and_no_other(density, rng):
    matrix = rng.random((7, 23)) < density
    matrix[:, 5] = False  # every user has an unseen item
    found = draws(matrix, list(range(7)), 5000)
    for user in range(7):
        assert sorted(set(found[user].tolist())) == np.flatnonzero(~matrix[user]).tolist()


def test_unseen_items_are_equally_likely():
    matrix = np.zeros((3, 6))
    matrix[1, [0, 3, 4]] = 1
    counts = torch.bincount(draws(matrix, [1], 30_000)[0], minlength=6)
    assert counts[[0, 3, 4]].sum() == 0
    # Four standard deviations of a count of 10,000.
    assert (counts[[1, 2, 5]] - 10_000).abs().max() < 4 * (30_000 * (1 / 3) * (2 / 3)) ** 0.5


def test_a_user_who_has_everything_gets_any_item():
    matrix = np.ones((2, 4))
    matrix[0, 2] = 0
    found = draws(matrix, [1, 0, 1], 200)
    assert found.shape == (3, 200)
    assert set(found[1].tolist()) == {2}
    assert set(found[0].tolist()) == set(range(4))


def test_a_user_without_items_may_get_all():
    found = draws(np.zeros((1, 3)), [0], 200)
    assert set(found[0].tolist()) == {0, 1, 2}


def test_same_generator_same_draws():
    matrix = np.eye(5)
    assert torch.equal(draws(matrix, [0, 1], 9, seed=4), draws(matrix, [0, 1], 9, seed=4))


def test_pairs_are_drawn_by_their_chances():
    pairs = read_dataset((np.arange(4), np.arange(4))).interactions
    chances = np.array([0.0, 0.1, 0.3, 0.6])
    rng = np.random.default_rng(0)
    counts = np.zeros(4)
    for _ in range(1000):
        batches = list(shuffled_batches(pairs, 3, rng, chances))
        assert [len(batch.users) for batch in batches] == [3, 1]
        for batch in batches:
            assert (batch.users == batch.items).all()
            counts += np.bincount(batch.users, minlength=4)
    np.testing.assert_allclose(counts / counts.sum(), chances, atol=0.03)
