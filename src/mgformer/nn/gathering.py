"""Gather rows of a matrix with a gradient that does not depend on threads."""

from torch import Tensor
from torch.nn import functional


def rows_at(x: Tensor, numbers: Tensor) -> Tensor:
    """Return x[numbers] […, d] for x [N, d].

    The gradient of plain indexing is summed in an order that changes from run to run if torch has
    several threads. The gradient of an embedding is summed in a fixed order, and as fast.
    """
    return functional.embedding(numbers, x)
