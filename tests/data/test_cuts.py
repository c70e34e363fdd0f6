"""Cuts: windows that follow each other, and data that know nothing of the future."""

import itertools
import sys

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mgformer.data.cuts import (
    CutData,
    at_cut,
    between,
    choose_cuts,
    clock_of,
    held_out_for,
)
from mgformer.data.dataset import Dataset, read_dataset
from mgformer.data.interactions import Interactions
from mgformer.errors import ConfigError, DataError
from tests.events import changed, events

Pairs = set[tuple[str, str]]


def opened(rows: pl.DataFrame) -> Dataset:
    return read_dataset(rows, keep_rows=True)


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return opened(events())


def pairs_of(pairs: Interactions) -> Pairs:
    users, items = pairs.users.decode(pairs.rows), pairs.items.decode(pairs.indices)
    return set(zip(users, items, strict=True))


def pairs_between(rows: pl.DataFrame, start: float, last: float) -> Pairs:
    hit = rows.filter((pl.col("time") >= start) & (pl.col("time") <= last))
    return set(hit.select("user", "item").iter_rows())


@given(
    st.lists(st.integers(0, 400), min_size=40, max_size=120),
    st.integers(1, 5),
    st.sampled_from([0.05, 0.1, 0.15]),
)
def test_windows_follow_each_other_and_have_equally_many_rows(times, num_cuts, share):
    rows = pl.DataFrame({"user": "u", "item": [f"i{n}" for n in range(len(times))], "time": times})
    size = int(len(times) * share + 1e-9)
    try:
        cuts = choose_cuts(opened(rows), num_cuts, share)
    except DataError as error:
        assert "cannot cut" in str(error)  # noqa: PT017 -- only some lists are refused
        return
    assert [cut.number for cut in cuts] == [*range(1, num_cuts + 1)]
    ties = max(map(times.count, times))
    inside = [[t for t in times if cut.start <= t <= cut.last] for cut in cuts]
    after = [t for t in times if t >= cuts[0].start]
    assert sorted(t for window in inside for t in window) == sorted(after)
    assert len(after) >= num_cuts * size
    for cut, window in zip(cuts, inside, strict=True):
        assert abs(len(window) - size) < ties
        assert cut.start in window
        assert cut.last in window
        assert min(times) < cut.valid_from < cut.start <= cut.last
        recent = [t for t in times if cut.valid_from <= t < cut.start]
        assert abs(len(recent) - size) < ties
    for one, two in itertools.pairwise(cuts):
        assert one.last < two.start
        assert two.valid_from == one.start


def test_a_cut_equals_the_slow_way(dataset: Dataset) -> None:
    rows = dataset.rows
    assert rows is not None
    for cut in choose_cuts(dataset, 3, 0.15):
        data = at_cut(dataset, cut)
        split = data.split
        before = pairs_between(rows, 0, cut.start - 1)
        early = pairs_between(rows, 0, cut.valid_from - 1)
        window = pairs_between(rows, cut.start, cut.last) - before
        users, items = {u for u, _ in before}, {i for _, i in before}
        assert set(split.train.users.values) == users
        assert set(split.train.items.values) == items
        assert pairs_of(split.train) == early
        assert pairs_of(split.valid) == before - early
        assert split.whole is not None
        assert pairs_of(split.whole) == before
        assert pairs_of(split.test) == {(u, i) for u, i in window if u in users and i in items}
        assert split.missing is not None
        missing = dict(zip(split.train.users.values, split.missing.tolist(), strict=True))
        assert missing == {
            user: sum(u == user and i not in items for u, i in window) for user in users
        }
        assert sum(missing.values()) > 0  # the window has new items
        assert data.num_ranked == len({u for u, _ in window if u in users})
        assert data.num_unknown == len({u for u, _ in window if u not in users}) > 0
        assert data.drift.new_users == np.mean([u not in users for u, _ in window])
        assert data.drift.new_items == np.mean([i not in items for _, i in window])
        assert pairs_of(data.dataset.interactions) == before | window
        latest: dict[tuple[str, str], int] = {}
        for user, item, time in rows.filter(pl.col("time") < cut.start).iter_rows():
            latest[user, item] = max(time, latest.get((user, item), 0))
        assert split.whole.times is not None
        named = zip(
            split.whole.users.decode(split.whole.rows),
            split.whole.items.decode(split.whole.indices),
            strict=True,
        )
        assert split.whole.times.tolist() == [latest[pair] for pair in named]


def test_popular_items_of_a_window_are_compared_with_those_of_the_window_before() -> None:
    # Four groups of ten users take turns, after a moment in which all users appear.
    groups = [("all", 0, range(40))]
    groups += [(i, t, range(t % 4 * 10, t % 4 * 10 + 10)) for t, i in enumerate("abbccdd", 1)]
    rows = [(f"u{n}", item, time) for item, time, users in groups for n in users]
    frame = pl.DataFrame(rows, schema=["user", "item", "time"], orient="row")
    (cut,) = choose_cuts(opened(frame), 1, 0.182)  # 20 of 110 rows
    assert at_cut(opened(frame), cut).drift.popular_kept == 0  # only d, and c was before
    later = pl.when(pl.col("time") > 3).then(pl.lit("z")).otherwise("item")
    same = frame.with_columns(item=later)
    assert at_cut(opened(same), cut).drift.popular_kept == 1


