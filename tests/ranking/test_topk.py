import tracemalloc
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given
from hypothesis import strategies as st

from mgformer.errors import ConfigError
from mgformer.ranking import best, exact, topk
from mgformer.ranking.best import best_columns
from mgformer.ranking.scorers import DotScorer, HistoryScorer, Scorer, SumScorer
from mgformer.ranking.topk import top_k
from tests.ranking.oracles_ranking import ranking_by_sorting


def dot(num_users: int, num_items: int, dim: int, seed: int, levels: int = 0) -> DotScorer:
    """Random vectors; with `levels`, small integers, so that most scores are tied."""
    rng = np.random.default_rng(seed)
    if levels:
        users, items = (rng.integers(0, levels, (n, dim)) for n in (num_users, num_items))
    else:
        users, items = (rng.standard_normal((n, dim)) for n in (num_users, num_items))
    return DotScorer(torch.tensor(users).float(), torch.tensor(items).float())


def some_pairs(num_users: int, num_items: int, density: float, seed: int) -> sp.csr_array:
    rng = np.random.default_rng(seed)
    return sp.csr_array((rng.random((num_users, num_items)) < density).astype(np.float32))


def check(scorer: Scorer, k: int, seen: sp.csr_array | None = None, **options: object) -> None:
    users = np.arange(scorer.num_users)[::-1]
    found = top_k(scorer, users, k, seen=seen, **options)  # type: ignore[arg-type]
    candidates: Any = options.get("candidates")
    exclude: Any = options.get("exclude", ())
    allowed = set(range(scorer.num_items) if candidates is None else candidates) - set(exclude)
    expected = ranking_by_sorting(scorer, users, k, seen, allowed)
    width = min(k, scorer.num_items if candidates is None else len(allowed))
    assert found.items.shape == (len(users), width)
    np.testing.assert_array_equal(found.items, expected[:, :width])
    assert (expected[:, width:] == -1).all()
    assert ((found.items < 0) == np.isneginf(found.scores)).all()
    with patch.object(topk, "SOME_USERS", 0):  # the product that large batches take
        many = top_k(scorer, users, k, seen=seen, **options)  # type: ignore[arg-type]
    np.testing.assert_array_equal(many.items, found.items)
    np.testing.assert_array_equal(many.scores, found.scores)
    alone = [top_k(scorer, [user], k, seen=seen, **options) for user in users]  # type: ignore[arg-type]
    np.testing.assert_array_equal(np.concatenate([one.items for one in alone]), found.items)
    np.testing.assert_array_equal(np.concatenate([one.scores for one in alone]), found.scores)


@pytest.mark.parametrize("levels", [0, 2, 4])
@pytest.mark.parametrize("num_items", [1, 2, 7, 33, 257])
@pytest.mark.parametrize("k", [1, 5, 40])
def test_equals_a_full_sort_with_ties_by_number(num_items: int, k: int, levels: int) -> None:
    scorer = dot(33, num_items, 5, seed=num_items + k, levels=levels)
    check(scorer, k, some_pairs(33, num_items, 0.2, seed=k))


def with_history(scorer: DotScorer, seed: int, levels: int) -> SumScorer:
    """Add a sparse item-item model; with `levels`, one of integers."""
    rng = np.random.default_rng(seed)
    num_items = scorer.num_items
    size = (num_items, num_items)
    weights = rng.integers(-1, 2, size) if levels else rng.standard_normal(size)
    weights = sp.csr_array((weights * (rng.random(size) < 0.2)).astype(np.float32))
    return SumScorer(
        scorer, HistoryScorer(some_pairs(scorer.num_users, num_items, 0.1, seed), weights)
    )


@pytest.mark.parametrize("levels", [0, 3])
@pytest.mark.parametrize("num_items", [1, 7, 257, 1_000])
@pytest.mark.parametrize("k", [1, 20])
def test_a_sum_of_vectors_and_a_history(num_items: int, k: int, levels: int) -> None:
    scorer = with_history(dot(33, num_items, 6, seed=num_items, levels=levels), k, levels)
    seen = some_pairs(33, num_items, 0.2, seed=k)
    check(scorer, k, seen)
    check(scorer, k, seen, candidates=np.arange(0, num_items, 3))
    check(scorer, k, seen, exclude=np.arange(0, num_items, 4))


def test_a_sum_in_tiles_gives_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    scorer = with_history(dot(40, 3_000, 8, seed=3), 4, 0)
    whole = top_k(scorer, np.arange(40), 20)
    monkeypatch.setattr(topk, "MAX_USERS", 7)
    part = top_k(scorer, np.arange(40), 20, memory_mb=1)
    np.testing.assert_array_equal(part.items, whole.items)
    np.testing.assert_array_equal(part.scores, whole.scores)


