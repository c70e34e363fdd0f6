"""The bipartite graph of users and items, built from training pairs only.

Shapes: U users, I items, N = U + I nodes; users are nodes 0…U-1, items U…N-1.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from mgformer.graph.sparse import row_numbers, scaled


@dataclass(frozen=True, eq=False)
class Graph:
    """Degrees and adjacency of R, the [U, I] binary training matrix (CSR, float32, int32)."""

    interactions: sp.csr_array
    positions: NDArray[np.float32] | None = None
    """[E] position of each pair in the history of its user, from 0 (oldest) to 1 (latest); None if
    models may not use the order."""
    strengths: NDArray[np.float32] | None = None
    """[E] w > 0, the weight of each pair; None if all pairs count alike. A user whose pairs all
    have weight 2 counts as two users."""

    @property
    def num_users(self) -> int:
        return int(self.interactions.shape[0])

    @property
    def num_items(self) -> int:
        return int(self.interactions.shape[1])

    @property
    def num_nodes(self) -> int:
        return self.num_users + self.num_items

    @cached_property
    def user_degrees(self) -> NDArray[np.int64]:
        """[U] number of items of each user."""
        return np.diff(self.interactions.indptr).astype(np.int64)

    @cached_property
    def item_degrees(self) -> NDArray[np.int64]:
        """[I] number of users of each item."""
        return np.bincount(self.interactions.indices, minlength=self.num_items)

    @cached_property
    def degrees(self) -> NDArray[np.int64]:
        """[N] number of neighbors of each node."""
        return np.concatenate([self.user_degrees, self.item_degrees])

    @cached_property
    def normalized(self) -> sp.csr_array:
        """[U, I] D_u^(-1/2) R D_i^(-1/2), the upper right block of the normalized adjacency."""
        return scaled(
            self.interactions, inverse_sqrt(self.user_degrees), inverse_sqrt(self.item_degrees)
        )

    @cached_property
    def user_strengths(self) -> NDArray[np.int64] | NDArray[np.float64]:
        """[U] sum of the weights of each user's pairs; without weights `user_degrees`."""
        if self.strengths is None:
            return self.user_degrees
        return np.bincount(row_numbers(self.interactions), self.strengths, self.num_users)

    @cached_property
    def item_strengths(self) -> NDArray[np.int64] | NDArray[np.float64]:
        """[I] sum of the weights of each item's pairs; without weights `item_degrees`."""
        if self.strengths is None:
            return self.item_degrees
        return np.bincount(self.interactions.indices, self.strengths, self.num_items)

    @cached_property
    def weighted(self) -> sp.csr_array:
        """[U, I] entries √w, so that WᵀW sums weights; without weights `interactions`."""
        return self.powers(0.5)

    @cached_property
    def weighted_normalized(self) -> sp.csr_array:
        """[U, I] entries w / √(d_u d_i), d the sums of weights; without weights `normalized`."""
        if self.strengths is None:
            return self.normalized
        return scaled(
            self.powers(1.0),
            inverse_sqrt(self.user_strengths),
            inverse_sqrt(self.item_strengths),
        )

    def powers(self, exponent: float) -> sp.csr_array:
        """[U, I] entries w^exponent; without weights `interactions`."""
        r = self.interactions
        if self.strengths is None:
            return r
        entries = self.strengths.astype(np.float64) ** exponent
        return sp.csr_array((entries.astype(np.float32), r.indices, r.indptr), shape=r.shape)

    @cached_property
    def adjacency(self) -> sp.csr_array:
        """[N, N] D^(-1/2) A D^(-1/2), symmetric; rows of isolated nodes are zero."""
        blocks = [[None, self.normalized], [self.normalized.T, None]]
        return sp.csr_array(sp.block_array(blocks, format="csr", dtype=np.float32))


def inverse_sqrt(
    degrees: NDArray[np.int64] | NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return degrees^(-1/2), 0 where the degree is 0."""
    return np.where(degrees > 0, 1.0 / np.sqrt(np.where(degrees > 0, degrees, 1)), 0.0)
