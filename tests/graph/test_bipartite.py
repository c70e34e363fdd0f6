import numpy as np
import pytest

from mgformer.graph.bipartite import inverse_sqrt
from tests.graph.oracles_graph import normalized_adjacency

SIZES = [(1, 1), (1, 7), (7, 2), (33, 20), (12, 35)]


@pytest.mark.parametrize(("num_users", "num_items"), SIZES)
@pytest.mark.parametrize("isolated", [True, False])
def test_adjacency_equals_dense_oracle(random_graph, num_users, num_items, isolated):
    graph = random_graph(num_users, num_items, 0.5, isolated)
    dense = graph.interactions.toarray().astype(np.float64)
    adjacency = graph.adjacency.toarray()
    np.testing.assert_allclose(adjacency, normalized_adjacency(dense), rtol=0, atol=1e-6)
    np.testing.assert_array_equal(adjacency, adjacency.T)
    assert graph.adjacency.dtype == np.float32
    assert graph.num_nodes == num_users + num_items


def test_root_of_degrees_is_a_fixed_point(random_graph):
    graph = random_graph(33, 20)
    roots = np.sqrt(np.concatenate([graph.user_degrees, graph.item_degrees]))
    np.testing.assert_allclose(graph.adjacency @ roots, roots, rtol=1e-5)
    assert roots.max() > 1


def test_isolated_nodes_have_zero_rows(random_graph):
    graph = random_graph(9, 8)
    rows = np.abs(graph.adjacency).sum(axis=1)
    assert rows[8] == 0
    assert rows[9 + 1] == 0
    assert graph.user_degrees[8] == graph.item_degrees[1] == 0
    assert rows[0] > 0


def test_inverse_sqrt_of_nothing_is_zero():
    np.testing.assert_array_equal(inverse_sqrt(np.array([0, 1, 4])), [0, 1, 0.5])
