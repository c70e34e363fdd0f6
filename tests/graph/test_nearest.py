"""Neighbours, landmarks, sparse products and encodings of nodes against slow references."""

import re
import sys

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch.nn import functional

from mgformer.errors import ConfigError
from mgformer.graph import sparse as products
from mgformer.graph.bipartite import Graph
from mgformer.graph.nearest import nearest_nodes
from mgformer.graph.sparse import SparseProduct
from mgformer.graph.spectral import structural_encodings
from mgformer.models.mgformer.landmarks import landmark_features


def random_rows(rng, *shape: int) -> torch.Tensor:
    return torch.from_numpy(rng.standard_normal(shape, dtype=np.float32))


def clustered(rng, num_nodes: int, num_clusters: int) -> torch.Tensor:
    centers = random_rows(rng, num_clusters, 16)
    chosen = torch.from_numpy(rng.integers(num_clusters, size=num_nodes))
    return functional.normalize(centers[chosen] + 0.2 * random_rows(rng, num_nodes, 16))


@pytest.mark.parametrize("num_nodes", [1, 2, 7, 33])
@pytest.mark.parametrize("k", [1, 5, 40])
@pytest.mark.parametrize("block", [10, 100, 1 << 24])
def test_neighbors_equal_those_of_sorting(num_nodes, k, block, rng, monkeypatch):
    monkeypatch.setattr(products, "BLOCK_ENTRIES", block)
    encodings = random_rows(rng, num_nodes, 5)
    found = nearest_nodes(encodings, k)
    width = min(k, num_nodes - 1)
    assert found.nodes.shape == found.similarities.shape == (num_nodes, width)
    assert (found.nodes.dtype, found.similarities.dtype) == (torch.int64, torch.float32)
    for node, row in enumerate(encodings.double().numpy()):
        similarity = {n: float(row @ encodings[n].double().numpy()) for n in range(num_nodes)}
        del similarity[node]
        nearest = sorted(similarity, key=similarity.__getitem__, reverse=True)[:width]
        assert found.nodes[node].tolist() == nearest
        np.testing.assert_allclose(
            found.similarities[node], [similarity[n] for n in nearest], rtol=0, atol=1e-5
        )


def test_a_node_that_equals_another_is_its_neighbor_and_not_its_own():
    encodings = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 2.0]])
    found = nearest_nodes(encodings, 1)
    assert found.nodes.flatten().tolist() == [1, 0, 3, 2]
    assert found.similarities.flatten().tolist() == [1, 1, 2, 2]


def test_an_index_finds_nearly_all_neighbors(rng):
    pytest.importorskip("faiss")
    encodings = clustered(rng, 4000, 100)
    exact, found = nearest_nodes(encodings, 5), nearest_nodes(encodings, 5, exact_nodes=0)
    hits = (found.nodes[:, :, None] == exact.nodes[:, None, :]).any(2)
    assert hits.float().mean() >= 0.9
    assert (found.nodes != torch.arange(4000)[:, None]).all()
    finite = found.similarities.isfinite()
    own = (encodings[:, None] * encodings[found.nodes]).sum(2)
    torch.testing.assert_close(found.similarities[finite], own[finite], rtol=0, atol=1e-5)
    assert (found.similarities.diff(dim=1)[finite[:, 1:]] <= 0).all()


def test_neighbors_an_index_does_not_find_have_no_weight(rng):
    pytest.importorskip("faiss")
    found = nearest_nodes(clustered(rng, 1000, 50), 200, exact_nodes=0)
    missing = found.similarities == -torch.inf
    assert missing.any()  # fewer nodes lie in the cells that a search looks into
    assert (found.nodes >= 0).all()
    assert (found.nodes[~missing] != torch.arange(1000)[:, None].expand(-1, 200)[~missing]).all()


