"""Scorers: the form in which a trained model ranks, is evaluated, saved and served.

Two kinds and their sum serve all models. `DotScorer` multiplies two matrices. `HistoryScorer`
multiplies the history of a user by an item-item matrix. `SumScorer` adds one of each.

Shapes: U users, I items, D channels, F factors, B users of a batch.
"""

import copy
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from mgformer.device import HOST, on_host
from mgformer.graph.dense_product import dense_product
from mgformer.graph.sparse import csr_matmul

BLOCK_ROWS = 1 << 14


class Scorer(ABC):
    """Scores all items for users, who are given by number."""

    kind: ClassVar[str]

    @property
    @abstractmethod
    def num_users(self) -> int:
        """Number of users."""

    @property
    @abstractmethod
    def num_items(self) -> int:
        """Number of items."""

    @abstractmethod
    def scores(self, users: Tensor) -> Tensor:
        """Return new [B, I] float32 scores; a row does not depend on other users of the batch.

        Ranking writes into them.
        """

    @abstractmethod
    def fold_in(self, histories: sp.csr_array) -> "Scorer":
        """Return a scorer for new users, given their histories [U', I].

        The values of the matrix say how much each item counts, usually 1.
        """

    @abstractmethod
    def contributions(
        self,
        history: NDArray[np.integer],
        items: NDArray[np.integer],
        counts: NDArray[np.float32] | None = None,
    ) -> NDArray[np.float64]:
        """Return what each of n history items adds to the scores of m items, [n, m].

        The sum over the history is the score of a user who is folded in. `counts` [n] says how much
        each item of the history counts, 1 by default.
        """

    @abstractmethod
    def similarities(self, item: int) -> Tensor:
        """Return the similarity of all items to an item [I]; 0 or less means nothing in common."""

    def _for_others(self, **users: object) -> Self:
        """Return a copy with other users.

        The copy keeps the cached properties, which depend on the items only.
        """
        others = copy.copy(self)
        for name, value in users.items():
            object.__setattr__(others, name, value)  # the copy is frozen too
        return others


