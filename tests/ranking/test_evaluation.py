import numpy as np
import pytest
import scipy.sparse as sp
import torch
from pydantic import ValidationError

from mgformer.data.dataset import read_dataset
from mgformer.data.interactions import Interactions
from mgformer.data.splits import Split
from mgformer.ranking.evaluation import (
    EvaluationConfig,
    evaluate,
    evaluate_part,
    popularity_groups,
)
from mgformer.ranking.scorers import DotScorer
from mgformer.ranking.significance import paired_test
from tests.ranking import oracles_ranking as oracles


def planted() -> tuple[DotScorer, Interactions, sp.csr_array]:
    rng = np.random.default_rng(0)
    num_users, num_items = 40, 60
    label = rng.choice(4, (num_users, num_items), p=[0.6, 0.2, 0.1, 0.1])
    rows, columns = np.nonzero(label >= 0)
    everything = read_dataset((rows, columns)).interactions
    flat = label[everything.rows, everything.indices]
    held_out = everything.subset((flat == 2) & (everything.rows < 30))
    seen = everything.subset(flat == 1).matrix
    users, items = (
        torch.tensor(rng.standard_normal((n, 4))).float() for n in (num_users, num_items)
    )
    return DotScorer(users, items), held_out, seen


def test_protocol_equals_the_slow_way() -> None:
    scorer, held_out, seen = planted()
    degrees = np.asarray(seen.sum(0), dtype=np.int64)
    result = evaluate(scorer, held_out, seen, degrees, EvaluationConfig(ks=(5, 20)))
    assert result is not None
    lists = oracles.ranking_by_sorting(scorer, np.arange(40), 20, seen)
    users = [u for u in range(40) if len(held_out.items_of(u))]
    assert result.users.tolist() == users  # users without held-out items do not count
    for name in oracles.METRICS:
        for k in (5, 20):
            slow = []
            for u in users:
                wanted = set(held_out.items_of(u).tolist())
                hits = [i in wanted for i in lists[u].tolist()]
                slow.append(oracles.METRICS[name](hits, len(wanted), k))
            np.testing.assert_allclose(result.values[f"{name}@{k}"], slow, rtol=0, atol=1e-12)
            assert result.means[f"{name}@{k}"] == pytest.approx(np.mean(slow))


def test_groups_add_up_to_the_mean() -> None:
    scorer, held_out, seen = planted()
    degrees = np.asarray(seen.sum(0), dtype=np.int64)
    result = evaluate(scorer, held_out, seen, degrees)
    assert result is not None
    for name in ("recall@50", "ndcg@50"):
        parts = [result.groups[g][name] for g in ("unpopular", "normal", "popular")]
        assert sum(parts) == pytest.approx(result.means[name])
        assert all(part > 0 for part in parts)


def test_each_part_masks_what_came_before_it() -> None:
    """One user: item 0 is in train, 1 in validation, 2 in test, and the scores fall from 0 on.

    Validation masks item 0 only, so item 1 comes first. Test masks items 0 and 1, so item 2 does.
    """
    pairs = read_dataset(([0, 0, 0, 1], [0, 1, 2, 3])).interactions
    train, valid, test = (
        pairs.subset((pairs.rows == 0) & (pairs.indices == item)) for item in range(3)
    )
    items = torch.tensor([[4.0], [3.0], [2.0], [1.0]])
    scorer = DotScorer(torch.ones(2, 1), items)
    split = Split("given", train, valid, test)
    for part in ("valid", "test"):
        found = evaluate_part(scorer, split, part, EvaluationConfig(ks=(1,)))
        assert found is not None
        assert found.means["recall@1"] == 1.0, part


def test_groups_hold_their_shares_of_the_items() -> None:
    degrees = np.random.default_rng(0).permutation(100)
    groups = popularity_groups(degrees)
    assert np.bincount(groups).tolist() == [80, 15, 5]
    assert degrees[groups == 2].min() > degrees[groups == 1].max() > degrees[groups == 0].max()
    assert popularity_groups(np.array([3])).tolist() == [0]


def test_without_held_out_pairs_there_is_no_evaluation() -> None:
    scorer, held_out, seen = planted()
    empty = held_out.subset(np.zeros(len(held_out), dtype=bool))
    assert evaluate(scorer, empty, seen, np.ones(60, dtype=np.int64)) is None


def test_missing_items_count_as_misses() -> None:
    scorer, held_out, seen = planted()
    degrees = np.asarray(seen.sum(0), dtype=np.int64)
    missing = np.arange(40) % 3
    without, found = (evaluate(scorer, held_out, seen, degrees, missing=m) for m in (None, missing))
    assert without is not None
    assert found is not None
    users = [u for u in range(40) if len(held_out.items_of(u)) + missing[u] > 0]
    assert found.users.tolist() == users
    hits = dict(zip(without.users.tolist(), without.values["recall@20"], strict=True))
    for user, value in zip(users, found.values["recall@20"], strict=True):
        own = len(held_out.items_of(user))
        assert value == pytest.approx(hits.get(user, 0.0) * own / (own + missing[user]))
    nothing = held_out.no_pairs()
    only = evaluate(scorer, nothing, seen, degrees, missing=missing)
    assert only is not None
    assert only.means["ndcg@20"] == 0
    assert len(only.users) == np.count_nonzero(missing)


def test_cut_offs_are_checked() -> None:
    assert EvaluationConfig(ks=(20, 5, 20)).ks == (5, 20)
    for bad in ((), (0,), (5, -1)):
        with pytest.raises(ValidationError, match="at least 1"):
            EvaluationConfig(ks=bad)


def test_paired_test_sees_a_small_consistent_difference() -> None:
    rng = np.random.default_rng(0)
    theirs = rng.random(500)
    ours = theirs + 0.01 + 0.01 * rng.standard_normal(500)
    better, same = paired_test(ours, theirs), paired_test(theirs, theirs)
    assert better.difference == pytest.approx(0.01, abs=2e-3)
    assert better.p_value < 1e-6
    assert same.p_value == 1.0
    assert paired_test(ours[:1], theirs[:1]).p_value == 1.0
    assert paired_test(rng.random(500), rng.random(500)).p_value > 0.01
    with pytest.raises(ValueError, match="different users: 500 and 499"):
        paired_test(ours, theirs[:-1])
