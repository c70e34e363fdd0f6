import math

import numpy as np
import pytest
import torch

from mgformer.errors import ConfigError
from mgformer.nn import naive_attention as naive
from mgformer.nn.features import (
    FEATURE_MAPS,
    elu_features,
    focused_features,
    fourier_features,
    gaussian_projection,
    orthogonal_projection,
    positive_log_features,
    relu_features,
    simplex,
    simplex_projection,
)

PROJECTIONS = {
    "simplex": simplex_projection,
    "orthogonal": orthogonal_projection,
    "iid": gaussian_projection,
}


def estimates(name, x, y, rng, draws, features=positive_log_features):
    """Estimates of exp(x·y) [draws], each from one block of m features."""
    dim = len(x)
    # The blocks of one projection are independent draws; features of a single block have F = m.
    projection = PROJECTIONS[name](draws * dim, dim, rng)
    if features is fourier_features:
        products = features(x[None], projection) * features(y[None], projection)
        terms = products.reshape(2, draws, dim).sum(0) * draws
    else:
        logs = features(x[None], projection) + features(y[None], projection)
        terms = logs.exp().reshape(draws, dim) * draws
    return terms.sum(1)


@pytest.mark.parametrize("dim", [2, 3, 8, 33])
def test_simplex_has_unit_corners_at_equal_angles(dim):
    corners = simplex(dim)
    expected = np.where(np.eye(dim, dtype=bool), 1.0, -1 / (dim - 1))
    np.testing.assert_allclose(corners @ corners.T, expected, rtol=0, atol=1e-13)
    np.testing.assert_allclose(corners.sum(0), 0, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("name", "cosine"), [("simplex", -1 / 7), ("orthogonal", 0.0)])
def test_rows_of_each_block_keep_their_angles(name, cosine, rng):
    projection = PROJECTIONS[name](24, 8, rng)
    units = (projection / projection.norm(dim=1, keepdim=True)).reshape(3, 8, 8)
    expected = torch.full((8, 8), cosine, dtype=torch.float64).fill_diagonal_(1.0)
    torch.testing.assert_close(units @ units.mT, expected.expand(3, 8, 8), rtol=0, atol=1e-13)
    assert (units[0] - units[1]).abs().max() > 0.1  # blocks are drawn on their own


@pytest.mark.parametrize("name", PROJECTIONS)
@pytest.mark.parametrize("dim", [1, 5])
def test_norms_follow_the_chi_distribution(name, dim, rng):
    squares = PROJECTIONS[name](20_000, dim, rng).square().sum(1)
    # χ²_m has mean m and variance 2m.
    assert abs(squares.mean() - dim) < 4 * math.sqrt(2 * dim / 20_000)
    assert abs(squares.var() / (2 * dim) - 1) < 0.15
    if dim > 1:  # independent of each other within a block
        blocks = squares.reshape(-1, dim)
        correlation = torch.corrcoef(blocks[:, :2].T)[0, 1]
        assert abs(correlation) < 4 / math.sqrt(len(blocks))


@pytest.mark.parametrize("name", PROJECTIONS)
@pytest.mark.parametrize("features", [positive_log_features, fourier_features])
@pytest.mark.parametrize("case", ["plus", "minus", "opposite", "generic"])
def test_kernel_is_estimated_without_bias(name, features, case, rng):
    first = torch.zeros(8, dtype=torch.float64)
    first[0] = 0.5
    generic = torch.from_numpy(rng.standard_normal((2, 8))) * 0.2
    x, y = {
        "plus": (first, first),
        "minus": (-first, -first),
        "opposite": (first, -0.5 * first),
        "generic": (generic[0], generic[1]),
    }[case]
    found = estimates(name, x, y, rng, 10_000, features)
    error = found.std() / math.sqrt(len(found)) + 1e-12  # Fourier features are exact at x = y
    assert abs(found.mean() - torch.exp(x @ y)) < 4 * error
    assert error < 0.02  # a bias of 8 %, that of Q with unfixed signs, is seen