@dataclass(frozen=True, eq=False)
class DotScorer(Scorer):
    """score(u, i) = users[u] · items[i]."""

    kind: ClassVar[str] = "dot"
    users: Tensor  # [U, D]
    items: Tensor  # [I, D]
    unobserved_weight: float = 0.1
    """Weight of unobserved pairs when a new user is folded in."""
    l2: float = 1e-2
    """Ridge penalty when a new user is folded in."""
    unit: bool = False
    """Whether user vectors have unit length, without the constant channels."""
    constant: int = 0
    """Last channels in which every user has a 1: they score items the same for all users."""

    @property
    def num_users(self) -> int:
        return len(self.users)

    @property
    def num_items(self) -> int:
        return len(self.items)

    def scores(self, users: Tensor) -> Tensor:
        # In float64 the rounded result of a row does not depend on the batch, except on a rounding
        # boundary. Ranking does not rely on it (see topk.py).
        return (self.users[users].double() @ self._items64.T).float()

    @cached_property
    def _items64(self) -> Tensor:
        return self.items.double()

    @cached_property
    def by_channel(self) -> NDArray[np.float32]:
        """[D, I] the transposed items, which score a few users in half the time."""
        return np.ascontiguousarray(self.items.float().cpu().numpy().T)

    @cached_property
    def largest_norm(self) -> Tensor | float:
        """The length of the longest item vector; elsewhere than on the processor a tensor there."""
        if not len(self.items):
            return 0.0
        longest = self.items.norm(dim=1).max()
        return float(longest) if on_host(longest) else longest

    def fold_in(self, histories: sp.csr_array) -> "DotScorer":
        """Solve for each new user with fixed items, as one half-step of implicit ALS does.

        Minimises Σ_{i in history} c_i (w·v_i − 1)² + α₀ Σ_{all i} (w·v_i)² + λ (Σ c + α₀ I) ‖w‖²,
        where an item of the history counts c_i.
        """
        users = np.ones((histories.shape[0], self.items.shape[1]), dtype=np.float32)
        for row, (start, stop) in enumerate(pairwise(histories.indptr)):
            own = slice(start, stop)
            user = self._parts(histories.indices[own], histories.data[own]).sum(0) @ self._basis.T
            length = max(float(np.linalg.norm(user)), 1e-12) if self.unit else 1.0
            users[row, : len(user)] = user / length
        return self._for_others(users=torch.from_numpy(users))

    def contributions(
        self,
        history: NDArray[np.integer],
        items: NDArray[np.integer],
        counts: NDArray[np.float32] | None = None,
    ) -> NDArray[np.float64]:
        parts = self._parts(history, counts)
        length = max(float(np.linalg.norm(parts.sum(0))), 1e-12) if self.unit else 1.0
        return parts @ self._in_basis(items).T / length

    def similarities(self, item: int) -> Tensor:
        return cosines(self.items[:, : self.num_varying], item)

    def _parts(
        self, history: NDArray[np.integer], counts: NDArray[np.float32] | None = None
    ) -> NDArray[np.float64]:
        """Return one vector [n, D'] per history item; their sum is the folded-in user.

        E is the part of the normal equations that does not depend on the history. The vectors are
        in the basis Q in which E is diagonal. With y = √c [n] and O [n, D'] the vectors of the
        items times y, the user is (E + OᵀO)⁻¹ Oᵀ y = E⁻¹ Oᵀ s, with shares
        s = (1 + O E⁻¹ Oᵀ)⁻¹ y = y − O (E + OᵀO)⁻¹ Oᵀ y.
        The cost grows with the history, not with the number of items.
        """
        own = self._in_basis(history)
        num, dim = own.shape
        wanted, total = np.ones(num), float(num)
        if counts is not None:
            wanted, total = np.sqrt(counts.astype(np.float64)), float(counts.sum())
            own = own * wanted[:, None]
        ridge = self.l2 * (total + self.unobserved_weight * self.num_items)
        diagonal = self.solver[0].cpu().numpy() + ridge
        scaled = own / diagonal
        if num <= dim:
            shares = np.linalg.solve(np.eye(num) + scaled @ own.T, wanted)
        else:
            shares = wanted - own @ np.linalg.solve(np.diag(diagonal) + own.T @ own, own.T @ wanted)
        return shares[:, None] * scaled

    def _in_basis(self, items: NDArray[np.integer]) -> NDArray[np.float64]:
        """Return the vectors of items [n, D'] in the basis of the solver."""
        rows = self.items.cpu().numpy()[items, : self.num_varying].astype(np.float64)
        return rows @ self._basis

    @property
    def num_varying(self) -> int:
        """D', channels that are not constant."""
        return self.items.shape[1] - self.constant

    @property
    def _basis(self) -> NDArray[np.float64]:
        return self.solver[1].cpu().numpy()

    @cached_property
    def solver(self) -> tuple[Tensor, Tensor]:
        """Eigenvalues [D'] and eigenvectors [D', D'] of α₀ VᵀV, used to fold in new users."""
        varying = self.items[:, : self.num_varying].double()
        spectrum, basis = torch.linalg.eigh(self.unobserved_weight * varying.T @ varying)
        return spectrum.clamp_min(0), basis


