"""Trend and recency in scores: by the formula, chosen on validation, and blind to the future."""

import numpy as np
import polars as pl
import pytest
import scipy.sparse as sp
import torch

from mgformer.data.chronology import Chronology
from mgformer.data.dataset import Dataset, read_dataset
from mgformer.ranking.score import Ingredients, Weights, rescored
from mgformer.ranking.scorers import DotScorer, HistoryScorer, SumScorer
from mgformer.ranking.topk import top_k
from mgformer.runs.bundle import Bundle
from mgformer.runs.config import build_config
from mgformer.runs.train import train, untrained_model

TINY = {
    "popularity": {},
    "itemknn": {},
    "rp3beta": {},
    "ease": {},
    "ridge": {"num_predictors": 20, "l2": 5.0},
    "gfcf": {"rank": 8},
    "directau": {"dim": 8},
    "guided": {"dim": 8, "num_predictors": 20, "l2": 5.0},
    "mgformer": {"dim": 8, "rank": 8, "key_sample": 64},
}


def moving_tastes(seed: int = 0, num_users: int = 150) -> pl.DataFrame:
    """Users walk along a ring of 60 items: their latest items say what comes next."""
    rng = np.random.default_rng(seed)
    rows = []
    for user in range(num_users):
        at, start = rng.integers(60), rng.integers(0, 300)
        for step in range(16):
            at += rng.integers(1, 4)
            rows.append((user, int(at) % 60, int(start) + 40 * step + int(rng.integers(0, 20))))
    return pl.DataFrame(rows, schema=["user", "item", "time"], orient="row")


def trained(name: str, frame: pl.DataFrame, **score: object) -> Bundle:
    sections = {"train": {"epochs": 2, "batch_size": 256}, "evaluation": {"ks": [20]}}
    described = {"model": {"name": name, **TINY[name]}, "score": score, **sections}
    return train(build_config(described), read_dataset(frame, name="moving"))


@pytest.fixture
def chronology() -> Chronology:
    return Chronology(read_dataset(moving_tastes(1, 30)).interactions)


def history_scorer(pairs: sp.csr_array, rng: np.random.Generator) -> HistoryScorer:
    matrix = (rng.random((60, 60)) * (rng.random((60, 60)) < 0.2)).astype(np.float32)
    return HistoryScorer(pairs, sp.csr_array(matrix))


def test_scores_of_histories_by_the_formula(chronology: Chronology, rng) -> None:
    base = history_scorer(chronology.pairs.matrix, rng)
    degrees = torch.from_numpy(np.diff(chronology.pairs.matrix.tocsc().indptr))
    parts = Ingredients(degrees, None, chronology)
    found = parts.compose(base, Weights(None, eta=0.7, kappa=2.0))
    assert found.weights == Weights(None, None, None, 0.7, 2.0)
    dense, order = base.weights.toarray(), chronology.pairs
    scores = found.scorer.scores(torch.arange(30)).numpy()
    for user in range(30):
        expected = np.zeros(60)
        for pair in range(order.indptr[user], order.indptr[user + 1]):
            aged = np.exp(-2.0 * (1 - chronology.positions[pair]))
            expected += aged * dense[order.indices[pair]]
        np.testing.assert_allclose(scores[user], expected * chronology.trend**0.7, rtol=1e-4)
    off = parts.compose(base, Weights(None, eta=0.0, kappa=0.0)).scorer
    torch.testing.assert_close(off.scores(torch.arange(30)), base.scores(torch.arange(30)))
    assert Ingredients(degrees).compose(base, Weights(None, eta=1.0, kappa=1.0)).scorer is base


