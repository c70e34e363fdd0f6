from collections import Counter

import numpy as np
import pytest

from mgformer.data.dataset import Dataset
from mgformer.data.demo import FEWEST, demo_dataset
from mgformer.data.options import DataConfig
from tests.demo_users import SHOWCASE


@pytest.fixture(scope="module")
def demo() -> Dataset:
    return demo_dataset()


def tastes(demo: Dataset, user: str) -> list[tuple[str, int]]:
    """Return how many items of each taste a user has, most first."""
    table = demo.interactions
    items = table.items.decode(table.items_of(int(table.users.encode([user])[0])))
    return Counter(item.rsplit("-", 1)[0] for item in items).most_common()


def test_demo_is_the_same_on_every_machine(demo: Dataset) -> None:
    assert demo.interactions.fingerprint == "800x400-12260-1e67c6154bfd"
    assert demo.interactions.times is not None
    assert int(demo.interactions.times.sum()) == 21_051_362_699_983
    assert demo_dataset().interactions.fingerprint == demo.interactions.fingerprint


def test_users_have_a_taste_and_some_have_two(demo: Dataset) -> None:
    shares, doubles = [], 0
    for user in demo.interactions.users.values:
        counts = [count for _, count in tastes(demo, user)]
        shares.append(counts[0] / sum(counts))
        doubles += len(counts) > 1 and counts[1] >= 0.3 * sum(counts)
    # Users of one taste have 0.12 · 0.9 noise; users of two tastes have about half of each.
    assert 0.80 < np.mean(shares) < 0.90
    assert 0.05 * len(shares) < doubles < 0.15 * len(shares)


def test_activity(demo: Dataset) -> None:
    degrees = np.diff(demo.interactions.indptr)
    assert degrees.min() == FEWEST
    assert 15 < degrees.mean() < 17


def test_long_tail_within_each_taste(demo: Dataset) -> None:
    table = demo.interactions
    popularity = np.bincount(table.indices, minlength=table.num_items)
    # Ids sort by taste and then by popularity.
    by_taste = popularity.reshape(10, 40)
    assert (by_taste[:, :8].sum(axis=1) > 2.5 * by_taste[:, -8:].sum(axis=1)).all()
    assert popularity.min() > 0


def test_names_are_distinct_and_match_their_items(demo: Dataset) -> None:
    names = demo.about_items.names
    assert names is not None
    assert names.n_unique() == len(names) == demo.interactions.num_items
    named = dict(zip(demo.interactions.items.values, names, strict=True))
    assert named["jazz-01"] == "Midnight Harbor Jazz Quartet"
    assert named["mystery-03"] == "Death at the Vicarage"
    assert all("Chess" in name for item, name in named.items() if item.startswith("chess-"))


def test_times_lie_within_two_years(demo: Dataset) -> None:
    times = demo.interactions.times
    assert times is not None
    assert 1_704_067_200 <= times.min() < times.max() < 1_704_067_200 + 2 * 366 * 86_400


def test_showcase_users(demo: Dataset) -> None:
    (_, most), *rest = tastes(demo, SHOWCASE["one taste"])
    assert most >= 0.85 * (most + sum(count for _, count in rest))
    (_, first), (_, second), *rest = tastes(demo, SHOWCASE["two tastes"])
    assert second >= 0.8 * first
    assert sum(count for _, count in rest) <= 2
    [(_, few)] = tastes(demo, SHOWCASE["few interactions"])
    assert few == FEWEST


def test_options_reduce_the_items_and_their_names() -> None:
    core = demo_dataset(DataConfig(k_core=12))
    assert 0 < core.interactions.num_items < 400
    assert core.about_items.names is not None
    assert len(core.about_items.names) == core.interactions.num_items
