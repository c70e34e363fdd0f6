"""Landmarks and structural encodings against slow references."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch.nn import functional

from mgformer.graph.bipartite import Graph
from mgformer.models.mgformer.structural import encodings_of, landmark_features


def random_rows(rng, *shape: int) -> torch.Tensor:
    return torch.from_numpy(rng.standard_normal(shape, dtype=np.float32))


@pytest.mark.parametrize("block", [40, 1 << 24])
def test_landmark_features_are_softmaxes_of_the_nearest(rng, block):
    encodings = random_rows(rng, 33, 5)
    encodings[[4, 20]] = 0
    features = landmark_features(encodings, 7, 3, 10.0, rng, block_entries=block)
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


@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize(("shape", "rank"), [((9, 7), 4), ((7, 9), 7), ((33, 20), 6)])
def test_encodings_multiply_to_the_truncated_matrix(shape, rank, normalized, random_graph, rng):
    graph = random_graph(*shape)
    users, items = encodings_of(graph, rank, rng, normalized=normalized).split(shape)
    dense = graph.interactions.toarray().astype(np.float64)
    if normalized:
        for axis in (0, 1):
            degrees = graph.interactions.toarray().sum(axis, keepdims=True)
            dense = dense / np.sqrt(np.maximum(degrees, 1))
    u, s, vt = np.linalg.svd(dense, full_matrices=False)
    expected = u[:, :rank] * s[:rank] @ vt[:rank]
    assert np.abs(expected).max() > 0.1
    np.testing.assert_allclose(users @ items.T, expected, rtol=0, atol=2e-5)
    # Both sides carry √Σ.
    for side in (users, items):
        np.testing.assert_allclose(side.norm(dim=0), np.sqrt(s[:rank]), rtol=0, atol=1e-3)
    assert not users[-1].any()
    assert not items[1].any()


def test_encodings_beyond_the_size_of_the_graph_are_zero(random_graph, rng):
    graph = random_graph(9, 7, isolated=False)
    encodings = encodings_of(graph, 12, rng, normalized=True)
    assert encodings.shape == (16, 12)
    assert encodings[:, :7].any(dim=0).all()
    assert not encodings[:, 7:].any()


def test_encodings_of_no_pairs_at_all(rng):
    graph = Graph(sp.csr_array((4, 5), dtype=np.float32))
    assert not encodings_of(graph, 3, rng, normalized=True).any()
