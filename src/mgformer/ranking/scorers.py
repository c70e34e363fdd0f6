"""What a trained model amounts to: something that scores every item for a user.

Two kinds serve all models. `DotScorer` is two matrices; `HistoryScorer` multiplies a user's
history by an item-item matrix. Ranking, evaluation, the bundle and serving see nothing else.

Shapes: U users, I items, D channels, F factors, B users asked for.
"""

from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from operator import matmul
from typing import ClassVar

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from mgformer.graph.products import csr_matmul


class Scorer(ABC):
    """Scores of all items, for users known by number."""

    kind: ClassVar[str]

    @property
    @abstractmethod
    def num_users(self) -> int:
        """Users that can be scored."""

    @property
    @abstractmethod
    def num_items(self) -> int:
        """Items that are scored."""

    @abstractmethod
    def scores(self, users: Tensor) -> Tensor:
        """Return [B, I] float32 scores; a user's row does not depend on who else is asked for."""

    @abstractmethod
    def fold_in(self, histories: sp.csr_array) -> "Scorer":
        """Return a scorer for other users, known only by their [U', I] histories."""

    @abstractmethod
    def contributions(self, history: NDArray[np.integer], item: int) -> NDArray[np.float64]:
        """Return what each item of a history adds to the score of an item, for a user folded in."""

    @abstractmethod
    def similarities(self, item: int) -> Tensor:
        """Return how alike all items are to an item [I]."""


@dataclass(frozen=True, eq=False)
class DotScorer(Scorer):
    """score(u, i) = users[u] · items[i]."""

    kind: ClassVar[str] = "dot"
    users: Tensor  # [U, D]
    items: Tensor  # [I, D]
    unobserved_weight: float = 0.1
    """Weight of the pairs not seen when a new user is solved for; see `fold_in`."""
    l2: float = 1e-2
    """Ridge when a new user is solved for."""
    unit: bool = False
    """Whether users have unit length, the constant channels aside, and a new one is to have it."""
    constant: int = 0
    """Last channels, in which every user has a one: what items score for everybody."""

    @property
    def num_users(self) -> int:
        return len(self.users)

    @property
    def num_items(self) -> int:
        return len(self.items)

    def scores(self, users: Tensor) -> Tensor:
        # float64 makes a row's float32 result the same whatever the batch it is computed in, but
        # for cases on a rounding boundary; ranking does not rely on it (see topk.py).
        return (self.users[users].double() @ self._items64.T).float()

    @cached_property
    def _items64(self) -> Tensor:
        return self.items.double()

    @cached_property
    def largest_norm(self) -> float:
        """The length of the longest item vector."""
        return float(self.items.norm(dim=1).max()) if len(self.items) else 0.0

    def fold_in(self, histories: sp.csr_array) -> "DotScorer":
        """Solve each new user against the fixed items, as one half-step of implicit ALS.

        Minimises Σ_{i in history} (w·v_i − 1)² + α₀ Σ_{all i} (w·v_i)² + λ (|history| + α₀ I) ‖w‖².
        """
        bounds = zip(histories.indptr[:-1], histories.indptr[1:], strict=True)
        solved = [self._parts(histories.indices[start:stop]).sum(0) for start, stop in bounds]
        users = torch.stack(solved) if solved else torch.zeros(0, self._varying.shape[1])
        if self.unit:
            users = functional.normalize(users)
        ones = torch.ones(len(users), self.constant)
        return replace(self, users=torch.cat([users.float(), ones], dim=1))

    def contributions(self, history: NDArray[np.integer], item: int) -> NDArray[np.float64]:
        parts = self._parts(history)
        length = parts.sum(0).norm().clamp_min(1e-12) if self.unit else 1.0
        return (parts @ self._varying[item] / length).numpy()

    def similarities(self, item: int) -> Tensor:
        lengths = self._varying.norm(dim=1).clamp_min(1e-12)
        return (self._varying @ self._varying[item] / (lengths * lengths[item])).float()

    def _parts(self, history: NDArray[np.integer]) -> Tensor:
        """Return vectors [n, D] of the items of a history whose sum is the user solved for.

        With O [n, D] the items' vectors and E what does not depend on them, diagonal in the basis
        Q, the user is (E + OᵀO)⁻¹ Oᵀ 1 = E⁻¹ Oᵀ (1 + O E⁻¹ Oᵀ)⁻¹ 1: the cost grows with the
        history and not with the items.
        """
        spectrum, basis = self.solver
        own = self._varying[torch.from_numpy(np.asarray(history, dtype=np.int64))] @ basis  # [n, D]
        ridge = self.l2 * (len(own) + self.unobserved_weight * self.num_items)
        scaled = own / (spectrum + ridge)
        system = torch.eye(len(own), dtype=own.dtype) + scaled @ own.T
        shares = torch.linalg.solve(system, torch.ones(len(own), dtype=own.dtype))
        return shares[:, None] * scaled @ basis.T

    @cached_property
    def _varying(self) -> Tensor:
        """[I, D'] the channels that are not constant, in float64."""
        return self._items64[:, : self.items.shape[1] - self.constant]

    @cached_property
    def solver(self) -> tuple[Tensor, Tensor]:
        """Eigenvalues [D'] and eigenvectors [D', D'] of α₀ VᵀV, with which new users are solved."""
        spectrum, basis = torch.linalg.eigh(
            self.unobserved_weight * self._varying.T @ self._varying
        )
        return spectrum.clamp_min(0), basis


