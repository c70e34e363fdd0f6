"""EASE (Steck, WWW 2019, arXiv:1905.03375): regresses every item on all others, in closed form.

With P = (RᵀR + λI)⁻¹ the weights are B_ij = −P_ij / P_jj, zero on the diagonal. With fewer users
than items the smaller inverse K = (RRᵀ + λI)⁻¹ gives the same P = (I − RᵀKR) / λ.

Shapes: U users, I items; R is [U, I], B is [I, I] and dense: 4 I² bytes.
"""

from typing import Annotated, ClassVar

import numpy as np
import scipy.sparse as sp
import torch
from pydantic import PositiveFloat
from torch import Tensor

from mgformer.device import HOST
from mgformer.errors import ConfigError
from mgformer.graph.sparse import BLOCK_ENTRIES, block_slices, csr_matmul
from mgformer.memory import available_bytes
from mgformer.models.base import Footprint, Model, ModelConfig, Size
from mgformer.models.space import Float
from mgformer.progress import phase
from mgformer.ranking.scorers import HistoryScorer


class EASE(Model):
    """scores(u) = r_u B, where B minimizes ‖R − RB‖² + λ‖B‖² with a zero diagonal."""

    class Config(ModelConfig):
        """Options of EASE."""

        l2: Annotated[PositiveFloat, Float(1.0, 1e4, log=True)] = 250.0
        """λ, weight of the squared norm of B. Larger data need larger values."""

    weights: ClassVar[str | None] = "co-occurrences add √(w_ui w_uj): weights are confidence"
    config: Config

    @classmethod
    def footprint(cls, config: ModelConfig, size: Size) -> Footprint:
        held, others = 4 * size.num_items**2, 4 * min(size.num_users, size.num_items) ** 2
        through_users = size.num_users < size.num_items
        return Footprint(preparing=held + (others if through_users else 0), held=held)

    def scorer(self) -> HistoryScorer:
        r = self.graph.weighted
        num_users, num_items = r.shape
        through_users = num_users < num_items
        entries = num_items**2 + (num_users**2 if through_users else 0) + 4 * BLOCK_ENTRIES
        available = available_bytes()
        if available is not None and 4 * entries > available:
            raise ConfigError(
                f"ease: {num_items} items need {4 * entries / 1e9:.1f} GB of memory, "
                f"{available / 1e9:.1f} GB are available; use itemknn, rp3beta or gfcf"
            )
        inverse = item_inverse(r, self.config.l2, through_users=through_users)  # P
        inverse /= -inverse.diagonal().clone()  # column j by P_jj
        inverse.fill_diagonal_(0)
        return HistoryScorer(self.graph.interactions, inverse)


def item_inverse(
    r: sp.csr_array, l2: float, *, through_users: bool, block_entries: int = BLOCK_ENTRIES
) -> Tensor:
    """Return P = (RᵀR + λI)⁻¹ [I, I], directly or from the inverse K [U, U] of the users."""
    columns = r.T.tocsr()
    if not through_users:
        return _ridge_inverse(columns, r, l2, block_entries)
    kernel = _ridge_inverse(r, columns, l2, block_entries)  # K
    inverse = torch.empty(r.shape[1], r.shape[1], device=HOST)
    with phase("weights", r.shape[1]) as advance:
        for block in block_slices(r.shape[1], max(r.shape), block_entries):
            half = csr_matmul(columns[block], kernel)  # [b, U]
            torch.div(csr_matmul(columns, half.T), -l2, out=inverse[:, block])
            advance(block.stop - block.start)
    inverse.diagonal().add_(1 / l2)
    return inverse


def _ridge_inverse(
    left: sp.csr_array, right: sp.csr_array, l2: float, block_entries: int
) -> Tensor:
    """Return (left right + λI)⁻¹ for a symmetric product, in the memory of the result."""
    size = left.shape[0]
    gram = np.empty((size, size), dtype=np.float32)
    with phase("co-occurrences", size) as advance:
        for rows in block_slices(size, size, block_entries):
            gram[rows] = (left[rows] @ right).toarray()
            advance(rows.stop - rows.start)
    inverse = torch.from_numpy(gram)
    inverse.diagonal().add_(l2)
    columns, failed = inverse.mT, torch.empty((), dtype=torch.int32, device=HOST)
    with phase("inverse", 2) as advance:
        # LAPACK reads the transposed view in its own order and overwrites it: no copy is made.
        # OpenBLAS, which scipy calls, crashes here from about 30,000 rows with several threads.
        torch.linalg.cholesky_ex(columns, out=(columns, failed))
        if failed:
            raise ConfigError(f"ease: l2 = {l2:g} is too small for float32; choose a larger one")
        advance(1)
        torch.cholesky_inverse(columns, out=columns)
        advance(1)
    return inverse
