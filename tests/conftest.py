import os
from collections.abc import Callable

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import settings

from mgformer.graph.bipartite import Graph

torch.set_num_threads(1)  # threads cost more than they save on small tensors
settings.register_profile("ci", derandomize=True, deadline=None)
if os.environ.get("CI"):
    settings.load_profile("ci")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20)


@pytest.fixture
def random_graph(rng: np.random.Generator) -> Callable[..., Graph]:
    def build(num_users: int, num_items: int, density: float = 0.3, isolated: bool = True) -> Graph:
        """A random graph; with `isolated`, its last user and its second item have no pairs."""
        pairs = rng.random((num_users, num_items)) < density
        if isolated:
            pairs[-1] = False
            pairs[:, min(1, num_items - 1)] = False
        return Graph(sp.csr_array(pairs.astype(np.float32)))

    return build