def test_many_nodes_without_faiss(rng, monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    encodings = random_rows(rng, 9, 3)
    message = (
        "9 nodes are too many to compare all pairs, and the package faiss is not installed;"
        " pip install 'mgformer[ann]', or choose model.attention=kernel"
    )
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        nearest_nodes(encodings, 2, exact_nodes=8)
    assert nearest_nodes(encodings, 2, exact_nodes=9).nodes.shape == (9, 2)


@pytest.mark.parametrize("block", [40, 1 << 24])
def test_landmark_features_are_softmaxes_of_the_nearest(rng, block, monkeypatch):
    monkeypatch.setattr(products, "BLOCK_ENTRIES", block)
    encodings = random_rows(rng, 33, 5)
    encodings[[4, 20]] = 0
    features = landmark_features(encodings, 7, 3, 10.0, rng)
    assert features.shape == (33, 7)
    assert features.dtype == np.float32
    dense = features.toarray()
    known = np.setdiff1d(np.arange(33), [4, 20])
    np.testing.assert_allclose(dense[known].sum(1), 1, rtol=0, atol=1e-6)
    assert ((dense[known] > 0).sum(1) == 3).all()
    assert (dense >= 0).all()
    assert not dense[[4, 20]].any()


def test_as_many_landmarks_as_nodes_are_the_nodes(rng):
    """Every node is a landmark: the features are the softmax of cosines, with itself first."""
    encodings = random_rows(rng, 7, 3)
    for num_landmarks in (7, 100):
        features = landmark_features(encodings, num_landmarks, 4, 10.0, rng).toarray()
        assert features.shape == (7, 7)
        unit = functional.normalize(encodings).double().numpy()
        for node in range(7):
            cosines = unit @ unit[node]
            nearest = np.argsort(-cosines)[:4]
            expected = np.zeros(7)
            expected[nearest] = np.exp(10 * cosines[nearest])
            expected /= expected.sum()
            np.testing.assert_allclose(features[node], expected, rtol=0, atol=1e-5)


def test_more_active_landmarks_than_there_are(rng):
    features = landmark_features(random_rows(rng, 7, 3), 3, 8, 1.0, rng).toarray()
    assert features.shape == (7, 3)
    assert (features > 0).all()
    np.testing.assert_allclose(features.sum(1), 1, rtol=0, atol=1e-6)


def test_landmarks_find_the_clusters(rng):
    """Every cluster has landmarks, and no landmark belongs to two clusters."""
    directions = torch.eye(4).repeat_interleave(10, 0)
    encodings = directions + 0.01 * random_rows(rng, 40, 4)
    features = landmark_features(encodings, 20, 1, 10.0, rng).toarray()
    owners = features.reshape(4, 10, 20).sum(1) > 0  # [cluster, landmark]
    assert (owners.sum(0) <= 1).all()
    assert (owners.sum(1) >= 1).all()


def test_landmarks_of_nodes_without_encodings(rng):
    assert landmark_features(torch.zeros(6, 3), 4, 2, 1.0, rng).shape == (6, 0)
    lonely = torch.zeros(6, 3)
    lonely[2] = 1
    features = landmark_features(lonely, 4, 2, 1.0, rng).toarray()
    np.testing.assert_allclose(features, np.eye(6)[:, [2]], rtol=0, atol=1e-6)


def test_landmarks_depend_on_the_seed_alone(rng):
    encodings = random_rows(rng, 50, 5)
    one, two, other = (
        landmark_features(encodings, 7, 3, 10.0, np.random.default_rng(seed)).toarray()
        for seed in (3, 3, 4)
    )
    np.testing.assert_array_equal(one, two)
    assert (one != other).any()


@pytest.mark.parametrize(
    ("shape", "density"), [((1, 1), 1.0), ((7, 33), 0.3), ((33, 2), 0.5), ((6, 5), 0.0)]
)
def test_sparse_products_equal_dense_ones(shape, density, rng):
    values = rng.standard_normal(shape) * (rng.random(shape) < density)
    matrix = sp.csr_array(values.astype(np.float32))
    exact = torch.from_numpy(matrix.toarray()).double()
    dense, same = (
        torch.from_numpy(np.random.default_rng(1).standard_normal((shape[1], 4))).requires_grad_()
        for _ in range(2)
    )
    weights = torch.from_numpy(rng.standard_normal((4, shape[0]))).T  # not contiguous
    product, expected = SparseProduct(matrix)(dense), exact @ same
    torch.testing.assert_close(product, expected, rtol=0, atol=1e-12)
    for result in (product, expected):
        (result * weights).sum().backward()
    torch.testing.assert_close(dense.grad, same.grad, rtol=0, atol=1e-12)
    assert bool(same.grad.any()) is (density > 0)
    single = SparseProduct(matrix)(dense.detach().float())
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), expected.detach(), rtol=0, atol=1e-5)


@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize(("shape", "rank"), [((9, 7), 4), ((7, 9), 7), ((33, 20), 6)])
def test_encodings_multiply_to_the_truncated_matrix(shape, rank, normalized, random_graph, rng):
    graph = random_graph(*shape)
    users, items = structural_encodings(graph, rank, rng, normalized=normalized).split(shape)
    dense = graph.interactions.toarray().astype(np.float64)
    if normalized:
        for axis in (0, 1):
            degrees = graph.interactions.toarray().sum(axis, keepdims=True)
            dense = dense / np.sqrt(np.maximum(degrees, 1))
    u, s, vt = np.linalg.svd(dense, full_matrices=False)
    expected = u[:, :rank] * s[:rank] @ vt[:rank]
    assert np.abs(expected).max() > 0.1
    np.testing.assert_allclose(users @ items.T, expected, rtol=0, atol=2e-5)
    # √Σ goes to either side alike.
    for side in (users, items):
        np.testing.assert_allclose(side.norm(dim=0), np.sqrt(s[:rank]), rtol=0, atol=1e-3)
    assert not users[-1].any()
    assert not items[1].any()


def test_encodings_beyond_the_size_of_the_graph_are_zero(random_graph, rng):
    graph = random_graph(9, 7, isolated=False)
    encodings = structural_encodings(graph, 12, rng, normalized=True)
    assert encodings.shape == (16, 12)
    assert encodings[:, :7].any(dim=0).all()
    assert not encodings[:, 7:].any()


def test_encodings_of_no_pairs_at_all(rng):
    graph = Graph(sp.csr_array((4, 5), dtype=np.float32))
    assert not structural_encodings(graph, 3, rng, normalized=True).any()
