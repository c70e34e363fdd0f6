import ir_measures
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from ir_measures import AP, RR, P, R, Success, nDCG, pytrec_eval

from mgformer.ranking import metrics
from tests.ranking import oracles_ranking as oracles

KS = (1, 3, 10, 20, 64)


def test_equal_trec_eval_on_a_thousand_users_with_ties_and_short_lists() -> None:
    """trec_eval ranks by score and breaks ties by the larger name: names are made to agree."""
    rng = np.random.default_rng(0)
    num_users, num_items = 1_000, 60
    scores = rng.integers(0, 8, (num_users, num_items)).astype(float)
    shown = rng.random((num_users, num_items)) < rng.random((num_users, 1))
    shown[:, 0] = True  # trec_eval leaves out users without any list
    relevant = rng.random((num_users, num_items)) < 0.02 + 0.5 * rng.random((num_users, 1))
    relevant[np.arange(num_users), rng.integers(0, num_items, num_users)] = True

    name = [f"{num_items - item:03d}" for item in range(num_items)]
    qrels = {str(u): {name[i]: 1 for i in np.flatnonzero(relevant[u])} for u in range(num_users)}
    run = {
        str(u): {name[i]: scores[u, i] for i in np.flatnonzero(shown[u])} for u in range(num_users)
    }
    hits = np.zeros((num_users, max(KS)), dtype=bool)
    for user in range(num_users):
        listed = np.flatnonzero(shown[user])
        ranked = listed[np.argsort(-scores[user, listed], kind="stable")]
        hits[user, : len(ranked)] = relevant[user, ranked]
    counts = relevant.sum(1)

    def theirs(measure: ir_measures.Measure) -> np.ndarray:
        values = {int(m.query_id): m.value for m in pytrec_eval.iter_calc([measure], qrels, run)}
        assert len(values) == num_users
        return np.array([values[user] for user in range(num_users)])

    measures = {"recall": R, "precision": P, "hitrate": Success, "map": AP, "ndcg": nDCG}
    for k in KS:
        expected = {name: theirs(measure @ k) for name, measure in measures.items()}
        whole = theirs(RR)  # trec_eval has no cut-off for it
        expected["mrr"] = np.where(whole >= 1 / k, whole, 0.0)
        for name, values in expected.items():
            ours = metrics.METRICS[name](hits, counts, k)
            np.testing.assert_allclose(ours, values, rtol=0, atol=1e-9, err_msg=f"{name}@{k}")
            assert ours.max() > 0.1  # the comparison is not vacuous


@pytest.mark.parametrize("name", sorted(metrics.METRICS))
def test_formulas_equal_the_loops(name: str) -> None:
    rng = np.random.default_rng(1)
    hits = rng.random((200, 12)) < 0.3
    relevant = hits.sum(1) + rng.integers(0, 9, 200) + (hits.sum(1) == 0)
    for k in (1, 2, 5, 12, 30):
        ours = metrics.METRICS[name](hits, relevant, k)
        slow = [
            oracles.METRICS[name](list(h), int(n), k) for h, n in zip(hits, relevant, strict=True)
        ]
        np.testing.assert_allclose(ours, slow, rtol=0, atol=1e-12)


@given(npst.arrays(bool, st.tuples(st.integers(1, 5), st.integers(1, 20))), st.integers(1, 25))
def test_bounds_and_monotony(hits: np.ndarray, k: int) -> None:
    relevant = hits.sum(1) + 1
    for name, formula in metrics.METRICS.items():
        value = formula(hits, relevant, k)
        assert (value >= 0).all()
        assert (value <= 1 + 1e-12).all()
        if name in ("recall", "hitrate", "mrr", "map"):
            assert (formula(hits, relevant, k + 1) >= value).all()


def test_a_perfect_ranking_scores_one() -> None:
    hits = np.array([[True, True, False], [True, False, False]])
    for name in ("recall", "ndcg", "map", "hitrate", "mrr", "capped_recall"):
        np.testing.assert_allclose(metrics.METRICS[name](hits, np.array([2, 1]), 3), 1.0)


def test_an_enormous_k_is_cheap() -> None:
    hits, relevant = np.array([[True, False]]), np.array([2])
    assert metrics.ndcg(hits, relevant, 10**12)[0] == metrics.ndcg(hits, relevant, 2)[0]


def test_recall_denominators_differ_only_beyond_k() -> None:
    hits = np.array([[True, True]])
    assert metrics.recall(hits, np.array([8]), 2)[0] == 2 / 8
    assert metrics.capped_recall(hits, np.array([8]), 2)[0] == 1.0


def test_the_worked_example_of_the_docs() -> None:
    hits = np.array([[False, True, False, True, False]])
    relevant = np.array([3])
    value = {name: formula(hits, relevant, 5)[0] for name, formula in metrics.METRICS.items()}
    assert value == pytest.approx(
        {
            "recall": 2 / 3,
            "capped_recall": 2 / 3,
            "precision": 2 / 5,
            "hitrate": 1.0,
            "mrr": 1 / 2,
            "map": (1 / 2 + 2 / 4) / 3,
            "ndcg": (1 / np.log2(3) + 1 / np.log2(5)) / (1 + 1 / np.log2(3) + 1 / np.log2(4)),
        }
    )


def test_catalogue_figures() -> None:
    items = np.array([[0, 1], [0, -1], [0, 1]], dtype=np.int32)
    assert metrics.coverage(items, 4) == 2 / 4
    assert metrics.gini(items, 4) == pytest.approx(oracles.gini([3, 2, 0, 0]))
    assert metrics.gini(np.array([[0], [1]], dtype=np.int32), 2) == 0.0
    degrees = np.array([4, 1, 0, 0])
    assert metrics.novelty(items, degrees, 8) == pytest.approx((3 * 1 + 2 * 3) / 5)
    nothing = np.full((2, 2), -1, dtype=np.int32)
    assert (metrics.coverage(nothing, 4), metrics.gini(nothing, 4)) == (0.0, 0.0)
    assert metrics.novelty(nothing, degrees, 8) == 0.0
