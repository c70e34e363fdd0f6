import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from mgformer.data.dataset import Dataset, read_dataset
from mgformer.data.interactions import Interactions
from mgformer.data.options import SplitConfig
from mgformer.data.splits import Split, held_out_counts, split_dataset
from mgformer.errors import DataError

KINDS = ("ratio", "last", "time", "users")


def random_dataset(seed: int, num_users: int = 30, num_items: int = 40) -> Dataset:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 25, num_users)
    rows = np.repeat(np.arange(num_users), sizes)
    columns = np.concatenate([rng.choice(num_items, s, replace=False) for s in sizes])
    times = rng.integers(0, 50, len(rows))  # few moments, so many ties
    return read_dataset((rows, columns, times, rng.random(len(rows))), name="random")


def keys(pairs: Interactions) -> set[tuple[int, int]]:
    return set(zip(pairs.rows.tolist(), pairs.indices.tolist(), strict=True))


def parts_of(split: Split) -> list[Interactions]:
    return [split.train, split.valid, split.test, *([split.history] if split.history else [])]


@given(seed=st.integers(0, 10_000), kind=st.sampled_from(KINDS))
def test_parts_are_disjoint_complete_and_reproducible(seed: int, kind: str) -> None:
    dataset = random_dataset(seed)
    options = SplitConfig(kind=kind)  # type: ignore[arg-type]
    first, again = (split_dataset(dataset, options, np.random.default_rng(seed)) for _ in range(2))
    parts = [keys(part) for part in parts_of(first)]
    assert sum(map(len, parts)) == len(dataset.interactions)  # disjoint …
    assert set.union(*parts) == keys(dataset.interactions)  # … and complete
    assert parts == [keys(part) for part in parts_of(again)]
    anchor = first.train if first.history is None else first.train.union(first.history)
    # By time, users may appear after train; they are not ranked.
    assert kind == "time" or (np.diff(anchor.indptr) >= 1).all()
    assert len(first.test) > 0


def test_another_seed_gives_another_split() -> None:
    dataset = random_dataset(0)
    options = SplitConfig(kind="ratio")
    one, two = (split_dataset(dataset, options, np.random.default_rng(s)) for s in (0, 1))
    assert keys(one.test) != keys(two.test)


def test_pairs_keep_their_times_and_weights() -> None:
    dataset = random_dataset(1)
    whole = dataset.interactions
    assert whole.times is not None
    assert whole.weights is not None
    when = dict(zip(zip(whole.rows, whole.indices, strict=True), whole.times, strict=True))
    much = dict(zip(zip(whole.rows, whole.indices, strict=True), whole.weights, strict=True))
    for part in parts_of(split_dataset(dataset, SplitConfig(), np.random.default_rng(0))):
        assert part.times is not None
        assert part.weights is not None
        for row, item, t, w in zip(part.rows, part.indices, part.times, part.weights, strict=True):
            assert when[row, item] == t
            assert much[row, item] == w


@pytest.mark.parametrize(
    ("size", "train", "valid", "test"),
    [
        (1, 1, 0, 0),
        (2, 1, 0, 1),
        (3, 1, 1, 1),
        (9, 7, 1, 1),
        (10, 8, 1, 1),
        (19, 17, 1, 1),
        (20, 16, 2, 2),
        (29, 25, 2, 2),
        (30, 24, 3, 3),
        (1000, 800, 100, 100),
    ],
)
def test_counts_of_the_paper_protocol(size: int, train: int, valid: int, test: int) -> None:
    num_valid, num_test = held_out_counts(np.array([size]), 0.1, 0.1)
    assert (size - num_valid[0] - num_test[0], num_valid[0], num_test[0]) == (train, valid, test)


def test_a_share_is_not_lost_to_rounding() -> None:
    assert held_out_counts(np.array([100]), 0.0, 0.29)[1][0] == 29  # 0.29 * 100 = 28.999…


def test_ratio_picks_every_item_equally_often() -> None:
    pairs = read_dataset((np.zeros(10, int), np.arange(10)), name="one")
    chosen = np.zeros(10)
    for seed in range(2_000):
        split = split_dataset(pairs, SplitConfig(), np.random.default_rng(seed))
        chosen[split.test.indices] += 1
    # 200 expected; the bounds are four standard deviations of 13.4.
    assert chosen.min() > 146
    assert chosen.max() < 254


