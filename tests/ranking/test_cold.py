"""Items without interactions get what their attributes predict; the others keep their scores."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from mgformer.graph.feature_ridge import PENALTIES, Ridge, best_penalty
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
    return Known(sp.csr_array(features.astype(np.float32)), degrees), kinds


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


@pytest.mark.parametrize("noise", [0.1, 10.0])
def test_the_penalty_is_that_of_a_plain_cross_validation(noise: float):
    rng = np.random.default_rng(2)
    x = rng.standard_normal((50, 6))
    y = x @ rng.standard_normal((6, 2)) + noise * rng.standard_normal((50, 2))
    c = rng.random(50) + 0.5
    folds = np.random.default_rng(9).permutation(50) % 5
    errors = []
    for penalty in PENALTIES:
        error = 0.0
        for fold in range(5):
            out = folds == fold
            inside, weights = x[~out], np.diag(c[~out])
            w = np.linalg.solve(
                inside.T @ weights @ inside + penalty * np.eye(6), inside.T @ weights @ y[~out]
            )
            error += (c[out][:, None] * (x[out] @ w - y[out]) ** 2).sum()
        errors.append(error)
    found = best_penalty(sp.csr_array(x), y, c, np.random.default_rng(9))
    assert found == PENALTIES[int(np.argmin(errors))]


def test_cold_vectors_point_to_their_kind_and_warm_ones_stay():
    known, kinds = planted()
    before = vectors(kinds)
    after = with_cold_items(before, known)
    assert isinstance(after, DotScorer)
    assert torch.equal(after.items[40:], before.items[40:])
    assert torch.equal(after.users, before.users)
    assert (after.items[COLD, :KINDS].argmax(1).numpy() == kinds[COLD]).all()
    assert (before.items[COLD, :KINDS].argmax(1).numpy() != kinds[COLD]).any()


def test_few_interactions_blend_own_and_predicted_directions():
    known, kinds = planted()
    known.degrees[40:42] = (1, MOST_FEW)
    before = vectors(kinds)
    after = with_cold_items(before, known)
    assert isinstance(after, DotScorer)
    warm, items = known.warm, before.items.double().numpy()
    lengths = np.linalg.norm(items, axis=1, keepdims=True)
    counts = known.degrees[warm] / (known.degrees[warm] + RELIABLE)
    features, unit = sp.csr_array(known.features[warm]), items / lengths
    penalty = best_penalty(features, unit[warm], counts, np.random.default_rng(0))
    predicted = known.features @ Ridge(features, counts, penalty).solve(unit[warm])
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
    after = with_cold_items(scorer, known)
    scores = after.scores(torch.arange(20)).numpy()
    assert (scores[:, 40:] == scorer.scores(torch.arange(20)).numpy()[:, 40:]).all()
    cold = scores[:, COLD]
    for user in range(20):
        alike = kinds[COLD] == kinds[40 + user]
        assert cold[user, alike].min() > cold[user, ~alike].max()


def test_a_sum_predicts_both_parts_and_nothing_is_predicted_without_attributes():
    known, kinds = planted()
    dots = vectors(kinds)
    rows = sp.csr_array((NUM_USERS, NUM_ITEMS), dtype=np.float32)
    both = SumScorer(dots, HistoryScorer(rows, sp.csr_array((NUM_ITEMS,) * 2, dtype=np.float32)))
    after = with_cold_items(both, known)
    assert isinstance(after, SumScorer)
    assert not torch.equal(after.vectors.items[COLD], dots.items[COLD])
    alone = Known(sp.csr_array(np.ones((NUM_ITEMS, 1), dtype=np.float32)), known.degrees)
    assert with_cold_items(dots, alone) is dots
    warm = known._replace(degrees=known.degrees + 50)
    assert with_cold_items(dots, warm) is dots
