"""Items without interactions get what their attributes predict; the others keep their scores."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from mgformer.data.attribute_features import Features
from mgformer.graph.feature_ridge import FACTORS, PENALTIES, Ridge, best_setting
from mgformer.ranking import cold
from mgformer.ranking.cold import FEW, MOST_FEW, RELIABLE, Known, with_cold_items
from mgformer.ranking.scorers import DotScorer, HistoryScorer, SumScorer

NUM_USERS, NUM_ITEMS, KINDS, DIM = 60, 240, 4, 5
COLD = slice(0, 40)


def planted() -> tuple[Known, np.ndarray]:
    """Items of four kinds, some of them without interactions, and the kind of each."""
    rng = np.random.default_rng(7)
    kinds = rng.integers(0, KINDS, NUM_ITEMS)
    degrees = rng.integers(20, 40, NUM_ITEMS)
    degrees[COLD] = 0
    features = np.concatenate([np.ones((NUM_ITEMS, 1)), np.eye(KINDS)[kinds]], axis=1)
    return Known(plain(features), degrees), kinds


def plain(table: np.ndarray, num_doubtful: int = 0) -> Features:
    """Features of which the last are doubtful."""
    doubtful = np.arange(table.shape[1]) >= table.shape[1] - num_doubtful
    return Features(sp.csr_array(table), doubtful)


def vectors(kinds: np.ndarray, seed: int = 3, noise: float = 0.05) -> DotScorer:
    rng = np.random.default_rng(seed)
    centers = np.eye(KINDS, DIM)
    items = centers[kinds] + noise * rng.standard_normal((NUM_ITEMS, DIM))
    items[COLD] = rng.standard_normal((40, DIM))  # as training leaves them
    users = np.eye(KINDS, DIM)[np.arange(NUM_USERS) % KINDS]
    both = [torch.from_numpy(table.astype(np.float32)) for table in (users, items)]
    return DotScorer(both[0], both[1], unit=True)


def test_ridge_solves_the_normal_equations():
    rng = np.random.default_rng(1)
    x, y, c = rng.standard_normal((30, 4)), rng.standard_normal((30, 3)), rng.random(30)
    found = Ridge(sp.csr_array(x), c, 0.7).solve(y)
    expected = np.linalg.solve(x.T @ np.diag(c) @ x + 0.7 * np.eye(4), x.T @ (c[:, None] * y))
    np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize(
    ("noise", "use", "factors"),
    [(0.1, 1.0, {2.0}), (10.0, 1.0, {*FACTORS}), (0.5, 0.0, {0.0}), (3.0, 0.3, {*FACTORS})],
)
def test_the_setting_is_that_of_a_plain_cross_validation(
    noise: float, use: float, factors: set[float]
):
    """Doubtful channels have a penalty of their own; the more useful they are, the smaller."""
    rng = np.random.default_rng(2)
    x = rng.standard_normal((50, 13))
    x[:, 6:] *= 0.2
    coefficients = rng.standard_normal((13, 2)) * np.where(np.arange(13) < 6, 1, use / 0.2)[:, None]
    y = x @ coefficients + noise * rng.standard_normal((50, 2))
    c = rng.random(50) + 0.5
    folds = np.random.default_rng(9).permutation(50) % 5
    errors = {}
    for factor in FACTORS:
        own = x if factor else x[:, :6]
        width = own.shape[1]
        for penalty in PENALTIES:
            penalties = np.full(width, penalty)
            penalties[6:] /= factor**2 or 1
            error = 0.0
            for fold in range(5):
                out = folds == fold
                inside, weights = own[~out], np.diag(c[~out])
                w = np.linalg.solve(
                    inside.T @ weights @ inside + np.diag(penalties), inside.T @ weights @ y[~out]
                )
                error += (c[out][:, None] * (own[out] @ w - y[out]) ** 2).sum()
            errors[penalty, factor] = error
    found = best_setting(plain(x, 7), y, c, np.random.default_rng(9))
    assert found == min(errors, key=lambda setting: errors[setting])
    assert found.factor in factors


def test_without_doubtful_channels_there_is_no_factor():
    rng = np.random.default_rng(2)
    x, y = rng.standard_normal((50, 6)), rng.standard_normal((50, 2))
    assert best_setting(plain(x), y, np.ones(50), rng).factor == 1


@pytest.mark.parametrize("told", [True, False])
def test_words_count_if_they_tell_the_kind_and_not_if_they_are_noise(told: bool):
    known, kinds = planted()
    rng = np.random.default_rng(5)
    words = np.eye(KINDS)[kinds if told else rng.integers(0, KINDS, NUM_ITEMS)]
    table = np.concatenate([np.ones((NUM_ITEMS, 1)), words], axis=1)
    found = with_cold_items(vectors(kinds), known._replace(features=plain(table, KINDS)))
    assert (found.settings["vectors"].factor > 0) == told


def test_cold_vectors_point_to_their_kind_and_warm_ones_stay():
    known, kinds = planted()
    before = vectors(kinds)
    after = with_cold_items(before, known).scorer
    assert isinstance(after, DotScorer)
    assert torch.equal(after.items[40:], before.items[40:])
    assert torch.equal(after.users, before.users)
    assert (after.items[COLD, :KINDS].argmax(1).numpy() == kinds[COLD]).all()
    assert (before.items[COLD, :KINDS].argmax(1).numpy() != kinds[COLD]).any()


def test_few_interactions_blend_own_and_predicted_directions():
    known, kinds = planted()
    known.degrees[40:42] = (1, MOST_FEW)
    before = vectors(kinds)
    after, settings = with_cold_items(before, known)
    assert isinstance(after, DotScorer)
    warm, items = known.warm, before.items.double().numpy()
    lengths = np.linalg.norm(items, axis=1, keepdims=True)
    counts = known.degrees[warm] / (known.degrees[warm] + RELIABLE)
    features, unit = known.features.of(warm), items / lengths
    setting = best_setting(features, unit[warm], counts, np.random.default_rng(0))
    assert settings == {"vectors": setting}
    ridge = Ridge(features.table, counts, setting.penalty)
    predicted = known.features.table @ ridge.solve(unit[warm])
    for item, count in ((40, 1), (41, MOST_FEW)):
        mixed = (count * unit[item] + FEW * predicted[item]) / (count + FEW)
        np.testing.assert_allclose(after.items[item], mixed * lengths[item], atol=1e-5)
        assert np.abs(mixed - unit[item]).max() > 1e-3
    assert torch.equal(after.items[42:], before.items[42:])


@pytest.mark.parametrize("dense", [True, False])
def test_columns_of_cold_items_are_those_of_their_kind(dense: bool):
    known, kinds = planted()
    rng = np.random.default_rng(4)
    same = (kinds[:, None] == kinds[None]) * (1 + 0.1 * rng.random((NUM_ITEMS, NUM_ITEMS)))
    np.fill_diagonal(same, 0)
    same[:, COLD] = 0
    same[COLD] = 0
    weights = same.astype(np.float32)
    histories = sp.csr_array((np.arange(NUM_ITEMS)[None] == 40 + np.arange(20)[:, None]) * 1.0)
    scorer = HistoryScorer(
        sp.csr_array(histories, dtype=np.float32),
        torch.from_numpy(weights) if dense else sp.csr_array(weights),
    )
    after, settings = with_cold_items(scorer, known)
    assert set(settings) == {"columns"}
    scores = after.scores(torch.arange(20)).numpy()
    assert (scores[:, 40:] == scorer.scores(torch.arange(20)).numpy()[:, 40:]).all()
    cold = scores[:, COLD]
    for user in range(20):
        alike = kinds[COLD] == kinds[40 + user]
        assert cold[user, alike].min() > cold[user, ~alike].max()


def test_predicted_rows_keep_their_largest_entries(monkeypatch: pytest.MonkeyPatch):
    """Blocks of columns are cut first, and then the whole rows."""
    known, kinds = planted()
    rng = np.random.default_rng(8)
    rows = rng.standard_normal((KINDS, 90))[kinds] + 0.1 * rng.standard_normal((NUM_ITEMS, 90))
    targets = sp.csr_array(rows[known.warm])
    every, setting = cold.predicted_rows(targets, known, known.cold, None)
    monkeypatch.setattr(cold, "MOST_KEPT", 7)
    monkeypatch.setattr(cold, "BLOCK", 16)
    found, again = cold.predicted_rows(targets, known, known.cold, None)
    assert again == setting
    whole, cut = every.toarray(), found.toarray()
    assert (whole != 0).all()
    assert (np.diff(found.indptr) == 7).all()
    for full, part in zip(whole, cut, strict=True):
        largest = np.argsort(-np.abs(full))[:7]
        assert set(np.flatnonzero(part)) == set(largest)
        np.testing.assert_allclose(part[largest], full[largest], rtol=1e-6)


def test_low_rank_parts_follow_the_attributes_and_trends_the_least_popular_items():
    known, kinds = planted()
    rng = np.random.default_rng(6)
    items = vectors(kinds).items.double().numpy()
    right, trends = (torch.from_numpy(table).float() for table in (items, rng.random(NUM_ITEMS)))
    rows = sp.csr_array((NUM_USERS, NUM_ITEMS), dtype=np.float32)
    before = HistoryScorer(rows, left=right, right=right, item_factors=trends)
    after, settings = with_cold_items(before, known)
    assert isinstance(after, HistoryScorer)
    assert set(settings) == {"factors"}
    warm, degrees = known.warm, known.degrees[known.warm]
    lengths = np.linalg.norm(items, axis=1, keepdims=True)
    ridge = Ridge(
        known.features.of(warm).table, degrees / (degrees + RELIABLE), settings["factors"].penalty
    )
    directions = known.features.table @ ridge.solve(items[warm] / lengths[warm])
    least = warm[degrees == degrees.min()]
    assert 0 < len(least) < 40
    assert after.right is not None
    assert after.item_factors is not None
    np.testing.assert_allclose(
        after.right[COLD], lengths[least].mean() * directions[COLD], atol=1e-5
    )
    assert torch.equal(after.right[40:], right[40:])
    np.testing.assert_allclose(after.item_factors[COLD], trends[least].mean(), rtol=1e-6)
    assert torch.equal(after.item_factors[40:], trends[40:])
    assert after.left is right


def test_a_sum_predicts_both_parts_and_nothing_is_predicted_without_attributes():
    known, kinds = planted()
    dots = vectors(kinds)
    rows = sp.csr_array((NUM_USERS, NUM_ITEMS), dtype=np.float32)
    both = SumScorer(dots, HistoryScorer(rows, sp.csr_array((NUM_ITEMS,) * 2, dtype=np.float32)))
    after, settings = with_cold_items(both, known)
    assert set(settings) == {"vectors", "columns"}
    assert isinstance(after, SumScorer)
    assert not torch.equal(after.vectors.items[COLD], dots.items[COLD])
    alone = Known(plain(np.ones((NUM_ITEMS, 1), dtype=np.float32)), known.degrees)
    assert with_cold_items(dots, alone) == (dots, {})
    warm = known._replace(degrees=known.degrees + 50)
    assert with_cold_items(dots, warm) == (dots, {})