def test_vectors_that_cancel_against_a_history() -> None:
    """Two large parts whose sum is small: the rounding of both must be allowed for."""
    vectors = dot(30, 2_000, 4, seed=5)
    histories = sp.csr_array(np.eye(30, 2_000, dtype=np.float32))
    opposite = -(vectors.users @ vectors.items.T).numpy()
    noise = 1e-6 * np.random.default_rng(6).standard_normal(opposite.shape)
    weights = np.zeros((2_000, 2_000), dtype=np.float32)
    weights[:30] = opposite + noise
    check(SumScorer(vectors, HistoryScorer(histories, torch.from_numpy(weights))), 20)


@pytest.mark.parametrize("levels", [0, 3])
def test_a_catalogue_of_several_chunks(levels: int) -> None:
    scorer = dot(9, 9_001, 5, seed=8, levels=levels)
    check(scorer, 20, some_pairs(9, 9_001, 0.2, seed=9))


@pytest.mark.parametrize("levels", [0, 3])
def test_blocks_and_tiles_are_exercised(levels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (best, exact):
        monkeypatch.setattr(module, "DEPTH", 3)
    monkeypatch.setattr(topk, "MAX_USERS", 7)
    scorer = dot(33, 1_000, 6, seed=1, levels=levels)
    seen = some_pairs(33, 1_000, 0.1, seed=2)
    check(scorer, 10, seen)
    check(scorer, 10, seen, candidates=np.arange(3, 900, 7))
    check(scorer, 10, seen, exclude=np.arange(0, 1_000, 3))


@pytest.mark.parametrize("levels", [0, 2])
def test_tiles_of_items_do_not_change_the_result(
    levels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    scorer = dot(20, 70_001, 8, seed=3, levels=levels)
    seen = some_pairs(20, 70_001, 0.01, seed=4)
    whole = top_k(scorer, np.arange(20), 20, seen=seen)
    for memory_mb in (1, 2, 5, 2_000):
        for rows, some in ((1, 64), (3, 0), (256, 64), (256, 0)):
            monkeypatch.setattr(topk, "MAX_USERS", rows)
            monkeypatch.setattr(topk, "SOME_USERS", some)
            part = top_k(scorer, np.arange(20), 20, seen=seen, memory_mb=memory_mb)
            np.testing.assert_array_equal(part.items, whole.items)
            np.testing.assert_array_equal(part.scores, whole.scores)  # bit for bit


def test_excluded_items_are_left_out_of_every_tile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scorer = dot(9, 70_001, 8, seed=3)
    best = top_k(scorer, np.arange(9), 30)
    banned = best.items[:, ::2].reshape(-1)
    monkeypatch.setattr(topk, "MAX_USERS", 3)
    for memory_mb in (1, 2_000):
        found = top_k(scorer, np.arange(9), 5, exclude=banned, memory_mb=memory_mb)
        for row, ranked in zip(found.items, best.items, strict=True):
            np.testing.assert_array_equal(row, ranked[~np.isin(ranked, banned)][:5])


def test_one_user_at_a_time_gives_the_same_bits() -> None:
    scorer = dot(50, 5_000, 64, seed=5)
    together = top_k(scorer, np.arange(50), 20)
    for user in range(50):
        alone = top_k(scorer, [user], 20)
        np.testing.assert_array_equal(alone.items[0], together.items[user])
        np.testing.assert_array_equal(alone.scores[0], together.scores[user])


def test_scores_that_differ_by_less_than_the_product_rounds() -> None:
    """Items 0…99 score 1 up to the last bit of a float64: float32 sees ties, and so do we."""
    items = torch.ones(5_000, 3)
    items[:100] += 1e-6 * torch.randperm(100, generator=torch.Generator().manual_seed(0))[:, None]
    check(DotScorer(torch.rand(9, 3, generator=torch.Generator().manual_seed(1)), items), 20)


def test_history_scorer_of_every_form() -> None:
    rng = np.random.default_rng(6)
    histories = some_pairs(30, 300, 0.1, seed=7)
    sparse = sp.csr_array(
        rng.random((300, 300)).astype(np.float32) * (rng.random((300, 300)) < 0.1)
    )
    dense = torch.tensor(rng.random((300, 300)), dtype=torch.float32)
    left, right = (torch.tensor(rng.random((300, 4)), dtype=torch.float32) for _ in range(2))
    for scorer in (
        HistoryScorer(histories, sparse),
        HistoryScorer(histories, dense),
        HistoryScorer(histories, through=sparse[:40]),
        HistoryScorer(histories, left=left, right=right),
        HistoryScorer(histories, sparse, sparse[:40], left, right),
    ):
        check(scorer, 12, histories)
        check(scorer, 12, histories, candidates=[5, 5, 250, 17])
        check(scorer, 12, histories, candidates=[5, 5, 250, 17], exclude=[17, 3])
        check(scorer, 12, histories, exclude=[*range(280), 290, 290])
        one_by_one = torch.cat([scorer.scores(torch.tensor([u])) for u in range(30)])
        assert torch.equal(one_by_one, scorer.scores(torch.arange(30)))


@given(st.data())
def test_any_integer_scores(data: st.DataObject) -> None:
    num_users, num_items = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 40))
    seed, k = data.draw(st.integers(0, 999)), data.draw(st.integers(1, 50))
    density = data.draw(st.sampled_from([0.0, 0.3, 1.0]))
    check(
        dot(num_users, num_items, 2, seed, levels=3),
        k,
        some_pairs(num_users, num_items, density, seed),
    )


