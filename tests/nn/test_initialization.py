"""Starting values of parameters have their distributions."""

import math

import numpy as np
import pytest
import torch

from mgformer.nn.initialization import normal_table, xavier_matrices


@pytest.mark.parametrize("deviation", [None, 0.3])
def test_tables_are_normal_with_their_deviation(deviation, rng):
    table = normal_table(400, 50, rng, deviation)
    expected = math.sqrt(2 / 450) if deviation is None else deviation
    assert table.std().item() == pytest.approx(expected, rel=0.03)
    assert abs(table.mean().item()) < 4 * expected / math.sqrt(table.numel())
    assert table.requires_grad


def test_xavier_matrices_are_uniform_within_their_bound(rng):
    drawn = xavier_matrices(3, 60, rng)
    bound = math.sqrt(6 / 120)
    assert drawn.shape == (3, 60, 60)
    assert 0.99 * bound < drawn.abs().max() <= bound
    assert drawn.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.03)
    assert torch.equal(*(xavier_matrices(2, 5, np.random.default_rng(1)) for _ in range(2)))
