import numpy as np
import pytest
import scipy.sparse as sp

from mgformer.graph.segments import LENGTH, with_segments


def slow_shared(r, moments, weight):
    """How much items share [I, I]: 1 for a history, `weight` for each of its segments."""
    shared = r.T @ r
    for user, row in enumerate(r):
        items = np.flatnonzero(row)
        # Items of the same moment have the place of the last of them.
        place = {i: sum(moments[user, j] <= moments[user, i] for j in items) - 1 for i in items}
        for start in range(-(LENGTH // 2), len(items), LENGTH // 2):
            inside = [i for i in items if start <= place[i] < start + LENGTH]
            for i in inside:
                for j in inside:
                    shared[i, j] += weight * row[i] * row[j]
    return shared


def ordered(num_users, num_items, *, ties, seed=3):
    """A weighted matrix, the moment of each pair [U, I], and positions [E]."""
    random = np.random.default_rng(seed)
    dense = random.uniform(0.5, 2, (num_users, num_items))
    dense[random.random(dense.shape) < 0.4] = 0
    dense[-1] = 0  # a user without pairs
    moments = random.integers(0, 3 if ties else 10**6, dense.shape)
    r = sp.csr_array(dense.astype(np.float32))
    positions = [
        np.mean([moments[u, j] <= moments[u, i] for j in np.flatnonzero(dense[u])])
        for u, i in np.argwhere(dense)
    ]
    return r, moments, np.array(positions, dtype=np.float32)


@pytest.mark.parametrize("size", [(2, 1), (3, 4), (7, 5), (13, 31)], ids=str)
@pytest.mark.parametrize("ties", [False, True], ids=["one after the other", "at the same moment"])
def test_items_of_a_segment_count_more(size, ties):
    r, moments, positions = ordered(*size, ties=ties)
    x = with_segments(r, positions, 0.7).astype(np.float64)
    expected = slow_shared(r.toarray().astype(np.float64), moments, 0.7)
    np.testing.assert_allclose((x.T @ x).toarray(), expected, atol=1e-5)
    np.testing.assert_array_equal(x[: size[0]].toarray(), r.toarray())
    assert with_segments(r, positions, 0.7).has_sorted_indices


def test_without_weight_or_pairs_histories_stay_as_they_are():
    r, _, positions = ordered(5, 6, ties=False)
    assert with_segments(r, positions, 0.0) is r
    empty = sp.csr_array((3, 4), dtype=np.float32)
    assert with_segments(empty, np.zeros(0, dtype=np.float32), 0.5).shape == (3, 4)
