"""Tables of parameters: their starting values, and the rows of some nodes."""

import math

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional


def normal_table(
    num_rows: int, num_channels: int, rng: np.random.Generator, deviation: float | None = None
) -> nn.Parameter:
    """Return a table [num_rows, num_channels] of normal numbers.

    Without a deviation, Xavier's is used: √(2 / (num_rows + num_channels)).
    """
    if deviation is None:
        deviation = math.sqrt(2 / (num_rows + num_channels))
    drawn = rng.standard_normal((num_rows, num_channels), dtype=np.float32)
    return nn.Parameter(torch.from_numpy(drawn * np.float32(deviation)))


def xavier_matrices(count: int, channels: int, rng: np.random.Generator) -> Tensor:
    """Return square matrices [count, channels, channels] of Xavier's uniform numbers."""
    bound = math.sqrt(6 / (2 * channels))
    return torch.from_numpy(rng.uniform(-bound, bound, size=(count, channels, channels))).float()


def rows_at(x: Tensor, numbers: Tensor) -> Tensor:
    """Return x[numbers] […, d] for x [N, d].

    The gradient of plain indexing is summed in an order that changes from run to run if torch has
    several threads. The gradient of an embedding is summed in a fixed order, and as fast.
    """
    return functional.embedding(numbers, x)
