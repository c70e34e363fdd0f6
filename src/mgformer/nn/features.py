"""Feature maps φ of kernel attention, Eq. (7) of the MGFormer paper, and their projections W.

Random features are unbiased estimates of the exponential kernel, E φ(x)·φ(y) = exp(x·y). Positive
ones (Choromanski et al., ICLR 2021, arXiv:2009.14794) are computed in logarithms, with independent,
orthogonal or simplex projections (Reid et al., ICML 2023, arXiv:2301.13856); the paper uses
simplex. Fourier features are the other kind. The maps elu + 1 (arXiv:2006.16236), relu and focused
(arXiv:2308.00442) define kernels of their own.

Scale queries and keys by m^(-1/4) first, so that x·y includes the 1/√m of softmax attention.

Shapes: n rows of m channels, F features; a projection W is [F, m] and consists of independent
blocks of m rows.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from mgformer.errors import ConfigError


def simplex_projection(num_features: int, dim: int, rng: np.random.Generator) -> Tensor:
    """Return W = D S R_o [F, m] float64 of Eq. (7): rows of a block are corners of a simplex."""
    directions = simplex(dim) @ _haar(_num_blocks(num_features, dim), dim, rng)  # [F/m, m, m]
    return _with_norms(directions, rng)


def orthogonal_projection(num_features: int, dim: int, rng: np.random.Generator) -> Tensor:
    """Return W = D R_o [F, m] float64: rows of a block are orthogonal."""
    return _with_norms(_haar(_num_blocks(num_features, dim), dim, rng), rng)


def gaussian_projection(num_features: int, dim: int, rng: np.random.Generator) -> Tensor:
    """Return W [F, m] float64 with independent standard normal entries."""
    blocks = _num_blocks(num_features, dim)
    return torch.from_numpy(rng.standard_normal((blocks * dim, dim)))


def simplex(dim: int) -> NDArray[np.float64]:
    """Return S [m, m]: unit rows with inner products -1/(m-1), the corners of a simplex."""
    if dim == 1:
        return np.ones((1, 1))
    ones = np.ones(dim)
    ones[-1] = 0.0  # (1, …, 1, 0)
    corners = math.sqrt(dim / (dim - 1)) * np.eye(dim)
    corners -= (math.sqrt(dim) + 1) / (dim - 1) ** 1.5 * ones
    corners[-1] = ones / math.sqrt(dim - 1)
    return corners


def positive_log_features(x: Tensor, projection: Tensor) -> Tensor:
    """Return log φ(x) [n, F] of the positive features of x [n, m]: Eq. (7)."""
    half_norms = 0.5 * x.square().sum(1, keepdim=True)  # [n, 1]
    return x @ projection.T - half_norms - 0.5 * math.log(len(projection))


def fourier_features(x: Tensor, projection: Tensor) -> Tensor:
    """Return exp(½‖x‖²) [cos Wx, sin Wx] / √F, [n, 2F], of x [n, m].

    They may be negative, and they grow with the norm: ‖x‖² > 170 overflows in float32.
    """
    angles = x @ projection.T  # [n, F]
    scale = (0.5 * x.square().sum(1, keepdim=True)).exp() / math.sqrt(len(projection))
    return scale * torch.cat([angles.cos(), angles.sin()], dim=1)


def elu_features(x: Tensor) -> Tensor:
    """Return elu(x) + 1 [n, m]; computed as exp(x) below 0, where the sum may round to zero."""
    return torch.where(x > 0, x + 1, x.clamp_max(0).exp())


def relu_features(x: Tensor, floor: float = 1e-6) -> Tensor:
    """Return relu(x) + floor [n, m]; a row without positive entries attends to all evenly."""
    return functional.relu(x) + floor


def focused_features(x: Tensor, power: float = 3, floor: float = 1e-6) -> Tensor:
    """Return ‖r‖ r^p / ‖r^p‖ [n, m] with r = relu(x) + floor: sharper, with the same norm."""
    r = relu_features(x, floor)
    # The direction does not depend on the scale. Dividing by the largest entry keeps powers from
    # overflow and underflow, and does not change the gradients.
    sharp = (r / r.detach().amax(1, keepdim=True)) ** power
    return r.norm(dim=1, keepdim=True) * sharp / sharp.norm(dim=1, keepdim=True)


class FeatureMap(NamedTuple):
    """A feature map; call it with x [n, m] and its projection."""

    log: bool  # whether it returns log φ (for `kernel_attention`) or φ (for `linear_attention`)
    project: Callable[[int, int, np.random.Generator], Tensor] | None
    """Draws W [F, m] from F, m and a generator; None: the map has no projection and F = m."""
    features: Callable[..., Tensor]  # maps x [n, m], and W if there is one, to features

    def __call__(self, x: Tensor, projection: Tensor | None = None) -> Tensor:
        return self.features(x) if projection is None else self.features(x, projection)


FEATURE_MAPS = {
    "simplex": FeatureMap(True, simplex_projection, positive_log_features),
    "orthogonal": FeatureMap(True, orthogonal_projection, positive_log_features),
    "iid": FeatureMap(True, gaussian_projection, positive_log_features),
    "fourier": FeatureMap(False, orthogonal_projection, fourier_features),
    "elu": FeatureMap(False, None, elu_features),
    "relu": FeatureMap(False, None, relu_features),
    "focused": FeatureMap(False, None, focused_features),
}


def _num_blocks(num_features: int, dim: int) -> int:
    blocks, rest = divmod(num_features, dim)
    if rest or blocks < 1:
        lower, upper = max(blocks, 1) * dim, (blocks + 1) * dim
        near = str(upper) if lower == upper else f"{lower} or {upper}"
        raise ConfigError(
            f"num_features: got {num_features}, expected a multiple of the {dim} channels; "
            f"choose {near}"
        )
    return blocks


def _haar(blocks: int, dim: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return orthogonal matrices [blocks, m, m] from the Haar measure."""
    q, r = np.linalg.qr(rng.standard_normal((blocks, dim, dim)))
    # Q is uniform only if the diagonal of R is positive; LAPACK returns any signs.
    diagonal = np.diagonal(r, axis1=1, axis2=2)  # [blocks, m]
    return q * np.where(diagonal < 0, -1.0, 1.0)[:, None, :]


def _with_norms(directions: NDArray[np.float64], rng: np.random.Generator) -> Tensor:
    """Give unit rows [blocks, m, m] independent norms of Gaussian vectors, χ_m."""
    blocks, dim, _ = directions.shape
    rows = directions.reshape(blocks * dim, dim)  # [F, m]
    norms = np.sqrt(rng.chisquare(dim, size=(blocks * dim, 1)))  # the diagonal of D
    return torch.from_numpy(norms * rows)
