"""New users: solved for as the formula says, and split into what each of their items adds."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from mgformer.ranking import scorers
from mgformer.ranking.scorers import (
    DotScorer,
    HistoryScorer,
    SumScorer,
    cosines,
    vectors_of,
    with_vectors,
)
from tests.ranking.test_topk import some_pairs


@pytest.fixture
def items(rng: np.random.Generator) -> torch.Tensor:
    return torch.from_numpy(rng.standard_normal((60, 7), dtype=np.float32))


def of_form(form: str, rng: np.random.Generator) -> HistoryScorer:
    matrix = (rng.random((60, 60)) * (rng.random((60, 60)) < 0.2)).astype(np.float32)
    left, right = (torch.from_numpy(rng.random((60, 4), dtype=np.float32)) for _ in range(2))
    forms = {
        "sparse": {"weights": sp.csr_array(matrix)},
        "dense": {"weights": torch.from_numpy(matrix)},
        "through": {"through": sp.csr_array(matrix[:20])},
        "low rank": {"left": left, "right": right},
    }
    every = {k: v for f in ("sparse", "through", "low rank") for k, v in forms[f].items()}
    return HistoryScorer(some_pairs(5, 60, 0.1, seed=1), **{**forms, "all": every}[form])


@pytest.mark.parametrize("length", [0, 1, 5, 7, 8, 40], ids="{} items".format)
def test_a_new_user_solves_the_normal_equations(length: int, items: torch.Tensor, rng):
    history = rng.permutation(60)[:length]
    row = sp.csr_array((np.ones(length), history, [0, length]), shape=(1, 60))
    (user,) = DotScorer(torch.zeros(1, 7), items, 0.3, 0.02).fold_in(row).users.numpy()
    v = items.double().numpy()
    own = v[history]
    system = own.T @ own + 0.3 * v.T @ v + 0.02 * (length + 0.3 * 60) * np.eye(7)
    np.testing.assert_allclose(user, np.linalg.solve(system, own.sum(0)), rtol=0, atol=1e-6)
    assert length == 0 or np.abs(user).max() > 1e-2  # the comparison is not vacuous


@pytest.mark.parametrize("length", [3, 30], ids="{} items".format)
@pytest.mark.parametrize("unit", [False, True])
def test_contributions_sum_to_the_score_of_a_new_user(length: int, unit: bool, items, rng):
    history, asked = rng.permutation(60)[:length], np.array([5, 17, 59])
    scorer = DotScorer(torch.zeros(1, 7), items, unit=unit)
    row = sp.csr_array((np.ones(length), history, [0, length]), shape=(1, 60))
    scores = scorer.fold_in(row).scores(torch.tensor([0]))[0, asked]
    added = scorer.contributions(history, asked)
    assert added.shape == (length, 3)
    np.testing.assert_allclose(added.sum(0), scores, atol=1e-5)
    assert scores.abs().max() > 1e-2


@pytest.mark.parametrize("form", ["sparse", "dense", "through", "low rank", "all"])
def test_a_sum_of_vectors_and_a_history(form: str, items: torch.Tensor, rng):
    history = of_form(form, rng)
    vectors = DotScorer(torch.from_numpy(rng.standard_normal((5, 7), dtype=np.float32)), items)
    scorer, everyone = SumScorer(vectors, history.times(2.5)), torch.arange(5)
    expected = vectors.scores(everyone) + 2.5 * history.scores(everyone)
    torch.testing.assert_close(scorer.scores(everyone), expected)
    assert (scorer.num_users, scorer.num_items) == (5, 60)
    own, asked = np.array([2, 30, 31, 58]), np.array([1, 30, 40])
    row = sp.csr_array((np.ones(4, np.float32), own, [0, 4]), shape=(1, 60))
    folded = scorer.fold_in(row).scores(torch.tensor([0]))
    parts = (
        vectors.fold_in(row).scores(torch.tensor([0])),
        history.fold_in(row).scores(torch.tensor([0])),
    )
    torch.testing.assert_close(folded, parts[0] + 2.5 * parts[1])
    added = scorer.contributions(own, asked)
    np.testing.assert_allclose(added.sum(0), folded[0, asked], atol=1e-5)
    similar = vectors.similarities(7) + 2.5 * history.similarities(7)
    torch.testing.assert_close(scorer.similarities(7), similar)
    assert vectors_of(scorer) is vectors
    assert vectors_of(vectors) is vectors
    assert vectors_of(history) is None
    assert with_vectors(scorer, vectors).history is scorer.history
    assert with_vectors(vectors, vectors) is vectors


@pytest.mark.parametrize("form", ["sparse", "dense", "through", "low rank", "all"])
def test_contributions_of_an_item_item_model(form: str, rng: np.random.Generator):
    scorer, history, asked = of_form(form, rng), np.array([2, 30, 31, 58]), np.array([1, 30, 40])
    row = sp.csr_array((np.ones(4, np.float32), history, [0, 4]), shape=(1, 60))
    scores = scorer.fold_in(row).scores(torch.tensor([0]))[0, asked].numpy()
    added = scorer.contributions(history, asked)
    np.testing.assert_allclose(added.sum(0), scores, atol=1e-5)
    for number, item in enumerate(history):
        alone = sp.csr_array((np.ones(1, np.float32), [item], [0, 1]), shape=(1, 60))
        expected = scorer.fold_in(alone).scores(torch.tensor([0]))[0, asked]
        np.testing.assert_allclose(added[number], expected, atol=1e-6)
    assert np.abs(scores).max() > 1e-2


def test_cached_item_properties_serve_new_users_too(items: torch.Tensor, rng):
    row = sp.csr_array((np.ones(2, np.float32), [3, 4], [0, 2]), shape=(1, 60))
    dot = DotScorer(torch.zeros(1, 7), items)
    assert dot.fold_in(row).by_channel is not dot.by_channel  # nothing was prepared
    assert dot.fold_in(row).by_channel is dot.by_channel
    assert dot.fold_in(row).num_users == 1
    histories = of_form("all", rng)
    assert histories._into is histories.fold_in(row)._into
    assert histories.fold_in(row).num_users == 1
    assert histories.num_users == 5


def test_cosines_are_taken_some_rows_at_a_time(items: torch.Tensor, monkeypatch):
    items[5] = 0
    rows = items.double().numpy()
    lengths = np.maximum(np.linalg.norm(rows, axis=1), 1e-12)
    expected = rows @ rows[11] / lengths / lengths[11]
    assert expected[5] == 0
    np.testing.assert_allclose(cosines(items, 11), expected, rtol=0, atol=1e-6)
    monkeypatch.setattr(scorers, "BLOCK_ROWS", 7)
    widest = []
    double = torch.Tensor.double
    monkeypatch.setattr(
        torch.Tensor, "double", lambda self: widest.append(self.numel()) or double(self)
    )
    np.testing.assert_allclose(cosines(items, 11), expected, rtol=0, atol=1e-6)
    assert max(widest) == 7 * 7