@dataclass(frozen=True, eq=False)
class HistoryScorer(Scorer):
    """scores(u) = (h_u W + h_u Tᵀ T + (h_u L) Rᵀ) f, where h_u is the history of the user.

    W is a sparse or dense item-item matrix. TᵀT is an item-item matrix that is never formed: it
    would be far larger than the sparse T. L and R are low-rank factors. f multiplies the score of
    each item. Each may be absent.
    """

    kind: ClassVar[str] = "history"
    histories: sp.csr_array  # [U, I]
    weights: sp.csr_array | Tensor | None = None  # [I, I]
    through: sp.csr_array | None = None  # [any, I]
    left: Tensor | None = None  # [I, F]
    right: Tensor | None = None  # [I, F]
    item_factors: Tensor | None = None  # [I]; the trend, if the score uses it

    @property
    def num_users(self) -> int:
        return int(self.histories.shape[0])

    @property
    def num_items(self) -> int:
        return int(self.histories.shape[1])

    def scores(self, users: Tensor) -> Tensor:
        scores = self._products(self.histories[users.numpy()])
        return scores if self.item_factors is None else scores.mul_(self.item_factors)

    def _products(self, rows: sp.csr_array) -> Tensor:
        """Return the scores of histories [B, I] without the factors of items."""
        parts = []
        if isinstance(self.weights, Tensor):
            parts.append(csr_matmul(rows, self.weights))
        elif self.weights is not None:
            parts.append(torch.from_numpy(dense_product(rows, self.weights)))
        if self.through is not None:
            parts.append(torch.from_numpy(dense_product(rows, self._into, self.through)))
        if self.left is not None and self.right is not None:
            # float64, so that the bits of a row do not depend on the batch.
            parts.append((csr_matmul(rows, self.left).double() @ self._right64.T).float())
        total = parts[0] if parts else torch.zeros(rows.shape, device=HOST)
        for part in parts[1:]:
            total += part
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
        return self._for_others(histories=histories)

    def contributions(
        self,
        history: NDArray[np.integer],
        items: NDArray[np.integer],
        counts: NDArray[np.float32] | None = None,
    ) -> NDArray[np.float64]:
        total = np.zeros((len(history), len(items)))
        if isinstance(self.weights, Tensor):
            total += self.weights.numpy()[np.ix_(history, items)]
        elif self.weights is not None:
            total += self.weights[history][:, items].toarray()
        if self.through is not None:
            total += (self._into[history] @ self._into[items].T).toarray()
        if self.left is not None and self.right is not None:
            total += self.left.numpy()[history].astype(np.float64) @ self.right.numpy()[items].T
        if self.item_factors is not None:
            total *= self.item_factors.numpy()[items]
        return total if counts is None else total * counts[:, None]

    def times(self, factor: float) -> "HistoryScorer":
        """Return the scorer whose scores are these times a positive factor."""

        def scaled(part: Any, by: float) -> Any:
            return None if part is None else part * np.float32(by)

        return replace(
            self,
            weights=scaled(self.weights, factor),
            through=scaled(self.through, factor**0.5),
            right=scaled(self.right, factor),
        )

    def similarities(self, item: int) -> Tensor:
        alone = sp.csr_array(([1.0], [item], [0, 1]), shape=(1, self.num_items), dtype=np.float32)
        return self._products(alone)[0]


@dataclass(frozen=True, eq=False)
class SumScorer(Scorer):
    """score(u, i) = vectors(u, i) + history(u, i): a model with vectors, and a guide."""

    kind: ClassVar[str] = "sum"
    vectors: DotScorer
    history: HistoryScorer

    @property
    def num_users(self) -> int:
        return self.vectors.num_users

    @property
    def num_items(self) -> int:
        return self.vectors.num_items

    def scores(self, users: Tensor) -> Tensor:
        return self.vectors.scores(users) + self.history.scores(users)

    def fold_in(self, histories: sp.csr_array) -> "SumScorer":
        return SumScorer(self.vectors.fold_in(histories), self.history.fold_in(histories))

    def contributions(
        self,
        history: NDArray[np.integer],
        items: NDArray[np.integer],
        counts: NDArray[np.float32] | None = None,
    ) -> NDArray[np.float64]:
        both = (self.vectors, self.history)
        return np.add(*(part.contributions(history, items, counts) for part in both))

    def similarities(self, item: int) -> Tensor:
        return self.vectors.similarities(item) + self.history.similarities(item)


def vectors_of(scorer: Scorer) -> DotScorer | None:
    """Return the part of a scorer that multiplies vectors, or None."""
    if isinstance(scorer, SumScorer):
        return scorer.vectors
    return scorer if isinstance(scorer, DotScorer) else None


def with_vectors(scorer: Scorer, vectors: DotScorer) -> Scorer:
    """Return a scorer with other vectors; a history part stays as it is."""
    return SumScorer(vectors, scorer.history) if isinstance(scorer, SumScorer) else vectors


def cosines(rows: Tensor, one: int) -> Tensor:
    """Return the cosines of rows [n, D] with one of them, [n] float32; 0 for a zero row.

    They are computed in float64, in blocks of rows to bound the memory.
    """
    asked = rows[one].double()
    parts = (part.double() for part in rows.split(BLOCK_ROWS))
    found = (p @ asked / (p.norm(dim=1) * asked.norm()).clamp_min(1e-12) for p in parts)
    return torch.cat([part.float() for part in found])
