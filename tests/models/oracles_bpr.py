"""Slow references that BPRMF and the models built on LightGCN share: loops and matrix powers."""

import numpy as np
import torch

from mgformer.data.sampling import Batch
from tests.graph.oracles_graph import normalized_adjacency
from tests.nn.oracles_losses import info_nce

BATCH = Batch(torch.tensor([0, 3, 3, 7]), torch.tensor([2, 0, 6, 5]))
NUM_USERS, NUM_ITEMS = 9, 7


def build(model, graph, **options):
    options = {"dim": 5, "l2": 0.1, **options}
    built = model(model.Config(**options), graph, np.random.default_rng(0)).double()
    with torch.no_grad():
        built.embeddings.mul_(10)  # near zero all formulas are nearly equal
    return built


def seeded():
    return torch.Generator().manual_seed(1)


def dense(graph):
    """Return Â with the weights the models have, which are float32."""
    adjacency = normalized_adjacency(graph.interactions.toarray())
    return torch.from_numpy(adjacency).float().double()


def mean_of_powers(adjacency, x, num_layers, first=0):
    powers = [torch.linalg.matrix_power(adjacency, k) @ x for k in range(first, num_layers + 1)]
    return sum(powers) / len(powers)


def bpr_loop(z, x, negatives, l2):
    """Return the loss of BATCH, pair by pair, with z for ranking and x for L2."""
    total = 0
    for user, item, others in zip(*BATCH, negatives, strict=True):
        u, i = z[user], z[NUM_USERS + item]
        for other in others:
            j = z[NUM_USERS + other]
            total = total - torch.log(torch.sigmoid(u @ i - u @ j)) / len(others)
        rows = [user, NUM_USERS + item, *(NUM_USERS + other for other in others)]
        total = total + l2 / 2 * sum(x[row] @ x[row] for row in rows)
    return total / len(BATCH.users)


def assert_same(model, expected, found=None):
    """Compare the loss and its gradient."""
    found = model.loss(BATCH, seeded()) if found is None else found
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)
    gradients = [torch.autograd.grad(loss, model.embeddings)[0] for loss in (found, expected)]
    torch.testing.assert_close(*gradients, rtol=0, atol=1e-6)
    assert gradients[1].abs().max() > 1e-2


def contrast_loop(one, other, temperature):
    """InfoNCE among different users and among different items of BATCH."""
    total = 0
    for nodes in (BATCH.users.unique(), NUM_USERS + BATCH.items.unique()):
        total = total + info_nce(one[nodes], other[nodes], other[nodes], temperature)
    return total
