"""DirectAU against dense matrix powers and the formula of the loss."""

import numpy as np
import pytest
import torch

from mgformer.data.sampling import Batch
from mgformer.models.directau import DirectAU
from tests.graph.oracles_graph import normalized_adjacency
from tests.nn import oracles_losses as oracles


def build(graph, **options):
    config = DirectAU.Config(**{"dim": 5, **options})
    return DirectAU(config, graph, np.random.default_rng(0)).double()


@pytest.mark.parametrize("num_layers", [1, 3])
def test_the_encoder_is_the_mean_of_matrix_powers(num_layers, random_graph):
    graph = random_graph(9, 7)
    model = build(graph, num_layers=num_layers)
    adjacency = normalized_adjacency(graph.interactions.toarray())
    powers = [np.linalg.matrix_power(adjacency, k) for k in range(num_layers + 1)]
    expected = sum(powers) @ model.embeddings.detach().numpy() / (num_layers + 1)
    np.testing.assert_allclose(model.encode(torch.arange(16)).detach(), expected, atol=1e-6)


def test_without_a_graph_embeddings_are_free(random_graph):
    model = build(random_graph(9, 7), encoder="mf")
    assert torch.equal(model.encode(torch.arange(16)), model.embeddings)


@pytest.mark.parametrize("encoder", ["mf", "lightgcn"])
def test_the_loss_is_alignment_and_half_of_both_uniformities(encoder, random_graph):
    model = build(random_graph(9, 7), encoder=encoder, uniformity_weight=0.7)
    batch = Batch(torch.tensor([0, 3, 3, 7]), torch.tensor([1, 0, 6, 5]))
    z = model.encode(torch.arange(16))
    users, items = z[batch.users], z[9 + batch.items]
    expected = oracles.alignment(users, items) + 0.35 * (
        oracles.uniformity(users, 2.0) + oracles.uniformity(items, 2.0)
    )
    loss = model.loss(batch, torch.Generator())
    torch.testing.assert_close(loss, expected)
    (gradient,) = torch.autograd.grad(expected, model.embeddings)
    loss.backward()
    torch.testing.assert_close(model.embeddings.grad, gradient)
