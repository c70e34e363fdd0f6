"""Nearest nodes against sorting all pairs."""

import re
import sys

import numpy as np
import pytest
import torch
from torch.nn import functional

from mgformer.errors import ConfigError
from mgformer.graph.nearest import nearest_nodes


def random_rows(rng, *shape: int) -> torch.Tensor:
    return torch.from_numpy(rng.standard_normal(shape, dtype=np.float32))


def clustered(rng, num_nodes: int, num_clusters: int) -> torch.Tensor:
    centers = random_rows(rng, num_clusters, 16)
    chosen = torch.from_numpy(rng.integers(num_clusters, size=num_nodes))
    return functional.normalize(centers[chosen] + 0.2 * random_rows(rng, num_nodes, 16))


@pytest.mark.parametrize("num_nodes", [1, 2, 7, 33])
@pytest.mark.parametrize("k", [1, 5, 40])
@pytest.mark.parametrize("block", [10, 100, 1 << 24])
def test_neighbors_equal_those_of_sorting(num_nodes, k, block, rng):
    encodings = random_rows(rng, num_nodes, 5)
    nodes, similarities = nearest_nodes(encodings, k, block_entries=block)
    width = min(k, num_nodes - 1)
    assert nodes.shape == similarities.shape == (num_nodes, width)
    assert (nodes.dtype, similarities.dtype) == (torch.int64, torch.float32)
    for node, row in enumerate(encodings.double().numpy()):
        similarity = {n: float(row @ encodings[n].double().numpy()) for n in range(num_nodes)}
        del similarity[node]
        nearest = sorted(similarity, key=similarity.__getitem__, reverse=True)[:width]
        assert nodes[node].tolist() == nearest
        np.testing.assert_allclose(
            similarities[node], [similarity[n] for n in nearest], rtol=0, atol=1e-5
        )


def test_equal_nodes_are_neighbors_but_no_node_is_its_own_neighbor():
    encodings = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 2.0]])
    nodes, similarities = nearest_nodes(encodings, 1)
    assert nodes.flatten().tolist() == [1, 0, 3, 2]
    assert similarities.flatten().tolist() == [1, 1, 2, 2]


def test_an_index_finds_nearly_all_neighbors(rng):
    pytest.importorskip("faiss")
    encodings = clustered(rng, 4000, 100)
    exact, _ = nearest_nodes(encodings, 5)
    nodes, similarities = nearest_nodes(encodings, 5, exact_nodes=0)
    hits = (nodes[:, :, None] == exact[:, None, :]).any(2)
    assert hits.float().mean() >= 0.9
    assert (nodes != torch.arange(4000)[:, None]).all()
    finite = similarities.isfinite()
    own = (encodings[:, None] * encodings[nodes]).sum(2)
    torch.testing.assert_close(similarities[finite], own[finite], rtol=0, atol=1e-5)
    assert (similarities.diff(dim=1)[finite[:, 1:]] <= 0).all()


def test_neighbors_that_the_index_misses_have_no_weight(rng):
    pytest.importorskip("faiss")
    nodes, similarities = nearest_nodes(clustered(rng, 1000, 50), 200, exact_nodes=0)
    missing = similarities == -torch.inf
    assert missing.any()  # fewer nodes lie in the cells that a search looks into
    assert (nodes >= 0).all()
    assert (nodes[~missing] != torch.arange(1000)[:, None].expand(-1, 200)[~missing]).all()


def test_many_nodes_without_faiss(rng, monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    encodings = random_rows(rng, 9, 3)
    message = (
        "guide = spectral: got 9 nodes, too many to compare all pairs without the package"
        " faiss; pip install 'mgformer[ann]', or set model.guide=ridge"
    )
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        nearest_nodes(encodings, 2, exact_nodes=8)
    assert nearest_nodes(encodings, 2, exact_nodes=9)[0].shape == (9, 2)