def test_last_holds_out_the_latest() -> None:
    dataset = random_dataset(2)
    split = split_dataset(dataset, SplitConfig(kind="last"), np.random.default_rng(0))
    assert (np.diff(split.test.indptr) <= 1).all()
    for user in range(30):
        spans = [p.indptr[user : user + 2] for p in (split.train, split.valid, split.test)]
        moments = [
            p.times[slice(*span)]  # type: ignore[index]
            for p, span in zip((split.train, split.valid, split.test), spans, strict=True)
        ]
        for earlier, later in itertools.pairwise(moments):
            if len(earlier) and len(later):
                assert earlier.max() <= later.min()


def test_time_cuts_at_one_moment_for_all() -> None:
    dataset = random_dataset(3)
    split = split_dataset(dataset, SplitConfig(kind="time"), np.random.default_rng(0))
    assert split.valid.times is not None
    assert split.test.times is not None
    assert split.train.times is not None
    assert split.valid.times.max() < split.test.times.min()
    assert split.train.times.max() < split.valid.times.min()


def test_pairs_of_the_cut_moment_are_held_out() -> None:
    """Times 0 to 9, two pairs each; the cuts at 0.7 and 0.85 of 20 pairs fall on moments 7 and 8.

    The cut of test falls between the two pairs of moment 8: both belong to test, because the model
    must not know anything of the moment at which it is tested.
    """
    times = np.repeat(np.arange(10), 2)
    dataset = read_dataset((np.arange(20) % 4, np.arange(20), times), name="moments")
    options = SplitConfig(kind="time", valid=0.15, test=0.15)
    split = split_dataset(dataset, options, np.random.default_rng(0))
    assert sorted(split.train.times.tolist()) == sorted([*range(7)] * 2)
    assert split.valid.times.tolist() == [7, 7]
    assert sorted(split.test.times.tolist()) == [8, 8, 9, 9]


def test_users_are_held_out_whole() -> None:
    dataset = random_dataset(4)
    split = split_dataset(dataset, SplitConfig(kind="users"), np.random.default_rng(0))
    assert split.history is not None
    groups = [set(p.rows.tolist()) for p in (split.train, split.valid, split.test)]
    assert [len(g) for g in groups[1:]] == [3, 3]
    assert not groups[0] & groups[1]
    assert not groups[1] & groups[2]
    assert set(split.history.rows.tolist()) == groups[1] | groups[2]


def test_given_parts_and_validation_from_train() -> None:
    whole = random_dataset(5).interactions
    is_test = np.random.default_rng(0).random(len(whole)) < 0.2
    is_test[whole.indptr[:-1]] = False
    train, test = whole.subset(~is_test), whole.subset(is_test)
    dataset = Dataset("given", whole, {"train": train, "test": test})
    split = split_dataset(dataset, SplitConfig(), np.random.default_rng(0))
    assert split.kind == "given"
    assert keys(split.test) == keys(test)
    assert keys(split.train) | keys(split.valid) == keys(train)
    assert len(split.valid) > 0
    three = {"train": split.train, "valid": split.valid, "test": test}
    again = split_dataset(Dataset("three", whole, three), SplitConfig(), np.random.default_rng(1))
    assert keys(again.valid) == keys(split.valid)


def test_errors_of_splits() -> None:
    timeless = read_dataset(([1, 1, 2], [1, 2, 1]), name="plain")
    rng = np.random.default_rng(0)
    for kind in ("last", "time"):
        with pytest.raises(DataError, match=rf"plain: split.kind={kind} needs times.*data.time"):
            split_dataset(timeless, SplitConfig(kind=kind), rng)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="no train and test parts"):
        split_dataset(timeless, SplitConfig(kind="given"), rng)
    with pytest.raises(DataError, match="only 1 have two items"):
        split_dataset(timeless, SplitConfig(kind="users", valid=0.4, test=0.5), rng)
    with pytest.raises(ValidationError, match="below 1"):
        SplitConfig(valid=0.5, test=0.5)
    with pytest.raises(ValidationError, match="refit is not possible"):
        SplitConfig(kind="users", refit=True)
