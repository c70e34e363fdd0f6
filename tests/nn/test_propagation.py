"""Linear propagation against dense matrix powers."""

import numpy as np
import pytest
import torch

from mgformer.graph.sparse import SparseProduct
from mgformer.nn.embeddings import mean_of_layers, places_of
from tests.graph.oracles_graph import normalized_adjacency


@pytest.fixture
def parts(random_graph, rng):
    graph = random_graph(9, 7)
    dense = torch.from_numpy(normalized_adjacency(graph.interactions.toarray()))
    # The same numbers on both sides: weights are kept in float32.
    x = torch.from_numpy(rng.standard_normal((16, 5)))
    return (
        SparseProduct(graph.adjacency, symmetric=True),
        dense.float().double(),
        x.requires_grad_(),
    )


@pytest.mark.parametrize("num_layers", [1, 2, 4])
@pytest.mark.parametrize("nodes", [None, [0], [15, 3, 3, 8], list(range(16))])
def test_the_mean_is_that_of_matrix_powers(num_layers, nodes, parts, rng):
    propagation, dense, x = parts
    powers = [torch.linalg.matrix_power(dense, k) for k in range(num_layers + 1)]
    expected = sum(powers) @ x / (num_layers + 1)
    wanted = None if nodes is None else torch.tensor(nodes)
    expected = expected if nodes is None else expected[nodes]
    found = mean_of_layers([propagation] * num_layers, x, wanted)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)
    pull = torch.from_numpy(rng.standard_normal(expected.shape))
    gradients = [torch.autograd.grad((z * pull).sum(), x)[0] for z in (found, expected)]
    torch.testing.assert_close(*gradients, rtol=0, atol=1e-6)


def test_roots_of_degrees_are_a_fixed_point(random_graph):
    graph = random_graph(9, 7)
    roots = np.sqrt(np.concatenate([graph.user_degrees, graph.item_degrees]))[:, None]
    found = SparseProduct(graph.adjacency, symmetric=True)(torch.from_numpy(roots))
    torch.testing.assert_close(found, torch.from_numpy(roots), rtol=0, atol=1e-6)


def test_places_lead_back_to_the_nodes():
    parts = torch.tensor([4, 2]), torch.tensor([[9, 4], [2, 7]])
    nodes, places = places_of(*parts)
    assert nodes.tolist() == [2, 4, 7, 9]
    for part, place in zip(parts, places, strict=True):
        assert torch.equal(nodes[place], part)
