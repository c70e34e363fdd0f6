import logging
import os
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from scipy.sparse.linalg import svds

from mgformer.errors import ConfigError
from mgformer.graph.bipartite import Graph
from mgformer.graph.spectral import encodings_of, feasible_rank, truncated_svd


def random_matrix(shape, density=0.05, seed=3):
    draw = np.random.default_rng(seed)
    values = draw.standard_normal(shape) * (draw.random(shape) < density)
    return sp.csr_array(values.astype(np.float32))


def check_svd(matrix, svd, rank, atol):
    exact = np.linalg.svd(matrix.toarray().astype(np.float64), compute_uv=False)
    left, values, right = (part.double().numpy() for part in svd)
    np.testing.assert_allclose(values, exact[:rank], rtol=0, atol=atol * max(exact[0], 1))
    for vectors in (left, right):
        np.testing.assert_allclose(vectors.T @ vectors, np.eye(rank), rtol=0, atol=1e-5)
    # The best approximation misses exactly the tail of the singular values.
    missed = np.linalg.norm(matrix.toarray() - left * values @ right.T)
    tail = np.sqrt((exact[rank:] ** 2).sum())
    assert missed == pytest.approx(tail, rel=1e-4, abs=1e-5 * max(exact[0], 1))
    peaks = right[np.abs(right).argmax(axis=0), range(rank)]
    assert (peaks > 0).all()


@pytest.mark.parametrize(
    ("shape", "rank"),
    [((1, 1), 1), ((1, 5), 1), ((7, 3), 3), ((3, 7), 2), ((33, 20), 20), ((20, 33), 7)],
)
def test_small_matrices_equal_dense_svd(shape, rank, rng):
    matrix = random_matrix(shape, density=0.6)
    check_svd(matrix, truncated_svd(matrix, rank, rng), rank, atol=1e-6)


@pytest.mark.parametrize("shape", [(301, 407), (407, 301)])
def test_krylov_equals_dense_svd(shape, rng):
    matrix = random_matrix(shape)
    check_svd(matrix, truncated_svd(matrix, 7, rng), 7, atol=1e-4)


def test_krylov_equals_arpack(random_graph, rng):
    matrix = random_graph(801, 655, 0.02).normalized
    svd = truncated_svd(matrix, 20, rng, iterations=14)
    values = svds(matrix.astype(np.float64), 20, return_singular_vectors=False, rng=rng)
    np.testing.assert_allclose(svd.values, np.sort(values)[::-1], rtol=1e-4)


def test_repeated_singular_values_are_all_found(rng):
    pieces = [np.ones((9, 8)) for _ in range(60)]
    matrix = sp.csr_array(sp.block_diag(pieces).astype(np.float32))
    svd = truncated_svd(matrix, 40, rng)
    np.testing.assert_allclose(svd.values, np.sqrt(72), rtol=1e-5)
    np.testing.assert_allclose(svd.right.T @ svd.right, np.eye(40), rtol=0, atol=1e-5)


def test_rank_beyond_that_of_the_matrix(rng):
    draw = np.random.default_rng(1)
    factors = draw.standard_normal((400, 5)), draw.standard_normal((5, 350))
    matrix = sp.csr_array((factors[0] @ factors[1]).astype(np.float32))
    check_svd(matrix, truncated_svd(matrix, 9, rng), 9, atol=1e-5)


def test_empty_matrix(rng):
    svd = truncated_svd(sp.csr_array((30, 20), dtype=np.float32), 4, rng)
    assert not svd.values.any()
    assert all(part.isfinite().all() for part in svd)


@pytest.mark.parametrize("shape", [(40, 50), (301, 407)])
def test_same_seed_same_bits(shape):
    matrix = random_matrix(shape)
    first, second = (truncated_svd(matrix, 5, np.random.default_rng(4)) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("rank", [0, -1, 21])
def test_impossible_rank(rank, rng):
    with pytest.raises(ConfigError, match=f"rank: got {rank}, expected 1 to 20 for a 20 × 30"):
        truncated_svd(random_matrix((20, 30)), rank, rng)


def test_feasible_rank_is_lowered_with_a_log_line(caplog):
    matrix = random_matrix((20, 30))
    assert feasible_rank(20, matrix) == 20
    assert not caplog.records
    with caplog.at_level(logging.WARNING, "mgformer"):
        assert feasible_rank(64, matrix) == 20
    assert "rank 64 is too large for 20 × 30 data; using 20" in caplog.text


@pytest.mark.realdata
def test_yelp2018_equals_arpack(rng):
    path = Path(os.environ.get("MGFORMER_DATA", "")) / "yelp2018" / "train.txt"
    if not path.is_file():
        pytest.skip("yelp2018 is not in the data home")
    lines = [np.array(line.split(), dtype=np.int64) for line in path.read_text().splitlines()]
    users = np.repeat([line[0] for line in lines], [len(line) - 1 for line in lines])
    items = np.concatenate([line[1:] for line in lines])
    pairs = sp.csr_array((np.ones(len(users), np.float32), (users, items)))
    pairs.data[:] = 1
    svd = truncated_svd(pairs, 16, rng)
    _, values, right = svds(pairs.astype(np.float64), 16, rng=rng)
    np.testing.assert_allclose(svd.values, np.sort(values)[::-1], rtol=1e-4)
    overlap = np.linalg.svd(right @ svd.right.double().numpy(), compute_uv=False)
    assert overlap.min() > 0.999


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
