"""Ridge regression from sparse features to vectors, in closed form.

    W = argmin Σ_i c_i ‖x_i W − y_i‖² + λ ‖W‖²  =  (Xᵀ C X + λ I)⁻¹ Xᵀ C Y

Doubtful channels, which are words of text, are multiplied by a factor. That is the same as a
penalty of their own, λ / factor². Factor 0 leaves them out.

λ and the factor are chosen together by cross-validation: each fifth of the rows is predicted from
the others. The solutions for all λ share one eigendecomposition.

Shapes: n rows, F features, D channels.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

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
        """Keep X [n, F], how much each row counts [n], and λ."""
        self._features, self._counts, self._penalty = features, counts, penalty
        self._spectrum, self._basis = np.linalg.eigh(_gram(features, counts))

    def solve(self, targets: Floats) -> Floats:
        """Return W [F, D] for targets Y [n, D]."""
        product = _product(self._features, targets, self._counts)
        (solution,) = _solutions(self._spectrum, self._basis, product, [self._penalty])
        return solution


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
        spectrum, basis = np.linalg.eigh(gram - _gram(own, weights))
        rest = product - _product(own, wanted, weights)
        for place, solution in enumerate(_solutions(spectrum, basis, rest, PENALTIES)):
            errors[place] += (weights[:, None] * (own @ solution - wanted) ** 2).sum()
    return errors


def _gram(features: sp.csr_array, counts: Floats) -> Floats:
    """Return Xᵀ C X."""
    weighted = sp.csr_array(features.multiply(counts[:, None]), dtype=np.float64)
    return np.asarray((features.T @ weighted).toarray())


def _product(features: sp.csr_array, targets: Floats, counts: Floats) -> Floats:
    """Return Xᵀ C Y."""
    return np.asarray(features.T @ (counts[:, None] * targets.astype(np.float64)))


def _solutions(
    spectrum: Floats, basis: Floats, product: Floats, penalties: Sequence[float]
) -> list[Floats]:
    """Return W for each λ, from the eigenvalues and eigenvectors of Xᵀ C X."""
    turned = basis.T @ product
    positive = np.maximum(spectrum, 0)
    return [basis @ (turned / (positive + penalty)[:, None]) for penalty in penalties]
