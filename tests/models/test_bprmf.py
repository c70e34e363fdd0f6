"""BPRMF against its formula."""

import pytest

from mgformer.models.bprmf import BPRMF
from tests.models.oracles_bpr import (
    BATCH,
    NUM_ITEMS,
    NUM_USERS,
    assert_same,
    bpr_loop,
    build,
    seeded,
)


@pytest.fixture
def graph(random_graph):
    return random_graph(NUM_USERS, NUM_ITEMS)


@pytest.mark.parametrize("num_negatives", [1, 3])
def test_bprmf_matches_the_loop(num_negatives, graph):
    model = build(BPRMF, graph, num_negatives=num_negatives)
    negatives = model.unseen.draw(BATCH.users, num_negatives, seeded())
    assert_same(model, bpr_loop(model.embeddings, model.embeddings, negatives, 0.1))