def test_everything_seen_gives_empty_lists() -> None:
    found = top_k(dot(2, 5, 2, 0), [0, 1], 3, seen=sp.csr_array(np.ones((2, 5), np.float32)))
    assert (found.items == -1).all()


def test_no_candidates_and_no_users() -> None:
    assert top_k(dot(2, 5, 2, 0), [0], 3, candidates=[]).items.shape == (1, 0)
    assert top_k(dot(2, 5, 2, 0), [], 3).items.shape == (0, 3)


def test_an_enormous_k_costs_no_more_than_the_catalogue() -> None:
    assert top_k(dot(2, 5, 2, 0), [0, 1], 10**12).items.shape == (2, 5)


@pytest.mark.parametrize("num_users", [1, 300])
def test_long_lists_keep_to_the_memory(num_users: int) -> None:
    """The vectors of one user's candidates, in float64, would take more than twice the bound."""
    scorer = dot(num_users, 10_000, 64, seed=2)
    whole = top_k(scorer, np.arange(num_users), 5_000, memory_mb=2_000)
    tracemalloc.start()
    try:
        found = top_k(scorer, np.arange(num_users), 5_000, memory_mb=1)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak - found.items.nbytes - found.scores.nbytes < 1_000_000
    np.testing.assert_array_equal(found.items, whole.items)
    np.testing.assert_array_equal(found.scores, whole.scores)


@pytest.mark.parametrize("scorer", ["dot", "history"])
def test_fewer_users_are_ranked_at_a_time_where_lists_are_long(
    scorer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows: list[int] = []

    def noted(scores: torch.Tensor, n: int) -> tuple[torch.Tensor, torch.Tensor]:
        rows.append(len(scores))
        return best_columns(scores, n)

    monkeypatch.setattr(topk, "best_columns", noted)
    pairs = some_pairs(100, 2_000, 0.01, seed=1)
    made = dot(100, 2_000, 4, seed=1) if scorer == "dot" else HistoryScorer(pairs, through=pairs)
    for k, least, most in (
        (10, 91, 100),
        (1_000, 1, 3_000_000 // (4 * topk.CANDIDATE_BYTES * (1_000 + exact.SLACK))),
    ):
        rows.clear()
        top_k(made, np.arange(100), k, memory_mb=3)
        assert least <= rows[0] <= most


@pytest.mark.parametrize("k", [0, -1])
def test_k_must_be_positive(k: int) -> None:
    with pytest.raises(ConfigError, match=f"k must be at least 1, got {k}"):
        top_k(dot(2, 5, 2, 0), [0], k)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.04, 0.3, 1.0])
@pytest.mark.parametrize("kind", ["vectors", "sum", "history"])
def test_allowed_items_are_those_of_a_filter(kind: str, share: float) -> None:
    scorer: Scorer = dot(80, 1_500, 6, seed=2, levels=3)
    if kind != "vectors":
        scorer = with_history(dot(80, 1_500, 6, seed=2), 3, 3)
    if kind == "history":
        assert isinstance(scorer, SumScorer)
        scorer = scorer.history
    rng = np.random.default_rng(4)
    allowed = rng.random(1_500) < share
    chosen, never = np.arange(0, 1_500, 7), rng.choice(1_500, 90)
    seen = some_pairs(80, 1_500, 0.1, seed=5)
    for users in (np.arange(80), np.array([3])):
        whole = top_k(scorer, users, 1_500, seen=seen, exclude=never)
        for k in (5, 1_500):
            found = top_k(scorer, users, k, seen=seen, exclude=never, allowed=allowed)
            for row, items in enumerate(whole.items):
                kept = np.flatnonzero((items >= 0) & allowed[items])[:k]
                num = len(kept)
                np.testing.assert_array_equal(found.items[row, :num], items[kept])
                np.testing.assert_array_equal(found.scores[row, :num], whole.scores[row, kept])
                assert (found.items[row, num:] == -1).all()
        both = top_k(scorer, users, 9, candidates=chosen, allowed=allowed)
        some = top_k(scorer, users, 9, candidates=chosen[allowed[chosen]])
        np.testing.assert_array_equal(both.items, some.items)