@dataclass(frozen=True, eq=False)
class HistoryScorer(Scorer):
    """scores(u) = h_u W + h_u Tᵀ T + (h_u L) Rᵀ, with h_u the user's row of the interactions.

    W is an item-item matrix, sparse or dense; TᵀT one that is never formed, since it would be far
    larger than the sparse T; L and R are the factors of a low-rank one. Each may be absent.
    """

    kind: ClassVar[str] = "history"
    histories: sp.csr_array  # [U, I]
    weights: sp.csr_array | Tensor | None = None  # [I, I]
    through: sp.csr_array | None = None  # [any, I]
    left: Tensor | None = None  # [I, F]
    right: Tensor | None = None  # [I, F]

    @property
    def num_users(self) -> int:
        return int(self.histories.shape[0])

    @property
    def num_items(self) -> int:
        return int(self.histories.shape[1])

    def scores(self, users: Tensor) -> Tensor:
        rows = self.histories[users.numpy()]
        total = torch.zeros(rows.shape)
        if isinstance(self.weights, Tensor):
            total += csr_matmul(rows, self.weights)
        elif self.weights is not None:
            total += _sparse_product(rows, self.weights)
        if self.through is not None:
            total += _sparse_product(rows, self._into, self.through)
        if self.left is not None and self.right is not None:
            # Rounded from float64, a row has the same bits whatever the batch it is computed in.
            total += (csr_matmul(rows, self.left).double() @ self._right64.T).float()
        return total

    @cached_property
    def _into(self) -> sp.csr_array:
        assert self.through is not None
        return self.through.T.tocsr()

    @cached_property
    def _right64(self) -> Tensor:
        assert self.right is not None
        return self.right.double()

    def fold_in(self, histories: sp.csr_array) -> "HistoryScorer":
        return HistoryScorer(histories, self.weights, self.through, self.left, self.right)

    def contributions(self, history: NDArray[np.integer], item: int) -> NDArray[np.float64]:
        rows = self.fold_in(_single_items(history, self.num_items))
        return rows.scores(torch.arange(len(history)))[:, item].double().numpy()

    def similarities(self, item: int) -> Tensor:
        one = self.fold_in(_single_items(np.array([item]), self.num_items))
        return one.scores(torch.zeros(1, dtype=torch.long))[0]


def _single_items(items: NDArray[np.integer], num_items: int) -> sp.csr_array:
    """Return histories [n, I] of one item each."""
    ends = np.arange(len(items) + 1)
    return sp.csr_array(
        (np.ones(len(items), np.float32), items, ends), shape=(len(items), num_items)
    )


def _sparse_product(rows: sp.csr_array, *factors: sp.csr_array) -> Tensor:
    """Return the dense product of sparse matrices, the rows shared out among threads."""
    total = np.zeros((rows.shape[0], factors[-1].shape[1]), dtype=np.float32)
    bounds = np.linspace(0, rows.shape[0], torch.get_num_threads() + 1).astype(int)

    def part(start: int, stop: int) -> None:
        # scipy releases the interpreter lock in its products.
        reduce(matmul, factors, rows[start:stop]).toarray(out=total[start:stop])

    with ThreadPoolExecutor(len(bounds) - 1) as threads:
        list(threads.map(part, bounds[:-1], bounds[1:]))
    return torch.from_numpy(total)