def bits(data: CutData) -> list[object]:
    """Everything that a model of a cut is made from."""
    split = data.split
    assert split.whole is not None
    found: list[object] = [split.protocol, split.kind, split.chronological, split.refit]
    for part in (split.train, split.valid, split.whole):
        assert part.times is not None
        arrays = (part.indptr, part.indices, part.times)
        found += [part.users.values.to_list(), part.items.values.to_list()]
        found += [array.tobytes() for array in arrays]
    return found


def held_out_bits(data: CutData) -> list[object]:
    split = data.split
    assert split.missing is not None
    return [split.test.indices.tobytes(), split.test.indptr.tobytes(), split.missing.tobytes()]


@settings(max_examples=15)
@given(st.integers(0, 2), st.integers(0, 1000))
def test_the_future_changes_nothing(place: int, seed: int) -> None:
    rows = events()
    cuts = choose_cuts(opened(rows), 3, 0.15)
    expected = at_cut(opened(rows), cuts[place])
    later = opened(changed(rows, int(cuts[place].last) + 1, sys.maxsize, seed))
    assert choose_cuts(later, 3, 0.15) == cuts
    found = at_cut(later, cuts[place])
    assert bits(found) == bits(expected)
    assert held_out_bits(found) == held_out_bits(expected)
    assert found.dataset.fingerprint == expected.dataset.fingerprint
    assert found.drift == expected.drift
    window = opened(changed(rows, int(cuts[place].start), int(cuts[place].last), seed))
    assert choose_cuts(window, 3, 0.15) == cuts
    found = at_cut(window, cuts[place])
    assert bits(found) == bits(expected)
    assert held_out_bits(found) != held_out_bits(expected)
    assert found.dataset.fingerprint != expected.dataset.fingerprint


def test_a_core_is_that_of_the_rows_before_the_cut(dataset: Dataset) -> None:
    cut = choose_cuts(dataset, 2, 0.15)[0]
    rows = dataset.rows
    assert rows is not None
    early = read_dataset(rows.filter(pl.col("time") < cut.start)).interactions.core(5)
    data = at_cut(dataset, cut, k_core=5)
    assert data.split.whole is not None
    assert pairs_of(data.split.whole) == pairs_of(early)
    assert 0 < early.num_users < at_cut(dataset, cut).split.train.num_users
    assert set(data.split.train.users.values) == set(early.users.values)
    with pytest.raises(DataError, match="got no pairs in the 50-core before cut 1"):
        at_cut(dataset, cut, k_core=50)


def test_a_dataset_without_its_rows_uses_its_pairs(dataset: Dataset) -> None:
    pairs = Dataset(dataset.name, dataset.interactions)
    (cut,) = choose_cuts(pairs, 1, 0.2)
    data = at_cut(pairs, cut)
    assert len(data.dataset.interactions) == len(dataset.interactions)
    assert len(data.split.test)


def test_between_is_what_came_from_one_moment_to_another(dataset: Dataset) -> None:
    one, two = choose_cuts(dataset, 2, 0.15)
    assert dataset.rows is not None
    new = between(dataset, one.start, two.start)
    assert pairs_of(new.interactions) == pairs_between(dataset.rows, one.start, one.last)
    assert new.interactions.times is not None


def test_held_out_pairs_follow_the_ids_of_a_model(dataset: Dataset) -> None:
    one, two = (at_cut(dataset, cut) for cut in choose_cuts(dataset, 2, 0.15))
    users, items = one.split.train.users, one.split.train.items
    found = held_out_for(two.window, users, items)
    known = {(u, i) for u, i in pairs_of(two.window) if u in set(users.values)}
    assert pairs_of(found.pairs) == {(u, i) for u, i in known if i in set(items.values)}
    assert len(found.pairs) + found.missing.sum() == len(known)


@pytest.mark.parametrize(
    ("times", "text", "days"),
    [
        ([1_400_000_000, 1_400_086_400], "2014-05-13 16:53", 1.0),
        ([1_400_000_000_000, 1_400_043_200_000], "2014-05-13 16:53", 0.5),
        (["2014-05-13", "2014-05-20"], "2014-05-13", 7.0),
        ([0, 7], "0", None),
        ([0.25, 7.5], "0.25", None),
    ],
)
def test_times_that_look_like_dates_are_dates(times, text, days) -> None:
    dataset = read_dataset(pl.DataFrame({"user": ["a", "b"], "item": ["x", "y"], "time": times}))
    clock = clock_of(dataset)
    start, end = np.sort(dataset.interactions.times).tolist()
    assert clock.text(start) == text
    assert clock.days(start, end) == days


def test_what_cannot_be_cut_is_refused(dataset: Dataset) -> None:
    timeless = read_dataset((["a", "b"], ["x", "y"]))
    with pytest.raises(DataError, match=r"needs times, got no time column; .* data\.time=NAME"):
        choose_cuts(timeless, 2, 0.1)
    once = read_dataset(events().with_columns(time=pl.lit(5)), keep_rows=True)
    with pytest.raises(DataError, match="cannot cut 900 rows with 1 different times"):
        choose_cuts(once, 2, 0.1)
    for num_cuts, share, message in (
        (0, 0.1, "--cuts must be at least 1, got 0"),
        (2, 0.0, "--window must be a share between 0 and 1"),
        (4, 0.2, "leave nothing to train on"),
    ):
        with pytest.raises(ConfigError, match=message):
            choose_cuts(dataset, num_cuts, share)
    strangers = opened(events().with_columns(pl.col("time").cast(pl.String).alias("user")))
    with pytest.raises(DataError, match="no user of the validation part of cut 1 has earlier"):
        at_cut(strangers, choose_cuts(strangers, 1, 0.2)[0])
