"""Attention along edges against dense matrices and loops."""

import math

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from mgformer.models.gformer.edge_attention import EdgeAttention, EdgePattern
from mgformer.models.gformer.sampled_edges import (
    with_loops,
)
from tests.models.gformer.oracles_edges import (
    assert_same_with_gradients,
    edge_list,
    normal,
    random_pattern,
    slow_attention,
    slow_shares,
)

SIZES = [1, 2, 7, 33]


# Scores of 5 and more are mostly clipped.
@pytest.mark.parametrize("scale", [0.7, 5.0])
@pytest.mark.parametrize("num_heads", [1, 3])
@pytest.mark.parametrize("size", SIZES)
def test_attention_is_a_dense_masked_softmax(size, num_heads, scale, rng):
    matrix = random_pattern(rng, size, 1.0 if size < 3 else 0.4)
    module = EdgeAttention(6, num_heads, rng).double()
    x = normal(rng, size, 6, scale=scale)
    inputs = [x, module.w_value]
    if size > 1:  # a single share of one has no gradient but that of epsilon
        inputs += [module.w_query, module.w_key]
    fast = module(EdgePattern(matrix), x)
    assert_same_with_gradients(fast, slow_attention(module, matrix.toarray(), x), inputs, rng)


def test_scores_that_are_clipped_at_both_ends(rng):
    # A single edge of score -10 has a weight of 5e-5, where epsilon shows.
    module = EdgeAttention(1, 1, rng).double()
    with torch.no_grad():
        for w in module.parameters():
            w.fill_(1.0)
    x = torch.tensor([[-5.0], [5.0], [1.0]], dtype=torch.float64, requires_grad=True)
    matrix = sp.csr_array(np.array([[0, 1, 0], [0, 1, 1], [0, 0, 0]], dtype=np.float32))
    found = module(EdgePattern(matrix), x)
    low, high, free = math.exp(-10), math.exp(10), math.exp(5)
    expected = [5 * low / (low + 1e-8), (5 * high + free) / (high + free + 1e-8), 0.0]
    torch.testing.assert_close(
        found[:, 0], torch.tensor(expected, dtype=x.dtype), rtol=0, atol=1e-12
    )
    assert_same_with_gradients(found, slow_attention(module, matrix.toarray(), x), [x], rng)


def test_attention_along_many_edges(rng):
    matrix = random_pattern(rng, 81, 0.9)
    module, x = EdgeAttention(4, 2, rng).double(), normal(rng, 81, 4)
    slow = slow_attention(module, matrix.toarray(), x)
    inputs = [x, *module.parameters()]
    assert_same_with_gradients(module(EdgePattern(matrix), x), slow, inputs, rng)


def test_shares_are_those_of_the_edges_in_order_and_sum_to_one(rng):
    matrix = with_loops(random_pattern(rng, 33))
    module, x = EdgeAttention(6, 3, rng).double(), normal(rng, 33, 6).detach()
    shares = module.shares(EdgePattern(matrix), x)
    slow = slow_shares(torch.from_numpy(matrix.toarray()), x @ module.w_query, x @ module.w_key, 3)
    rows, columns = (list(ends) for ends in zip(*edge_list(matrix), strict=True))
    torch.testing.assert_close(shares, slow[:, rows, columns].T, rtol=0, atol=1e-12)
    sums = torch.zeros(33, 3).double().index_add(0, torch.tensor(rows), shares)
    torch.testing.assert_close(sums, torch.ones(33, 3).double(), rtol=0, atol=1e-6)


def test_attention_in_single_precision(rng):
    matrix, module = random_pattern(rng, 33), EdgeAttention(6, 3, rng)
    x = normal(rng, 33, 6)
    fast = module(EdgePattern(matrix), x.float())
    slow = slow_attention(module.double(), matrix.toarray(), x)
    torch.testing.assert_close(fast.double(), slow, rtol=0, atol=1e-5)