@pytest.mark.parametrize("kind", ["dot", "cosine", "degree", "prior"])
def test_trend_of_vectors_by_the_formula(kind, rng) -> None:
    users, items = (torch.from_numpy(rng.standard_normal((n, 4))).float() for n in (7, 5))
    degrees, trend = torch.tensor([3, 0, 1, 40, 7]), torch.tensor([0.5, 1.0, 2.0, 1.5, 0.8])
    found = rescored(DotScorer(users, items), kind, 0.4, degrees, 0.3, trend)
    plain = rescored(DotScorer(users, items), kind, 0.4, degrees)
    everyone = torch.arange(7)
    size = 1.0
    if kind == "dot":
        size = float(users.norm(dim=1).mean() * items.norm(dim=1).mean())
    if kind == "degree":
        expected = plain.scores(everyone) * trend**0.3
    else:
        expected = plain.scores(everyone) + 0.3 * size * trend.log()
    torch.testing.assert_close(found.scores(everyone), expected, rtol=1e-4, atol=1e-5)
    # What is added for everybody is added for new users too.
    rows = sp.csr_array(np.eye(5, dtype=np.float32))
    difference = found.fold_in(rows).scores(torch.arange(5)) - plain.fold_in(rows).scores(
        torch.arange(5)
    )
    if kind != "degree":
        torch.testing.assert_close(
            difference, (0.3 * size * trend.log()).expand(5, 5), atol=1e-5, rtol=0
        )


@pytest.mark.parametrize(("kind", "power"), [("degree", 0.2), ("prior", 0.6), ("cosine", 0.6)])
def test_the_guide_follows_trend_too(kind, power, chronology: Chronology, rng) -> None:
    """Where η weighs a summand, the scores of the guide are multiplied by trend^(3 η)."""
    guide = history_scorer(chronology.pairs.matrix, rng)
    sides = (torch.from_numpy(rng.standard_normal((n, 4), dtype=np.float32)) for n in (30, 60))
    vectors, degrees = DotScorer(*sides), torch.arange(60)
    parts, everyone = Ingredients(degrees, guide, chronology), torch.arange(30)
    both = parts.compose(vectors, Weights(kind, 0.1, 2.0, 0.2, 1.5)).scorer
    alone = parts.compose(vectors, Weights(kind, 0.1, 0.0, 0.2, 1.5)).scorer
    aged = Ingredients(degrees, None, chronology).compose(guide, Weights(kappa=1.5)).scorer
    added = 2.0 * aged.scores(everyone) * torch.from_numpy(chronology.trend) ** power
    torch.testing.assert_close(both.scores(everyone), alone.scores(everyone) + added)


@pytest.mark.parametrize("length", [1, 5, 7, 8, 40], ids="{} items".format)
def test_counts_of_items_enter_the_normal_equations(length: int, rng) -> None:
    items = torch.from_numpy(rng.standard_normal((60, 7), dtype=np.float32))
    history, counts = rng.permutation(60)[:length], rng.random(length).astype(np.float32)
    row = sp.csr_array((counts, history, [0, length]), shape=(1, 60))
    scorer = DotScorer(torch.zeros(1, 7), items, 0.3, 0.02)
    (user,) = scorer.fold_in(row).users.numpy()
    v, c = items.double().numpy(), counts.astype(np.float64)
    own = v[history]
    ridge = 0.02 * (c.sum() + 0.3 * 60) * np.eye(7)
    system = own.T @ (c[:, None] * own) + 0.3 * v.T @ v + ridge
    np.testing.assert_allclose(user, np.linalg.solve(system, own.T @ c), rtol=0, atol=1e-6)
    added = scorer.contributions(history, np.arange(60), counts)
    np.testing.assert_allclose(added.sum(0), v @ user, atol=1e-5)


def test_factors_of_items_reach_lists_reasons_and_sums(chronology: Chronology, rng) -> None:
    from dataclasses import replace

    factors = torch.from_numpy(rng.random(60, dtype=np.float32)) + 0.1
    plain = history_scorer(chronology.pairs.matrix, rng)
    scorer = replace(plain, item_factors=factors)
    everyone = torch.arange(30)
    expected = plain.scores(everyone) * factors
    torch.testing.assert_close(scorer.scores(everyone), expected)
    vectors = DotScorer(torch.zeros(30, 2), torch.zeros(60, 2))
    for either in (scorer, SumScorer(vectors, scorer)):
        best = top_k(either, np.arange(30), 5)
        np.testing.assert_array_equal(best.scores, expected.topk(5).values)
    history = np.array([3, 9, 40])
    counts = np.array([0.2, 0.5, 1.0], np.float32)
    row = sp.csr_array((counts, history, [0, 3]), shape=(1, 60))
    added = scorer.contributions(history, np.arange(60), counts)
    np.testing.assert_allclose(
        added.sum(0), scorer.fold_in(row).scores(torch.tensor([0]))[0], atol=1e-6
    )
    torch.testing.assert_close(scorer.similarities(7), plain.similarities(7))


