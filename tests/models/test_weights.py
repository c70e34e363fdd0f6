"""What the weights of pairs do in each model, against slow references."""

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import polars as pl
import pytest
import scipy.sparse as sp
import torch

from mgformer import Recommender
from mgformer.data.chronology import recency
from mgformer.data.dataset import read_dataset
from mgformer.errors import ConfigError, DataError
from mgformer.graph.bipartite import Graph
from mgformer.models import BUILTIN, model_class
from mgformer.models.base import Model, ModelConfig
from mgformer.models.simple.ease import EASE
from mgformer.models.simple.ials import IALS
from mgformer.models.simple.neighbors import ItemKNN, RP3Beta
from mgformer.models.simple.popularity import Popularity
from mgformer.models.simple.ridge import Ridge
from mgformer.models.simple.spectral import GFCF, PureSVD
from mgformer.ranking.scorers import DotScorer
from mgformer.recommend.recommender import Recommender as Trained
from mgformer.runs.config import build_config
from mgformer.runs.fit import _chances
from tests.models.simple import oracles_simple as oracles

DATA = Path(__file__).parents[2] / "docs/guide/data.md"
AS_TWO_USERS: list[tuple[type[Model], dict[str, Any]]] = [
    (Popularity, {}),
    (ItemKNN, {"num_neighbors": 50}),
    (ItemKNN, {"num_neighbors": 50, "weighting": "tfidf", "shrink": 0.0}),
    (RP3Beta, {"alpha": 1.0}),
    (EASE, {"l2": 3.0}),
    (Ridge, {"l2": 3.0, "num_predictors": 5}),
    (PureSVD, {"rank": 4}),
    (PureSVD, {"rank": 4, "normalized": True}),
    (GFCF, {"rank": 4}),
]


@pytest.fixture
def weighted(rng: np.random.Generator) -> Graph:
    """Forty users and eleven items; no two items have the same users."""
    r = sp.csr_array((rng.random((40, 11)) < 0.5).astype(np.float32))
    return Graph(r, None, rng.uniform(0.2, 3.0, r.nnz).astype(np.float32))


def dense(graph: Graph, exponent: float) -> np.ndarray:
    """Entries w^exponent, one pair after the other."""
    found = np.zeros(graph.interactions.shape)
    assert graph.strengths is not None
    users, items = graph.interactions.nonzero()
    for user, item, weight in zip(users, items, graph.strengths.tolist(), strict=True):
        found[user, item] = weight**exponent
    return found


def scores(model: type[Model], graph: Graph, options: dict[str, Any]) -> np.ndarray:
    scorer = model(model.Config(**options), graph, np.random.default_rng(0)).scorer()
    return scorer.scores(torch.arange(graph.num_users)).double().numpy()


@pytest.mark.parametrize(
    ("model", "options"), AS_TWO_USERS, ids=lambda v: getattr(v, "__name__", "")
)
def test_a_user_of_weight_two_counts_as_two_users(
    model: type[Model], options: dict[str, Any], rng: np.random.Generator
) -> None:
    r = sp.csr_array((rng.random((40, 11)) < 0.4).astype(np.float32))
    twice = np.arange(40) < 15
    by_weight = Graph(r, None, np.repeat(1.0 + twice, np.diff(r.indptr)).astype(np.float32))
    by_users = Graph(sp.csr_array(sp.vstack([r, r[twice]], format="csr")))
    found = scores(model, by_weight, options)
    if options.get("weighting") == "tfidf":
        expected = oracles.itemknn(dense(by_weight, 0.5) * idf(r), 50, 0.0, "none")
        np.testing.assert_allclose(found, r.toarray() @ expected, atol=1e-4)
        return
    expected = scores(model, by_users, options)[:40]
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5 * np.abs(expected).max())
    plain = scores(model, Graph(r), options)
    assert np.abs(found - plain).max() > 1e-3 * np.abs(plain).max()  # weights do something


def idf(r: sp.csr_array) -> np.ndarray:
    return np.log((1 + r.shape[1]) / (1 + np.diff(r.indptr)))[:, None]


def test_regressions_use_weighted_co_occurrences(weighted: Graph) -> None:
    x, r = dense(weighted, 0.5), weighted.interactions.toarray().astype(np.float64)
    gram, size = x.T @ x, x.shape[1]
    inverse = np.linalg.inv(gram + 3.0 * np.eye(size))
    ease = -inverse / np.diag(inverse)
    np.fill_diagonal(ease, 0)
    np.testing.assert_allclose(scores(EASE, weighted, {"l2": 3.0}), r @ ease, atol=1e-5)
    ridge = np.zeros_like(gram)
    for item in range(size):
        near = [other for other in range(size) if other != item]
        penalty = np.diag(3.0 + 0.5 * np.diag(gram)[near])
        ridge[near, item] = np.linalg.solve(gram[np.ix_(near, near)] + penalty, gram[near, item])
    options = {"l2": 3.0, "num_predictors": 50, "dropout": 0.5}
    np.testing.assert_allclose(scores(Ridge, weighted, options), r @ ridge, atol=1e-5)


def test_regressions_of_large_catalogs_have_the_same_weights(
    weighted: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"l2": 3.0, "num_predictors": 4}
    small = scores(Ridge, weighted, options)
    monkeypatch.setattr("mgformer.graph.regression.SMALL_CATALOG", 0)
    np.testing.assert_allclose(scores(Ridge, weighted, options), small, atol=1e-5)


