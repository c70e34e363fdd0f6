"""Positions of nodes against breadth-first searches and loops."""

from collections import deque

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from mgformer.models.gformer.positions import anchor_encoding, closeness
from mgformer.models.gformer.sampled_edges import edges_with_loops
from tests.models.gformer.oracles_edges import assert_same_with_gradients, normal


def breadth_first(dense, anchor):
    distances, queue = {anchor: 0}, deque([anchor])
    while queue:
        node = queue.popleft()
        for other in np.flatnonzero(dense[node]):
            if other not in distances:
                distances[other] = distances[node] + 1
                queue.append(other)
    return distances


@pytest.mark.parametrize(("users", "items", "density"), [(1, 2, 1.0), (9, 7, 0.15), (40, 31, 0.04)])
def test_closeness_is_that_of_a_breadth_first_search(users, items, density, random_graph):
    graph = random_graph(users, items, density=density)
    dense = graph.adjacency.toarray()
    anchors = torch.arange(users + items)
    expected = np.zeros((users + items, users + items))
    for anchor in range(users + items):
        for node, distance in breadth_first(dense, anchor).items():
            expected[node, anchor] = 1 / (distance + 1)
    np.testing.assert_allclose(closeness(graph.adjacency, anchors), expected, rtol=1e-6)
    np.testing.assert_allclose(closeness(edges_with_loops(graph), anchors), expected, rtol=1e-6)
    chosen = anchors.flip(0)[:2]
    found = closeness(graph.adjacency, chosen)
    np.testing.assert_allclose(found, expected[:, chosen], rtol=1e-6)


def test_closeness_along_a_path():
    path = sp.csr_array(sp.diags_array([np.ones(5), np.ones(5)], offsets=[1, -1]), dtype=np.float32)
    path = sp.csr_array(sp.block_diag([path, np.zeros((1, 1))]), dtype=np.float32)
    found = closeness(path, torch.tensor([1, 6]))
    expected = torch.tensor([[1 / 2, 1, 1 / 2, 1 / 3, 1 / 4, 1 / 5, 0], [0] * 6 + [1]]).T
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("size", [1, 2, 7, 33])
def test_positions_are_the_mean_of_messages_of_all_anchors(size, rng):
    count = min(4, size)
    anchors = torch.from_numpy(rng.choice(size, count, replace=False))
    omega = torch.from_numpy(rng.random((size, count)))
    x, weight, bias = normal(rng, size, 3), normal(rng, 3, 6), normal(rng, 3)
    messages = torch.stack(
        [
            torch.stack([torch.cat([omega[v, a] * x[anchors[a]], x[v]]) for a in range(count)])
            for v in range(size)
        ]
    )  # [N, A, 2d]
    slow = torch.nn.functional.linear(messages, weight, bias).mean(1)
    fast = anchor_encoding(x, x, anchors, omega, weight, bias)
    assert_same_with_gradients(fast, slow, [x, weight, bias], rng, atol=1e-12)
