"""Positions, recency, trend and the test of how random a split is, each against a slow oracle."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mgformer.data import chronology
from mgformer.data.chronology import Chronology, dispersion
from mgformer.data.dataset import open_dataset, read_dataset
from mgformer.data.interactions import Interactions
from mgformer.data.options import DataConfig, SplitConfig
from mgformer.data.splits import held_out_counts, split_dataset
from mgformer.errors import DataError


def some_pairs(seed: int, *, times: bool) -> Interactions:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 12, 15)
    users = np.repeat(np.arange(15), sizes)
    items = np.concatenate([rng.choice(14, size, replace=False) for size in sizes])
    if times:
        moments = rng.integers(0, 9, len(users))  # few moments, so many ties
        return read_dataset((users, items, moments)).interactions
    return read_dataset((users, items), DataConfig(order="file")).interactions


def of_user(pairs: Interactions, user: int) -> list[int]:
    return [*range(pairs.indptr[user], pairs.indptr[user + 1])]


@given(seed=st.integers(0, 10_000), times=st.booleans())
def test_positions_by_counting(seed: int, times: bool) -> None:
    pairs = some_pairs(seed, times=times)
    order = pairs.order
    assert order is not None
    found = Chronology(pairs).positions
    for user in range(pairs.num_users):
        own = of_user(pairs, user)
        for pair in own:
            not_later = sum(order[other] <= order[pair] for other in own)
            assert found[pair] == pytest.approx(not_later / len(own))


@given(seed=st.integers(0, 10_000), kappa=st.floats(0, 8))
def test_histories_age_by_the_formula(seed: int, kappa: float) -> None:
    known = Chronology(some_pairs(seed, times=True))
    aged = known.histories(kappa)
    assert (aged.indices == known.pairs.indices).all()
    for value, position in zip(aged.data, known.positions, strict=True):
        assert value == pytest.approx(math.exp(-kappa * (1 - position)), rel=1e-5)


@given(seed=st.integers(0, 10_000))
def test_trend_without_times_compares_the_ends_of_lines(seed: int) -> None:
    pairs = some_pairs(seed, times=False)
    places = pairs.places
    assert places is not None
    recent: set[int] = set()
    chance: dict[int, float] = {}
    for user in range(pairs.num_users):
        own = sorted(of_user(pairs, user), key=lambda pair: places[pair])
        late = [pair for rank, pair in enumerate(own, 1) if rank / len(own) > 0.8 + 1e-6]
        recent.update(late)
        chance |= dict.fromkeys(own, len(late) / len(own))
    _check_trend(pairs, recent, chance)


@given(seed=st.integers(0, 10_000))
def test_trend_with_times_compares_all_pairs(seed: int) -> None:
    pairs = some_pairs(seed, times=True)
    times = pairs.times
    assert times is not None
    cut = sorted(times.tolist())[math.floor(0.8 * (len(times) - 1))]
    recent = {pair for pair in range(len(pairs)) if times[pair] > cut}
    _check_trend(pairs, recent, dict.fromkeys(range(len(pairs)), len(recent) / len(pairs)))


def _check_trend(pairs: Interactions, recent: set[int], chance: dict[int, float]) -> None:
    found = Chronology(pairs).trend
    for item in range(pairs.num_items):
        own = [pair for pair in range(len(pairs)) if pairs.indices[pair] == item]
        got = sum(pair in recent for pair in own)
        expected = sum(chance[pair] for pair in own)
        assert found[item] == pytest.approx((got + 5) / (expected + 5), rel=1e-5)


def test_a_random_split_has_a_dispersion_of_one_and_one_by_time_has_more() -> None:
    rng = np.random.default_rng(0)
    users = np.repeat(np.arange(2000), 30)
    days = np.tile(np.arange(30), 2000)
    # Each item has its season: it is mostly chosen around one day.
    items = (days * 4 + rng.integers(0, 40, len(users))) % 120
    pairs = read_dataset((users, items, days)).interactions
    sizes = np.diff(pairs.indptr)
    at_random = _parts(pairs, rng.random(len(pairs)), sizes)
    by_time = _parts(pairs, pairs.times, sizes)  # type: ignore[arg-type]
    assert dispersion(*at_random) == pytest.approx(1, abs=0.35)
    assert (dispersion(*by_time) or 0) > 5


def _parts(pairs: Interactions, keys: np.ndarray, sizes: np.ndarray) -> list[Interactions]:
    from mgformer.data.splits import TEST, TRAIN, _label_tails

    num_test = held_out_counts(sizes, 0.0, 0.2)[1]
    labels = _label_tails(pairs, keys, np.zeros_like(num_test), num_test)
    return [pairs.subset(labels == part) for part in (TRAIN, TEST)]


def test_dispersion_by_the_formula(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chronology, "FEWEST_PAIRS", 3)
    pairs = some_pairs(4, times=True)
    in_test = np.random.default_rng(1).random(len(pairs)) < 0.4
    train, test = pairs.subset(~in_test), pairs.subset(in_test)
    shares = {u: np.mean(in_test[of_user(pairs, u)]) for u in range(pairs.num_users)}
    terms = []
    for item in range(pairs.num_items):
        own = np.flatnonzero(pairs.indices == item)
        chances = [shares[pairs.rows[pair]] for pair in own]
        variance = sum(s * (1 - s) for s in chances)
        if len(own) >= 3 and variance > 0:
            terms.append((in_test[own].sum() - sum(chances)) ** 2 / variance)
    assert len(terms) > 3
    assert dispersion(train, test) == pytest.approx(np.mean(terms))
    monkeypatch.setattr(chronology, "FEWEST_PAIRS", 10**9)
    assert dispersion(train, test) is None


def lightgcn(folder: Path, *, ascending: bool = False) -> Path:
    lines = {"train": ["0 5 3 9 1", "1 7 2"], "test": ["0 4 8", "1 6"]}
    for part, rows in lines.items():
        if ascending:
            rows = [" ".join([r.split()[0], *sorted(r.split()[1:])]) for r in rows]
        (folder / f"{part}.txt").write_text("\n".join(rows) + "\n")
    return folder


def test_lines_of_lightgcn_files_have_an_order(tmp_path: Path) -> None:
    dataset = open_dataset(lightgcn(tmp_path))
    pairs = dataset.interactions
    assert pairs.times is None
    assert pairs.places is not None
    for user, wanted in ((0, [5, 3, 9, 1, 4, 8]), (1, [7, 2, 6])):  # test comes after train
        own = of_user(pairs, user)
        ordered = sorted(own, key=lambda pair: pairs.places[pair])
        assert pairs.items.values.gather(pairs.indices[ordered]).to_list() == wanted


def test_sorted_lines_and_refused_orders_say_nothing(tmp_path: Path) -> None:
    folder = lightgcn(tmp_path, ascending=True)
    assert open_dataset(folder).interactions.order is None
    assert open_dataset(folder, DataConfig(order="file")).interactions.order is not None
    assert open_dataset(lightgcn(tmp_path), DataConfig(order="none")).interactions.order is None


def test_a_table_has_the_order_of_its_rows_if_asked(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("user,item\na,z\na,x\nb,x\na,y\na,z\n")
    assert open_dataset(path).interactions.order is None
    pairs = open_dataset(path, DataConfig(order="file")).interactions
    assert pairs.places is not None
    assert pairs.places.tolist() == [1, 3, 4, 2]  # a: x, y, z (its last row); b: x
    assert (
        split_dataset(
            read_dataset(path, DataConfig(order="file")),
            SplitConfig(kind="last"),
            np.random.default_rng(0),
        ).test.items.values[2]
        == "z"
    )


def test_validation_is_taken_from_the_ends_of_given_lines(tmp_path: Path) -> None:
    lines = ["0 " + " ".join(map(str, range(40, 10, -1))), "1 3 50 4 51 5 52 6 53 7 54"]
    (tmp_path / "train.txt").write_text("\n".join(lines) + "\n")
    (tmp_path / "test.txt").write_text("0 1 2 3 4 5 6 7 8 9 10\n1 1\n")
    dataset = open_dataset(tmp_path)
    rng = np.random.default_rng(0)
    split = split_dataset(dataset, SplitConfig(), rng)
    share = 11 / 51  # that of test
    ids = split.valid.items.values
    assert sorted(ids.gather(split.valid.items_of(0))) == sorted(range(16, 10, -1))
    assert len(split.valid.items_of(0)) == int(30 * share)
    assert sorted(ids.gather(split.valid.items_of(1))) == [7, 54]
    assert split.chronological
    assert split.refit
    assert "the last 0.22 of each user's train items" in split.protocol
    at_random = split_dataset(dataset, SplitConfig(valid_kind="random", refit=False), rng)
    assert (at_random.valid.indices != split.valid.indices).any()
    assert not at_random.refit
    assert "a random 0.22" in at_random.protocol
    unordered = open_dataset(tmp_path, DataConfig(order="none"))
    assert not split_dataset(unordered, SplitConfig(), rng).chronological
    with pytest.raises(DataError, match="valid_kind=last needs times or an order, got neither"):
        split_dataset(unordered, SplitConfig(valid_kind="last"), rng)


def test_one_file_with_times_is_split_by_time() -> None:
    rng = np.random.default_rng(0)
    users, items = np.repeat(np.arange(20), 10), np.tile(np.arange(10), 20)
    timed = read_dataset((users, items, rng.permutation(200)))
    split = split_dataset(timed, SplitConfig(), rng)
    assert (split.kind, split.chronological, split.refit) == ("time", True, True)
    same_moment = read_dataset((users, items, np.full(200, 7)))
    assert split_dataset(same_moment, SplitConfig(), rng).kind == "ratio"
    assert split_dataset(read_dataset((users, items)), SplitConfig(), rng).kind == "ratio"
    paper = split_dataset(timed, SplitConfig(kind="ratio"), rng)
    assert (paper.chronological, paper.refit) == (False, False)


def test_a_split_by_time_with_few_users_to_rank_says_so(caplog: pytest.LogCaptureFixture) -> None:
    users, items = np.repeat(np.arange(20), 10), np.tile(np.arange(10), 20)
    one_by_one = read_dataset((users, items, np.arange(200)))
    split_dataset(one_by_one, SplitConfig(kind="time"), np.random.default_rng(0))
    assert "only 0 users have pairs both before and after the cut" in caplog.text
    assert "set split.kind=last" in caplog.text
    caplog.clear()
    users, items = np.repeat(np.arange(200), 10), np.tile(np.arange(10), 200)
    times = np.random.default_rng(0).permutation(2000)
    split_dataset(
        read_dataset((users, items, times)), SplitConfig(kind="time"), np.random.default_rng(0)
    )
    assert "only" not in caplog.text
