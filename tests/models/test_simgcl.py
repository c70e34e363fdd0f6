"""SimGCL and XSimGCL against matrix powers and loops."""

import pytest
import torch
from pydantic import ValidationError

from mgformer.models.simgcl import SimGCL, shifted
from tests.models.oracles_bpr import (
    BATCH,
    NUM_ITEMS,
    NUM_USERS,
    assert_same,
    bpr_loop,
    build,
    contrast_loop,
    dense,
    mean_of_powers,
    seeded,
)


@pytest.fixture
def graph(random_graph):
    return random_graph(NUM_USERS, NUM_ITEMS)


def shift_by_hand(x, generator, length):
    drawn = torch.rand(x.shape, generator=generator, dtype=x.dtype)
    return x + length * x.sign() * drawn / drawn.norm(dim=1, keepdim=True)


def test_shifts_have_their_length_and_change_no_sign(rng):
    x = torch.from_numpy(rng.standard_normal((40, 7)))
    moved = shifted(x, 0.3, seeded())
    torch.testing.assert_close((moved - x).norm(dim=1), torch.full((40,), 0.3).double())
    assert torch.equal(moved.sign(), x.sign())


def shifted_layers(model, adjacency, num_layers, generator):
    """Return layers of all nodes; the last one's shifts are drawn for the batch's nodes only."""
    x, found = model.embeddings, []
    for layer in range(1, num_layers + 1):
        x = adjacency @ x
        if layer == num_layers:
            nodes = model_nodes(model)
            x = x.index_copy(0, nodes, shift_by_hand(x[nodes], generator, 0.3))
        else:
            x = shift_by_hand(x, generator, 0.3)
        found.append(x)
    return found


def model_nodes(model):
    return model.triple(BATCH, seeded()).nodes


@pytest.mark.parametrize("num_layers", [1, 2, 3])
@pytest.mark.parametrize("passes", ["three", "one"])
def test_simgcl_matches_the_loop(passes, num_layers, graph):
    options = {"noise": 0.3, "contrast_weight": 0.7, "temperature": 0.5, "passes": passes}
    model = build(SimGCL, graph, num_layers=num_layers, **options)
    generator, adjacency = seeded(), dense(graph)
    negatives = model.unseen.draw(BATCH.users, 1, generator)
    if passes == "three":
        z = mean_of_powers(adjacency, model.embeddings, num_layers, first=1)
        one, other = (
            sum(shifted_layers(model, adjacency, num_layers, generator)) / num_layers
            for _ in range(2)
        )
    else:
        layers = shifted_layers(model, adjacency, num_layers, generator)
        z = one = sum(layers) / num_layers
        other = layers[0]
    expected = bpr_loop(z, model.embeddings, negatives, 0.1) + 0.7 * contrast_loop(one, other, 0.5)
    assert_same(model, expected)


def test_simgcl_scores_without_shifts_and_without_layer_zero(graph):
    model = build(SimGCL, graph, num_layers=2)
    z = mean_of_powers(dense(graph), model.embeddings, 2, first=1)
    scores = model.scorer().scores(torch.arange(NUM_USERS))
    torch.testing.assert_close(scores.double(), z[:NUM_USERS] @ z[NUM_USERS:].T, atol=1e-5, rtol=0)
    assert torch.equal(scores, model.scorer().scores(torch.arange(NUM_USERS)))


def test_a_layer_to_contrast_with_must_exist():
    with pytest.raises(
        ValidationError, match="contrast_layer: got 3, expected at most num_layers = 2"
    ):
        SimGCL.Config(passes="one", num_layers=2, contrast_layer=3)
