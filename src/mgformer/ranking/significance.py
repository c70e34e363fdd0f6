"""Test whether two rankings of the same users differ by more than chance."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mgformer.errors import DataError


class PairedTest(NamedTuple):
    """Mean difference over users, with the two-sided p-value of a paired t-test."""

    difference: float
    p_value: float
    num_users: int
    margin: float = 0.0
    """The 95% confidence interval of the difference reaches this far to either side."""


def paired_test(ours: NDArray[np.float64], theirs: NDArray[np.float64]) -> PairedTest:
    """Compare one metric of two runs, given per user in the same order."""
    if len(ours) != len(theirs):
        raise DataError(f"runs rank different users: {len(ours)} and {len(theirs)}")
    from scipy import stats  # takes most of a second to import, and few commands need it

    gap = ours - theirs
    if len(gap) < 2 or np.ptp(gap) == 0:
        # With one user, or the same difference for all users, there is no variance to test with.
        return PairedTest(float(gap.mean()), 1.0, len(gap))
    found = stats.ttest_rel(ours, theirs)
    margin = float(found.confidence_interval(0.95).high) - gap.mean()
    return PairedTest(float(gap.mean()), float(found.pvalue), len(gap), float(margin))
