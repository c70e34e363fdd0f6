"""The random graphs of GFormer against loops."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from mgformer.graph.sparse import pattern_of
from mgformer.models.gformer.sampled_edges import (
    drawn_edges,
    edge_ends,
    edges_with_loops,
    normalized_by_rows,
    with_loops,
    with_random_edges,
    with_rebuilt_edges,
)
from tests.models.gformer.oracles_edges import (
    assert_frequencies,
    edge_list,
    inclusion,
    random_pattern,
    seeded,
    slow_normalized,
)


def test_edges_with_loops_are_pairs_in_both_directions(random_graph):
    graph = random_graph(9, 7)
    dense = np.eye(16)
    dense[:9, 9:] = graph.interactions.toarray()
    dense[9:, :9] = dense[:9, 9:].T
    np.testing.assert_array_equal(edges_with_loops(graph).toarray(), dense)


@pytest.mark.parametrize("count", [1, 2, 4])
def test_edges_are_drawn_without_replacement_by_their_weights(count):
    weights, generator = torch.tensor([0.2, 1.0, 2.5, 0.7, 4.0]), seeded()
    draws = 10_000
    masks = torch.stack([drawn_edges(weights.log(), count, generator) for _ in range(draws)])
    assert (masks.sum(1) == count).all()
    assert_frequencies(masks.sum(0).numpy(), inclusion(weights, count), draws)


@pytest.mark.parametrize("count", [0, 17])
def test_none_or_all_of_the_edges(count):
    assert drawn_edges(torch.zeros(17), count, seeded()).sum() == count


def test_a_subgraph_has_the_edges_of_the_mask(rng):
    pattern = random_pattern(rng, 13)
    mask = torch.from_numpy(rng.random(pattern.nnz) < 0.5)
    kept = [edge for edge, keep in zip(edge_list(pattern), mask, strict=True) if keep]
    found = pattern_of(pattern, mask.numpy())
    assert edge_list(found) == kept
    assert (found.data == 1).all()
    assert list(zip(*(ends.tolist() for ends in edge_ends(found)), strict=True)) == kept


def test_normalization_uses_row_sums_and_counts_a_kept_loop_twice(rng):
    pattern = random_pattern(rng, 13)
    dense = pattern.toarray()
    assert (dense != dense.T).any()
    assert 0 < dense.diagonal().sum() < 13
    looped = dense + np.eye(13)
    np.testing.assert_array_equal(with_loops(pattern).toarray(), looped)
    found = normalized_by_rows(with_loops(pattern)).toarray()
    np.testing.assert_allclose(found, slow_normalized(looped), rtol=1e-6)


def rejoined(edges, count, generator):
    """Rows and columns of edges drawn independently, as a list of pairs."""
    if not count:
        return []
    first, second = torch.randint(len(edges), (2, count), generator=generator).tolist()
    return [(edges[a][0], edges[b][1]) for a, b in zip(first, second, strict=True)]


def both_ways(edges):
    return {*edges, *((c, r) for r, c in edges)}


@pytest.mark.parametrize("share", [0.0, 0.3, 1.5])
def test_random_edges_join_rows_and_columns_of_edges(share, random_graph):
    pattern = edges_with_loops(random_graph(9, 7))
    edges = edge_list(pattern)
    added = rejoined(edges, int(share * len(edges)), seeded())
    found = with_random_edges(pattern, share, seeded())
    assert edge_list(found) == sorted({*edges, *both_ways(added)})
    assert (found.data == 1).all()
    assert found.has_sorted_indices


def test_ends_of_added_edges_are_drawn_independently_of_each_other():
    pattern = sp.csr_array(np.array([[1, 1, 1], [0, 0, 1], [0, 0, 0]], dtype=np.float32))
    edges = edge_list(pattern)
    generator, draws, counts = seeded(), 3000, np.zeros((3, 3))
    for _ in range(draws):
        added = with_random_edges(pattern, 0.25, generator).toarray() - pattern.toarray()
        counts += added
    # Only these are neither edges nor reverses of one of (0, ·): row 1 with 0, 1; row 1 is 1/4.
    rows, columns = (np.bincount([e[k] for e in edges], minlength=3) / 4 for k in (0, 1))
    expected = {(1, 1): rows[1] * columns[1], (1, 0): rows[1] * columns[0] + rows[0] * columns[1]}
    for edge, probability in expected.items():
        assert_frequencies(counts[edge], np.array(probability), draws)


@pytest.mark.parametrize(("pool_share", "share"), [(0.5, 0.8), (0.0, 0.8), (2.0, 0.1), (0.5, 0.0)])
def test_rebuilt_edges_join_ends_of_those_dropped(pool_share, share, rng, random_graph):
    pattern = edges_with_loops(random_graph(9, 7))
    edges, mask = edge_list(pattern), torch.from_numpy(rng.random(pattern.nnz) < 0.7)
    kept = [(v, v) for v in range(16)]
    kept += [edge for edge, keep in zip(edges, mask, strict=True) if keep]
    dropped = [edge for edge, keep in zip(edges, mask, strict=True) if not keep]
    generator = seeded()
    pool = rejoined(kept, int(pool_share * len(dropped)), generator) + dropped
    drawn = rejoined(pool, int(share * len(edges)), generator)
    found = with_rebuilt_edges(
        pattern, mask, pool_share=pool_share, share=share, generator=seeded()
    )
    assert edge_list(found) == sorted({*kept, *both_ways(drawn)})
    assert (found.data == 1).all()


def test_nothing_dropped_nothing_rebuilt(random_graph):
    pattern = edges_with_loops(random_graph(9, 7))
    mask = torch.ones(pattern.nnz, dtype=torch.bool)
    found = with_rebuilt_edges(pattern, mask, pool_share=0.5, share=0.8, generator=seeded())
    np.testing.assert_array_equal(found.toarray(), pattern.toarray())
