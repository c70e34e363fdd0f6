"""Ridge regression from sparse features to vectors, in closed form.

    W = argmin Σ_i c_i ‖x_i W − y_i‖² + λ ‖W‖²  =  (Xᵀ C X + λ I)⁻¹ Xᵀ C Y

Doubtful channels, which are words of text, are multiplied by a factor. That is the same as a
penalty of their own, λ / factor². Factor 0 leaves them out.

λ and the factor are chosen together by cross-validation: each fifth of the rows is predicted from
the others.

Shapes: n rows, F features, D channels.
"""

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from mgformer.data.attribute_features import Features

Floats = NDArray[np.floating]
PENALTIES = tuple(10.0**power for power in np.arange(-1.0, 4.1, 0.5))
FACTORS = (0.0, 0.5, 1.0, 2.0)
"""Of doubtful channels. Of factors that predict equally well, the first is chosen."""
FOLDS = 5


class Setting(NamedTuple):
    """What cross-validation chose."""

    penalty: float
    """λ."""
    factor: float
    """Of doubtful channels."""


class Ridge:
    """The regression on some features with one penalty."""

    def __init__(self, features: sp.csr_array, counts: Floats, penalty: float) -> None:
        """Keep X [n, F] and how much each row counts [n], and factor Xᵀ C X + λ I."""
        self._features, self._counts = features, counts
        self._factor = _factored(_gram(features, counts), penalty)

    def solve(self, targets: Floats) -> Floats:
        """Return W [F, D] for targets Y [n, D]."""
        return _solved(self._factor, _product(self._features, targets, self._counts))


def best_setting(
    features: Features, targets: Floats, counts: Floats, rng: np.random.Generator
) -> Setting:
    """Return what predicts left-out rows best; `rng` draws the folds, the same for all settings."""
    folds = rng.permutation(len(targets)) % FOLDS
    factors = FACTORS if features.doubtful.any() else (1.0,)
    errors = [_errors(features.scaled(factor), targets, counts, folds) for factor in factors]
    best, place = np.unravel_index(np.argmin(errors), (len(factors), len(PENALTIES)))
    return Setting(PENALTIES[int(place)], factors[int(best)])


def _errors(
    features: sp.csr_array, targets: Floats, counts: Floats, folds: NDArray[np.integer]
) -> Floats:
    """Return the squared error of the predictions of left-out rows, for each λ."""
    gram, product = _gram(features, counts), _product(features, targets, counts)
    errors = np.zeros(len(PENALTIES))
    for fold in range(FOLDS):
        rows = np.flatnonzero(folds == fold)
        if not 0 < len(rows) < features.shape[0]:
            continue
        own, wanted, weights = features[rows], targets[rows], counts[rows]
        rest, sums = gram - _gram(own, weights), product - _product(own, wanted, weights)
        for place, penalty in enumerate(PENALTIES):
            solution = _solved(_factored(rest, penalty), sums)
            errors[place] += (weights[:, None] * (own @ solution - wanted) ** 2).sum()
    return errors


def _gram(features: sp.csr_array, counts: Floats) -> Floats:
    """Return Xᵀ C X."""
    weighted = sp.csr_array(features.multiply(counts[:, None]), dtype=np.float64)
    return np.asarray((features.T @ weighted).toarray())


def _product(features: sp.csr_array, targets: Floats, counts: Floats) -> Floats:
    """Return Xᵀ C Y."""
    return np.asarray(features.T @ (counts[:, None] * targets.astype(np.float64)))


def _factored(gram: Floats, penalty: float) -> Floats:
    """Return the Cholesky factor of G + λ I."""
    factor, _ = cho_factor(gram + penalty * np.eye(len(gram)), lower=True, overwrite_a=True)
    return np.asarray(factor)


def _solved(factor: Floats, product: Floats) -> Floats:
    """Return (G + λ I)⁻¹ P from the factor."""
    return np.asarray(cho_solve((factor, True), product))
