import math

import pytest
import torch
from torch.nn import functional

from mgformer.nn.losses import align_uniform, bpr, info_nce, l2_of_rows, mean_log_sum_exp
from tests.nn import oracles_losses as oracles


@pytest.fixture
def rows(rng):
    """Rows of various lengths, two of them equal."""

    def draw(count, dim=5):
        x = torch.from_numpy(rng.standard_normal((count, dim)) * rng.uniform(0.5, 3, (count, 1)))
        x[-1] = x[0]
        return x.requires_grad_()

    return draw


def alignment(x, y):
    return align_uniform(x, y, 0.0)


def uniformity(x, t, **options):
    """Return the loss of rows that are their own partners: their alignment is 0."""
    return align_uniform(x, x, 1.0, t=t, sides="mean", **options)


def assert_same_with_gradients(fast, slow, *inputs):
    torch.testing.assert_close(fast, slow, rtol=0, atol=1e-12)
    assert slow.abs() > 1e-2  # the comparison is not vacuous
    expected = torch.autograd.grad(slow, inputs)
    for found, gradient in zip(torch.autograd.grad(fast, inputs), expected, strict=True):
        torch.testing.assert_close(found, gradient, rtol=0, atol=1e-12)
        assert gradient.abs().max() > 1e-4


@pytest.mark.parametrize("count", [2, 7, 33])
def test_alignment_matches_the_loop(count, rows):
    x, y = rows(count), rows(count)
    assert_same_with_gradients(alignment(x, y), oracles.alignment(x, y), x, y)
    cosines = functional.cosine_similarity(x, y)
    torch.testing.assert_close(alignment(x, y), (2 - 2 * cosines).mean(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("count", [3, 7, 33])
@pytest.mark.parametrize("t", [1.0, 2.0])
def test_uniformity_matches_the_loop(count, t, rows):
    x = rows(count)
    assert_same_with_gradients(uniformity(x, t), oracles.uniformity(x, t), x)


@pytest.mark.parametrize(("t", "sides", "factor"), [(1.0, "sum", 1.0), (2.0, "mean", 0.5)])
def test_align_uniform_weighs_its_parts(t, sides, factor, rows):
    users, items = rows(7), rows(7)
    uniform = oracles.uniformity(users, t) + oracles.uniformity(items, t)
    slow = oracles.alignment(users, items) + 0.3 * factor * uniform
    fast = align_uniform(users, items, 0.3, t=t, sides=sides)
    assert_same_with_gradients(fast, slow, users, items)


def test_the_constants_of_the_paper_are_the_default(rows):
    users, items = rows(7), rows(7)
    expected = align_uniform(users, items, 0.3, t=1.0, sides="sum")
    assert torch.equal(align_uniform(users, items, 0.3), expected)


def test_known_values_of_uniformity():
    same = torch.ones(4, 3, dtype=torch.float64)
    assert uniformity(same, 2.0).item() == pytest.approx(0, abs=1e-12)
    poles = torch.tensor([[0.0, 3.0], [0.0, -1.0]])
    assert uniformity(poles, 2.0).item() == pytest.approx(-8)
    assert alignment(poles[:1], poles[1:]).item() == pytest.approx(4)


def test_a_single_row_has_no_pairs():
    x = torch.ones(1, 3, requires_grad=True)
    loss = uniformity(x, 2.0)
    loss.backward()
    assert loss.item() == 0
    assert x.grad is not None
    assert not x.grad.any()


def test_equal_rows_survive_rounding(rng):
    for row in torch.from_numpy(rng.standard_normal((20, 64))).float():
        x = row.repeat(2, 1).requires_grad_()
        loss = uniformity(x, 20.0)  # the sharpest that models allow
        loss.backward()
        assert loss.item() < 1e-5
        assert x.grad is not None
        assert x.grad.isfinite().all()


def test_lengths_of_rows_do_not_matter(rows, rng):
    users, items = rows(7), rows(7)
    scales = torch.from_numpy(rng.uniform(0.1, 10, (7, 1)))
    for loss in (lambda u, i: align_uniform(u, i, 0.5), lambda u, i: info_nce(u, i, 0.2)):
        torch.testing.assert_close(loss(users * scales, items), loss(users, items))


def test_bpr_matches_the_loop(rows):
    users, items, others = rows(7), rows(7), rows(21)
    slow = sum(
        torch.log1p(torch.exp(u @ j - u @ i))
        for u, i, js in zip(users, items, others.reshape(7, 3, 5), strict=True)
        for j in js
    )
    fast = bpr(users, items, others.reshape(7, 3, 5))
    assert_same_with_gradients(fast, slow / 21, users, items, others)
    zeros = torch.zeros(3, 5)
    assert bpr(zeros, zeros, zeros[:, None]).item() == pytest.approx(math.log(2))


def test_bpr_does_not_saturate():
    item = torch.tensor([[-1e4]], requires_grad=True)
    loss = bpr(torch.ones(1, 1), item, torch.full((1, 1, 1), 1e4))
    loss.backward()
    assert loss.item() == 2e4
    assert item.grad is not None
    assert item.grad.item() == -1


@pytest.mark.parametrize("entries", [1, 30, 10_000])
@pytest.mark.parametrize("temperature", [0.2, 1.0])
def test_info_nce_matches_the_loop(temperature, entries, rows):
    a, b, table = rows(7), rows(7), rows(20)
    slow = oracles.info_nce(a, b, b, temperature)
    assert_same_with_gradients(info_nce(a, b, temperature, block_scores=entries), slow, a, b)
    slow = oracles.info_nce(a, b, table, temperature)
    fast = info_nce(a, b, temperature, candidates=table, block_scores=entries)
    assert_same_with_gradients(fast, slow, a, b, table)


def test_info_nce_of_equal_rows_counts_the_candidates():
    same = torch.ones(6, 3)
    assert info_nce(same, same, 0.1).item() == pytest.approx(math.log(6), rel=1e-6)
    table = torch.ones(9, 3)
    assert info_nce(same, same, 0.1, candidates=table).item() == pytest.approx(math.log(9))


def test_l2_is_half_the_squared_norms_per_pair(rows):
    x, y = rows(7), rows(7)
    slow = sum(value**2 for part in (x, y) for row in part for value in row) / 14
    assert_same_with_gradients(l2_of_rows(x, y), slow, x, y)


@pytest.mark.parametrize("block", [1, 3, 7, 8])
def test_uniformity_does_not_depend_on_its_blocks(block, rows):
    x = rows(8)
    assert_same_with_gradients(uniformity(x, 2.0, block_rows=block), oracles.uniformity(x, 2.0), x)


def test_mean_log_sum_exp_does_not_overflow():
    rows = torch.tensor([[100.0], [-100.0]], requires_grad=True)
    candidates = torch.tensor([[30.0], [10.0]])
    value = mean_log_sum_exp(rows, candidates)
    value.backward()
    torch.testing.assert_close(value, torch.tensor((3000.0 - 1000.0) / 2))
    torch.testing.assert_close(rows.grad, torch.tensor([[15.0], [5.0]]))