def test_variance_falls_from_iid_to_orthogonal_to_simplex(rng):
    x = torch.from_numpy(rng.standard_normal(16))
    x *= 0.5 / x.norm()  # ‖x + y‖ = 1 for y = x
    errors = {
        name: (estimates(name, x, x, rng, 4000) / torch.exp(x @ x) - 1).square().mean()
        for name in PROJECTIONS
    }
    # Of independent rows: (exp(‖x + y‖²) - 1) / m.
    assert errors["iid"] == pytest.approx((math.e - 1) / 16, rel=0.15)
    assert errors["orthogonal"] < 0.9 * errors["iid"]
    assert errors["simplex"] < 0.6 * errors["orthogonal"]


def test_log_features_match_the_formula(rng):
    x = torch.from_numpy(rng.standard_normal((7, 4)))
    projection = simplex_projection(8, 4, rng)
    slow = naive.positive_features(x, projection)
    found = positive_log_features(x, projection).exp()
    torch.testing.assert_close(found, slow, rtol=1e-12, atol=0)
    assert slow.max() > 1e-3


@pytest.mark.parametrize("name", PROJECTIONS)
def test_the_generator_decides_the_draw(name):
    first, same, other = (PROJECTIONS[name](6, 3, np.random.default_rng(s)) for s in (1, 1, 2))
    assert torch.equal(first, same)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("name", PROJECTIONS)
@pytest.mark.parametrize(
    ("count", "advice"), [(12, "choose 8 or 16"), (7, "choose 8"), (0, "choose 8")]
)
def test_features_that_do_not_fill_blocks_are_refused(name, count, advice, rng):
    with pytest.raises(ConfigError, match=rf"got {count}, expected a multiple of the 8.*{advice}$"):
        PROJECTIONS[name](count, 8, rng)


def test_elu_is_positive_far_below_zero():
    x = torch.tensor([[-80.0, -1.0, 0.0, 2.0]], requires_grad=True)
    found = elu_features(x)
    expected = torch.tensor([[math.exp(-80), math.exp(-1), 1.0, 3.0]])
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=0)
    found.sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad[0, 1:], torch.tensor([math.exp(-1), 1.0, 1.0]))


def test_relu_keeps_a_floor():
    found = relu_features(torch.tensor([[-3.0, 2.0]]), floor=1e-3)
    torch.testing.assert_close(found, torch.tensor([[1e-3, 2.001]]))


def test_focused_sharpens_and_keeps_the_norm(rng):
    x = torch.from_numpy(rng.standard_normal((9, 5))).requires_grad_()
    r = torch.relu(x) + 1e-6
    slow = r.norm(dim=1, keepdim=True) * r**3 / (r**3).norm(dim=1, keepdim=True)
    fast = focused_features(x)
    torch.testing.assert_close(fast, slow, rtol=0, atol=1e-12)
    torch.testing.assert_close(fast.norm(dim=1), r.norm(dim=1), rtol=0, atol=1e-12)
    torch.testing.assert_close(focused_features(x, power=1), r, rtol=0, atol=1e-12)
    direction = torch.from_numpy(rng.standard_normal((9, 5)))
    (expected,) = torch.autograd.grad((slow * direction).sum(), x)
    (found,) = torch.autograd.grad((fast * direction).sum(), x)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-11)
    assert expected.abs().max() > 1e-2


@pytest.mark.parametrize("scale", [1e-9, 1e12])
def test_focused_is_finite_at_any_scale(scale):
    x = torch.tensor([[1.0, 2.0, -3.0]]) * scale
    assert focused_features(x).isfinite().all()
    assert focused_features(x).max() > 0


@pytest.mark.parametrize("name", FEATURE_MAPS)
def test_every_map_is_called_in_the_same_way(name, rng):
    feature_map = FEATURE_MAPS[name]
    x = torch.from_numpy(rng.standard_normal((5, 4)))
    projection = None if feature_map.project is None else feature_map.project(8, 4, rng)
    found = feature_map(x, projection)
    assert found.isfinite().all()
    assert len(found) == 5
    if not feature_map.log and name != "fourier":
        assert (found > 0).all()