@pytest.mark.parametrize("name", ["ease", "ridge", "itemknn", "guided"])
def test_recency_is_chosen_where_the_latest_items_tell(name: str) -> None:
    with_time, without = trained(name, moving_tastes()), trained(name, moving_tastes(), time="off")
    assert with_time.record.kappa > 0
    assert with_time.record.eta is not None
    assert without.record.kappa is without.record.eta is None
    assert with_time.record.test["ndcg@20"] > without.record.test["ndcg@20"]


def test_weights_that_are_given_are_used() -> None:
    record = trained("ease", moving_tastes(), eta=0.5, kappa=3.0).record
    assert (record.eta, record.kappa) == (0.5, 3.0)
    record = trained("directau", moving_tastes(), eta=0.2).record
    assert (record.eta, record.kappa) == (0.2, None)


def test_time_is_off_where_held_out_pairs_are_not_later() -> None:
    described = {"model": {"name": "ease"}, "split": {"kind": "ratio"}}
    dataset = read_dataset(moving_tastes())
    assert train(build_config(described), dataset).record.kappa is None
    assert (
        train(build_config({**described, "score": {"time": "on"}}), dataset).record.kappa
        is not None
    )


@pytest.mark.parametrize("name", TINY)
def test_the_future_changes_no_bit_of_a_model(name: str) -> None:
    """Pairs of the test period are replaced; the trained model and its choices stay the same."""
    frame = moving_tastes()
    cut = frame["time"].sort()[int(0.9 * len(frame))]
    late = pl.col("time") >= cut
    owned = set(frame.select("user", "item").iter_rows())
    others = []
    for user, item in frame.select("user", "item").iter_rows():
        # A pair that the user has before would be merged with it, which changes the past.
        while (user, item) in owned:
            item = (item + 7) % 60
        owned.add((user, item))
        others.append(item)
    changed = frame.with_columns(
        item=pl.when(late).then(pl.Series(others)).otherwise(pl.col("item"))
    )
    one, two = trained(name, frame), trained(name, changed)
    assert one.record.test != two.record.test
    assert one.record.chosen == two.record.chosen
    assert one.record.valid == two.record.valid
    _assert_same(one.scorer, two.scorer)
    assert one.weights.keys() == two.weights.keys()
    for key, tensor in one.weights.items():
        assert torch.equal(tensor, two.weights[key])


def _assert_same(one: object, two: object) -> None:
    for key, value in vars(one).items():
        other = vars(two).get(key)
        if isinstance(value, torch.Tensor):
            assert torch.equal(value, other), key
        elif sp.issparse(value):
            assert (value != other).nnz == 0, key
        elif isinstance(value, DotScorer | HistoryScorer):
            _assert_same(value, other)


def test_a_refit_uses_the_order_of_everything() -> None:
    from mgformer.runs.refit import refit

    bundle = trained("ease", moving_tastes())
    whole = refit(bundle)
    known = Chronology(whole.train)
    expected = known.histories(bundle.record.kappa)
    assert len(whole.train) > len(bundle.train)
    np.testing.assert_allclose(whole.scorer.histories.data, expected.data)


def test_users_who_appear_later_are_not_ranked() -> None:
    frame = moving_tastes()
    late = pl.DataFrame({"user": [999] * 3, "item": [1, 2, 3], "time": [10_000, 10_001, 10_002]})
    bundle = train(
        build_config({"model": {"name": "ease"}, "split": {"kind": "time"}}),
        Dataset("late", read_dataset(pl.concat([frame, late])).interactions),
    )
    assert bundle.per_user is not None
    assert 999 not in bundle.per_user["user"]


def test_a_model_is_rebuilt_with_the_order_it_had() -> None:
    bundle = trained("guided", moving_tastes())
    model = untrained_model(bundle)
    model.load_state_dict(dict(bundle.weights))
    vectors = bundle.scorer.vectors if isinstance(bundle.scorer, SumScorer) else bundle.scorer
    h = model.eval().scorer()
    torch.testing.assert_close(
        torch.nn.functional.normalize(h.users), vectors.users[:, : vectors.num_varying]
    )
