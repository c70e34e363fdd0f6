import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mgformer.data.formats.frames import frame_of_arrays
from mgformer.data.interactions import Interactions, _sorted_with_order
from mgformer.errors import DataError

pairs = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=60)


def build(pairs, **columns):
    users, items = zip(*pairs, strict=True)
    return Interactions.from_frame(frame_of_arrays(list(users), list(items), **columns))


def pairs_of(interactions):
    users = interactions.users.decode(interactions.rows)
    items = interactions.items.decode(interactions.indices)
    return list(zip(users, items, strict=True))


@given(pairs)
def test_pairs_are_distinct_and_in_order(rows):
    interactions = build(rows)
    assert pairs_of(interactions) == sorted(set(rows))
    assert interactions.duplicates == len(rows) - len(set(rows))
    assert len(interactions) == interactions.matrix.nnz == interactions.indptr[-1]
    for user in range(interactions.num_users):
        assert interactions.items_of(user).tolist() == interactions.matrix[[user]].indices.tolist()


@given(pairs)
def test_duplicates_keep_the_latest_time_and_the_summed_weight(rows):
    times, weights = list(range(len(rows))), [0.5] * len(rows)
    interactions = build(rows, times=times, weights=weights)
    latest = dict(zip(rows, times, strict=True))
    assert interactions.times.tolist() == [latest[pair] for pair in pairs_of(interactions)]
    assert interactions.weights.tolist() == [rows.count(p) / 2 for p in pairs_of(interactions)]


def test_duplicates_are_logged(caplog):
    with caplog.at_level("INFO", logger="mgformer"):
        build([(1, 2), (1, 2), (1, 3)])
    assert "merged 1 duplicate pairs of 3 rows" in caplog.text


def slow_core(rows, k):
    kept = set(rows)
    while True:
        users, items = [u for u, _ in kept], [i for _, i in kept]
        still = {(u, i) for u, i in kept if users.count(u) >= k and items.count(i) >= k}
        if still == kept:
            return sorted(kept)
        kept = still


@given(pairs, st.integers(0, 4))
def test_core_equals_the_slow_reference(rows, k):
    core = build(rows, times=list(range(len(rows)))).core(k)
    assert pairs_of(core) == slow_core(rows, k)
    assert core.num_users == len({u for u, _ in pairs_of(core)})
    assert core.num_items == len({i for _, i in pairs_of(core)})
    assert len(core.times) == len(core)


@given(pairs, st.randoms(use_true_random=False))
def test_fingerprint_ignores_the_order_and_repetition_of_rows(rows, random):
    shuffled = [*rows, rows[0]]
    random.shuffle(shuffled)
    assert build(shuffled).fingerprint == build(rows).fingerprint


@given(pairs, pairs)
def test_fingerprint_differs_for_different_data(one, other):
    same = build(one).fingerprint == build(other).fingerprint
    assert same == (set(one) == set(other))


def test_fingerprint_depends_on_where_ids_end():
    one = build([("ab", "x"), ("c", "x")])
    other = build([("a", "x"), ("bc", "x")])
    assert one.fingerprint != other.fingerprint
    assert one.fingerprint.startswith("2x1-2-")


@given(pairs, st.data())
def test_union_of_a_subset_and_the_rest_is_the_whole(rows, data):
    whole = build(rows, times=list(range(len(rows))))
    flags = st.lists(st.booleans(), min_size=len(whole), max_size=len(whole))
    keep = np.array(data.draw(flags), dtype=bool)
    united = whole.subset(keep).union(whole.subset(~keep))
    assert united.fingerprint == whole.fingerprint
    assert united.times.tolist() == whole.times.tolist()


@pytest.mark.parametrize("highest", [100, 2**62], ids=["packed", "wide"])
def test_sorting_is_stable(highest):
    keys, order = _sorted_with_order(np.array([7, 3, 7, 0]), highest)
    assert keys.tolist() == [0, 3, 7, 7]
    assert order.tolist() == [3, 1, 0, 2]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ((["a"], ["x", "y"]), "different lengths"),
        ((["a", 1], ["x", "y"]), "mixed types"),
        (([1.5], ["x"]), "Float64"),
        ((["a", None], ["x", "y"]), "row 1: got no user id"),
    ],
)
def test_bad_arrays_are_refused(arrays, message):
    with pytest.raises(DataError, match=message):
        Interactions.from_frame(frame_of_arrays(*arrays))


@given(pairs, pairs)
def test_renumbered_keeps_the_pairs_whose_ids_are_known(rows, others):
    times = list(range(len(rows)))
    interactions, target = build(rows, times=times), build(others)
    found = interactions.renumbered(target.users, target.items)
    users, items = {u for u, _ in others}, {i for _, i in others}
    kept = [pair for pair in pairs_of(interactions) if pair[0] in users and pair[1] in items]
    assert pairs_of(found) == kept
    latest = dict(zip(rows, times, strict=True))
    assert found.times.tolist() == [latest[pair] for pair in kept]
    both = [pair in set(others) for pair in pairs_of(found)]
    assert found.within(target).tolist() == both
