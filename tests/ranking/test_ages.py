"""Ages of items and their part in recall and NDCG, beside loops over pairs and lists."""

import numpy as np
import pytest
import scipy.sparse as sp

from mgformer.data.dataset import read_dataset
from mgformer.data.interactions import Interactions
from mgformer.ranking.ages import AGES, item_ages
from mgformer.ranking.evaluation import EvaluationConfig, evaluate
from tests.ranking import oracles_ranking as oracles
from tests.ranking.test_evaluation import planted


def timed(seed: int, num_pairs: int = 400) -> Interactions:
    """Pairs whose items appear one after the other, some of them at the same moment."""
    rng = np.random.default_rng(seed)
    times = rng.integers(0, 90, num_pairs)
    items = (rng.random(num_pairs) * (times + 1) / 91 * 60).astype(int)
    table = (rng.integers(0, 40, num_pairs), items, times)
    return read_dataset(table).interactions


def slow_age(pairs: Interactions, item: int) -> str:
    assert pairs.times is not None
    own = [time for time, other in zip(pairs.times, pairs.indices, strict=True) if other == item]
    if not own:
        return "unseen"
    earlier = sum(time < min(own) for time in pairs.times) / len(pairs)
    return "old" if earlier < 0.5 else "middle" if earlier < 0.8 else "new"


@pytest.mark.parametrize("seed", range(4))
def test_ages_follow_the_first_pair_of_an_item(seed: int):
    pairs = timed(seed)
    rng = np.random.default_rng(seed)
    train = pairs.subset(rng.random(len(pairs)) < 0.6)
    ages = item_ages(train)
    assert ages is not None
    assert [AGES[age] for age in ages] == [slow_age(train, i) for i in range(train.num_items)]
    assert len({*ages.tolist()}) == 4


def test_bounds_belong_to_the_younger_age():
    """Of a hundred items, one after the other, 50 are old, 30 in between and 20 new."""
    train = read_dataset((np.zeros(100, dtype=int), np.arange(100), np.arange(100.0))).interactions
    ages = item_ages(train)
    assert ages is not None
    assert [AGES[age] for age in ages] == ["old"] * 50 + ["middle"] * 30 + ["new"] * 20


def test_without_times_there_are_no_ages():
    assert item_ages(read_dataset(([0, 1], [0, 1])).interactions) is None
    assert item_ages(read_dataset(([0, 1], [0, 1], [5, 5])).interactions) is None


@pytest.mark.parametrize("with_missing", [False, True])
def test_parts_of_ages_equal_the_slow_way_and_add_up(with_missing: bool):
    scorer, held_out, seen = planted()
    rng = np.random.default_rng(1)
    ages = rng.integers(0, 4, 60).astype(np.int8)
    missing = np.arange(40) % 3 if with_missing else None
    options = EvaluationConfig(ks=(5, 20))
    degrees = np.asarray(seen.sum(0), dtype=np.int64)
    found = evaluate(
        scorer, held_out, sp.csr_array(seen), degrees, options, missing=missing, ages=ages
    )
    assert found is not None
    lists = oracles.ranking_by_sorting(scorer, np.arange(40), 20, seen)
    possible = np.zeros(4)
    for number, age in enumerate(AGES):
        slow: dict[str, list[float]] = {f"{n}@{k}": [] for n in ("recall", "ndcg") for k in (5, 20)}
        for user in found.users.tolist():
            wanted = set(held_out.items_of(user).tolist())
            lost = int(missing[user]) if missing is not None else 0
            hits = [i in wanted and ages[i] == number for i in lists[user].tolist()]
            for key, values in slow.items():
                name, k = key.split("@")
                values.append(oracles.METRICS[name](hits, len(wanted) + lost, int(k)))
            own = sum(ages[i] == number for i in wanted) + (lost if age == "unseen" else 0)
            possible[number] += own / (len(wanted) + lost) / len(found.users)
        for key, values in slow.items():
            assert found.ages[age][key] == pytest.approx(np.mean(values), abs=1e-12)
        assert found.ages[age]["possible"] == pytest.approx(possible[number], abs=1e-12)
    for key in ("recall@20", "ndcg@5"):
        total = sum(found.ages[age][key] for age in AGES)
        assert total == pytest.approx(found.means[key])
    assert possible.sum() == pytest.approx(1)
