"""Tables of embeddings as they are before training.

Shapes: N rows, d channels.
"""

import math

import numpy as np
import torch
from torch import nn


def drawn_table(
    num_rows: int, num_channels: int, rng: np.random.Generator, spread: float | None = None
) -> nn.Parameter:
    """Return a table [N, d] of normal numbers of the given deviation, Xavier's if not given."""
    spread = math.sqrt(2 / (num_rows + num_channels)) if spread is None else spread
    drawn = rng.standard_normal((num_rows, num_channels), dtype=np.float32)
    return nn.Parameter(torch.from_numpy(drawn * np.float32(spread)))
