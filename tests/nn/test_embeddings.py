"""Starting values against their distributions, and propagation against dense matrix powers."""

import math

import numpy as np
import pytest
import torch

from mgformer.graph.sparse import SparseProduct
from mgformer.nn.embeddings import mean_of_layers, normal_table, places_of, rows_at, xavier_matrices
from tests.graph.oracles_graph import normalized_adjacency


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def gradient(x: torch.Tensor, numbers: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    x = x.clone().requires_grad_()
    (rows_at(x, numbers) * weights).sum().backward()
    assert x.grad is not None
    return x.grad


def test_rows_and_gradients_are_those_of_indexing() -> None:
    x = torch.randn(7, 3, dtype=torch.float64, requires_grad=True)
    numbers = torch.tensor([[0, 6], [6, 6], [2, 0]])
    weights = torch.randn(3, 2, 3, dtype=torch.float64)
    torch.testing.assert_close(rows_at(x, numbers), x[numbers])
    (x[numbers] * weights).sum().backward()
    torch.testing.assert_close(gradient(x.detach(), numbers, weights), x.grad)


@pytest.mark.usefixtures("two_threads")
def test_the_gradient_has_the_same_bits_every_time_with_several_threads() -> None:
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(500, 64, generator=generator)
    numbers = torch.randint(500, (8000,), generator=generator)
    weights = torch.randn(8000, 64, generator=generator)
    first = gradient(x, numbers, weights)
    for _ in range(30):
        assert torch.equal(gradient(x, numbers, weights), first)


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
