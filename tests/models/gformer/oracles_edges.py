"""What tests of graphs of edges share: random ones, and attention along them by dense matrices."""

import math
from itertools import combinations

import numpy as np
import scipy.sparse as sp
import torch


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def normal(rng, *shape, scale=1.0):
    return torch.from_numpy(scale * rng.standard_normal(shape)).requires_grad_()


def random_pattern(rng, size, density=0.4):
    matrix = sp.csr_array((rng.random((size, size)) < density).astype(np.float32))
    matrix.sort_indices()
    return matrix


def edge_list(matrix):
    """Edges of a matrix, row by row."""
    dense = matrix.toarray()
    return [(r, c) for r in range(len(dense)) for c in range(len(dense)) if dense[r, c]]


def assert_same_with_gradients(fast, slow, inputs, rng, *, atol=1e-10):
    """Compare values, and gradients in a random direction."""
    torch.testing.assert_close(fast, slow, rtol=0, atol=atol)
    assert slow.detach().abs().max() > 1e-3
    direction = torch.from_numpy(np.asarray(rng.standard_normal(slow.shape)))
    wanted = torch.autograd.grad((slow * direction).sum(), inputs)
    found = torch.autograd.grad((fast * direction).sum(), inputs)
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=atol)


def slow_normalized(dense):
    """Divided by the roots of the row sums of both ends."""
    result = np.zeros(dense.shape)
    for r in range(len(dense)):
        for c in range(len(dense)):
            if dense[r, c]:
                result[r, c] = dense[r, c] / math.sqrt(dense[r].sum() * dense[c].sum())
    return result


def slow_shares(dense, queries, keys, num_heads):
    """α [H, N, N], zero where there is no edge."""
    size = queries.shape[1] // num_heads
    result = []
    for head in range(num_heads):
        part = slice(head * size, (head + 1) * size)
        weights = (queries[:, part] @ keys[:, part].T).clamp(-10, 10).exp() * (dense != 0)
        result.append(weights / (weights.sum(1, keepdim=True) + 1e-8))
    return torch.stack(result)


def slow_attention(module, dense, x):
    dense = torch.from_numpy(dense)
    shares = slow_shares(dense, x @ module.w_query, x @ module.w_key, module.num_heads)
    values = (x @ module.w_value).chunk(module.num_heads, dim=1)
    return torch.cat([a @ v for a, v in zip(shares, values, strict=True)], dim=1)


def inclusion(weights, count):
    """Probability of each to be among `count` drawn one after another, by all sets on the way."""
    weights = np.asarray(weights, dtype=float)
    reached = {(): 1.0}
    for size in range(count):
        following = dict.fromkeys(combinations(range(len(weights)), size + 1), 0.0)
        for chosen, probability in reached.items():
            left = [e for e in range(len(weights)) if e not in chosen]
            for e in left:
                step = weights[e] / weights[left].sum()
                following[tuple(sorted((*chosen, e)))] += probability * step
        reached = following
    return np.array(
        [sum(p for chosen, p in reached.items() if e in chosen) for e in range(len(weights))]
    )


def assert_frequencies(counts, probabilities, draws):
    errors = np.sqrt(probabilities * (1 - probabilities) / draws)
    assert (np.abs(counts / draws - probabilities) < 4.5 * errors).all()