def test_neighbors_use_weighted_cosines(weighted: Graph) -> None:
    expected = oracles.itemknn(dense(weighted, 0.5), 50, 10.0, "none")
    r = weighted.interactions.toarray()
    options = {"num_neighbors": 50, "shrink": 10.0}
    np.testing.assert_allclose(scores(ItemKNN, weighted, options), r @ expected, atol=1e-5)


def test_ials_counts_the_error_of_a_pair_by_its_weight(weighted: Graph) -> None:
    """Users minimize Σ_seen (w (x·h − 1)² + …): Hu's form of it has the confidence 1 + w / α₀."""
    pytest.importorskip("implicit")
    alpha, l2 = 0.2, 0.01
    options = IALS.Config(rank=3, unobserved_weight=alpha, l2=l2, num_iterations=3)
    scorer = IALS(options, weighted, np.random.default_rng(0)).scorer()
    h = scorer.items.double().numpy() * (1 + alpha) ** 0.5
    seen, w = weighted.interactions.toarray() > 0, dense(weighted, 1.0)
    for user in range(weighted.num_users):
        confidence = np.where(seen[user], 1 + w[user] / alpha, 1.0)
        ridge = l2 * (seen[user].sum() + alpha * len(h)) * (1 + alpha) / alpha
        left = (h.T * confidence) @ h + ridge * np.eye(3)
        right = h.T @ (confidence * seen[user])
        x = np.linalg.solve(left, right) / (1 + alpha) ** 0.5
        np.testing.assert_allclose(scorer.users[user].numpy(), x, atol=1e-4)
    plain = IALS(options, Graph(weighted.interactions), np.random.default_rng(0)).scorer()
    assert (plain.users - scorer.users).abs().max() > 1e-3


def test_trained_models_draw_pairs_by_weight(rng: np.random.Generator) -> None:
    weights = rng.uniform(1, 5, 12)
    users, items, times = np.repeat(np.arange(4), 3), np.tile(np.arange(3), 4), np.arange(12)
    pairs = read_dataset((users, items, times, weights)).interactions
    config = build_config({"model": {"name": "bprmf"}, "train": {"recency": 2.0}})
    chances = _chances(config, pairs, None)
    assert chances is not None
    np.testing.assert_allclose(chances, weights / weights.sum(), rtol=1e-6)
    positions = np.linspace(0, 1, 12, dtype=np.float32)
    both = weights * recency(positions, 2.0)
    aged = _chances(config, pairs, positions)
    assert aged is not None
    np.testing.assert_allclose(aged, both / both.sum(), rtol=1e-6)


def table_of(rng: np.random.Generator, weights: Any) -> pl.DataFrame:
    rows = [(user, item) for user in range(30) for item in rng.choice(12, 6, replace=False)]
    return pl.DataFrame(rows, schema=["user", "item"], orient="row").with_columns(weight=weights)


@pytest.mark.parametrize("name", ["ease", "bprmf"])
def test_equal_weights_change_nothing(name: str, rng: np.random.Generator) -> None:
    table = table_of(rng, pl.lit(7.0))
    options: dict[str, Any] = {"split": {"kind": "ratio"}, "train": {"epochs": 1}}
    one = Recommender.fit(table, name, **options)
    two = Recommender.fit(table.drop("weight"), name, **options)
    assert one.bundle.record.test == two.bundle.record.test
    assert one.recommend(3).equals(two.recommend(3))


def test_a_saved_recommender_keeps_the_weights_for_its_refit(
    rng: np.random.Generator, tmp_path: Path
) -> None:
    table = table_of(rng, pl.Series(rng.uniform(0.1, 9, 180)))
    first = Recommender.fit(table, "popularity", split={"kind": "ratio"})
    first.save(tmp_path)
    again = Trained.load(tmp_path).refit()
    sums = dict(table.group_by("item").agg(pl.col("weight").sum()).iter_rows())
    scorer = again.bundle.scorer
    assert isinstance(scorer, DotScorer)
    expected = np.array([sums[item] for item in again.bundle.items.values])
    np.testing.assert_allclose(scorer.items[:, 0], expected / table["weight"].mean(), rtol=1e-5)
    new = pl.DataFrame({"user": [0], "item": [first.bundle.items.values[0]], "weight": [500.0]})
    refreshed = again.refresh(new).bundle.scorer
    assert isinstance(refreshed, DotScorer)
    assert refreshed.items[:, 0].argmax() == 0


class Unweighted(Popularity):
    """A model that does not use weights."""

    weights: ClassVar[str | None] = None

    class Config(ModelConfig):
        """No options."""


def test_a_model_that_ignores_weights_refuses_them(rng: np.random.Generator) -> None:
    table = table_of(rng, pl.Series(rng.uniform(0.1, 9, 180)))
    with pytest.raises(ConfigError, match="does not use the weights of pairs") as caught:
        Recommender.fit(table, Unweighted)
    assert "\n" not in str(caught.value)
    Recommender.fit(table.drop("weight"), Unweighted)


@pytest.mark.parametrize("weight", [0.0, -1.0])
def test_weights_are_positive(weight: float, rng: np.random.Generator) -> None:
    with pytest.raises(DataError, match=f"got {weight} as a weight, expected a weight above 0"):
        read_dataset(table_of(rng, pl.lit(weight)))


def test_the_guide_says_what_every_model_does() -> None:
    rows = [f"| `{name}` | {model_class(name).weights} |" for name in BUILTIN]
    assert "None" not in "".join(rows)
    assert "\n".join(rows) in DATA.read_text()
