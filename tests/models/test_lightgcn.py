"""LightGCN against matrix powers and loops."""

import pytest
import torch

from mgformer.models.lightgcn import LightGCN
from tests.models.oracles_bpr import (
    BATCH,
    NUM_ITEMS,
    NUM_USERS,
    assert_same,
    bpr_loop,
    build,
    dense,
    mean_of_powers,
    seeded,
)


@pytest.fixture
def graph(random_graph):
    return random_graph(NUM_USERS, NUM_ITEMS)


@pytest.mark.parametrize("num_negatives", [1, 3])
@pytest.mark.parametrize("num_layers", [1, 2, 3])
def test_lightgcn_matches_matrix_powers_and_the_loop(num_layers, num_negatives, graph):
    model = build(LightGCN, graph, num_layers=num_layers, num_negatives=num_negatives)
    negatives = model.unseen.draw(BATCH.users, num_negatives, seeded())
    z = mean_of_powers(dense(graph), model.embeddings, num_layers)
    assert_same(model, bpr_loop(z, model.embeddings, negatives, 0.1))
    scores = model.scorer().scores(torch.arange(NUM_USERS))
    torch.testing.assert_close(scores.double(), z[:NUM_USERS] @ z[NUM_USERS:].T, atol=1e-5, rtol=0)
