"""Approximate top-k for large catalogs: an index proposes items, and exact scores order them.

The index (faiss, an inverted file) groups items into cells and searches those nearest to a user. If
histories add to scores, the items to which they add most are proposed too. The proposals are
scored as `topk.py` scores them. So a list has exact scores in exact order. It can only miss an item
that was not proposed. How often that happens is measured when the index is built.

A list is exact, and all items are scored, where an index cannot help: with given candidates, for
long lists, for scorers without vectors, and for users with too few proposals that they do not have
and that pass the filters.

Shapes: I items, D channels, n users, m proposals.
"""

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from mgformer.device import on_host
from mgformer.errors import ConfigError
from mgformer.graph.sparse import top_per_row
from mgformer.ranking.exact import scores_at
from mgformer.ranking.scorers import DotScorer, HistoryScorer, Scorer, SumScorer, vectors_of
from mgformer.ranking.topk import TopK, top_k

PROPOSED = 5
"""The index and the histories each propose so many times k items."""
MOST_K = 100
"""Longer lists are exact."""
MOST_SEEN = 1_000
"""Further proposals make up for so many items that a user has."""
ENOUGH = 0.99
"""Recall@20 that the search is made wide enough for."""
CELLS, PER_CELL, ROUNDS = 4, 40, 10
"""Cells per square root of the number of items; sampled items per cell, and rounds, of the
clustering."""
SAMPLED_USERS, SAMPLE_K = 200, 20


def missing_faiss() -> ConfigError:
    """Return the error for a computer without faiss."""
    return ConfigError("--index ann needs an extra: pip install 'mgformer[ann]'")


@dataclass(eq=False)
class Index:
    """Proposes items for the vectors of users."""

    items: Tensor
    """[I, D] the vectors in the index; it serves scorers with these."""
    searched: Any
    """The index of faiss."""
    recall: float = 0.0
    """Share of the exact top 20 of some users that is found."""
    seconds: float = 0.0
    """How long it took to build and measure."""

    @property
    def described(self) -> str:
        """The index in a few words."""
        return f"IVF, {self.searched.nprobe} of {self.searched.nlist} cells"

    def serves(self, scorer: Scorer) -> bool:
        """Return whether the vectors of a scorer are those of the index."""
        vectors = vectors_of(scorer)
        return vectors is not None and vectors.items is self.items and is_indexable(scorer)

    def top_k(
        self,
        scorer: Scorer,
        users: ArrayLike,
        k: int,
        *,
        seen: sp.csr_array | None = None,
        candidates: ArrayLike | None = None,
        exclude: ArrayLike = (),
        allowed: NDArray[np.bool_] | None = None,
    ) -> TopK:
        """Return the `k` best items of each user, with the arguments of `topk.top_k`."""
        asked = np.ascontiguousarray(users, dtype=np.int64).reshape(-1)
        choice: dict[str, Any] = {"candidates": candidates, "exclude": exclude, "allowed": allowed}
        helps = candidates is None and 1 <= k <= min(MOST_K, scorer.num_items)
        if not helps or not self.serves(scorer):
            return top_k(scorer, asked, k, seen=seen, **choice)
        found = self._among_proposals(scorer, asked, k, seen, exclude, allowed)
        left = np.flatnonzero(found.items[:, -1] < 0)
        if len(left):
            exact = top_k(scorer, asked[left], k, seen=seen, **choice)
            width = exact.items.shape[1]  # filters may leave fewer than k items to choose from
            found.items[left, :width], found.scores[left, :width] = exact
        return found

    def _among_proposals(
        self,
        scorer: Scorer,
        users: NDArray[np.int64],
        k: int,
        seen: sp.csr_array | None,
        exclude: ArrayLike,
        allowed: NDArray[np.bool_] | None,
    ) -> TopK:
        """Return the best of the proposals; rows with fewer than k are empty."""
        vectors = vectors_of(scorer)
        assert vectors is not None
        own = vectors.users[users].float().numpy()
        none = np.zeros(0, dtype=np.int32)
        has = [
            none if seen is None else seen.indices[slice(*seen.indptr[[u, u + 1]])] for u in users
        ]
        longest = min(max(map(len, has), default=0), MOST_SEEN)
        num = min(PROPOSED * k + longest, scorer.num_items)
        near = self.searched.search(own, num)[1]
        added = best = None
        if isinstance(scorer, SumScorer):
            added = sparse_scores(scorer.history, users)
            best = top_per_row(added, num)
        items = np.full((len(users), k), -1, dtype=np.int32)
        scores = np.full((len(users), k), -np.inf, dtype=np.float32)
        banned = np.asarray(exclude, dtype=np.int64)
        table = self.items.float().numpy()
        for row in range(len(users)):
            proposed = near[row][near[row] >= 0]
            if best is not None:
                of_history = best.indices[best.indptr[row] : best.indptr[row + 1]]
                proposed = np.concatenate([proposed, of_history])
            left = np.setdiff1d(proposed, np.concatenate([has[row], banned]))  # ascending
            if allowed is not None:
                left = left[allowed[left]]
            if len(left) < k:
                continue
            exact = scores_at(own[row : row + 1], table, left[None], 1 << 28)[0]
            if added is not None:
                exact += _at(added, row, left)
            order = np.argsort(-exact, kind="stable")[:k]
            items[row], scores[row] = left[order], exact[order]
        return TopK(items, scores)


def is_indexable(scorer: Scorer) -> bool:
    """Return whether a scorer has vectors, and what histories add is sparse."""
    vectors = vectors_of(scorer)
    if vectors is None or not on_host(vectors.items):
        return False
    if not isinstance(scorer, SumScorer):
        return True
    history = scorer.history
    dense = history.through is not None or history.left is not None
    return isinstance(history.weights, sp.csr_array) and not dense


def sparse_scores(history: HistoryScorer, users: NDArray[np.int64]) -> sp.csr_array:
    """Return what sparse weights add to the scores of users [n, I], with sorted columns."""
    added = sp.csr_array(history.histories[users] @ history.weights)
    if history.item_factors is not None:
        added.data *= history.item_factors.numpy()[added.indices]
    added.sort_indices()
    return added


def _at(matrix: sp.csr_array, row: int, columns: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return entries of a row, 0 where there are none."""
    own = slice(matrix.indptr[row], matrix.indptr[row + 1])
    known, values = matrix.indices[own], matrix.data[own]
    if not len(known):
        return np.zeros(len(columns), dtype=np.float32)
    places = np.minimum(np.searchsorted(known, columns), len(known) - 1)
    return np.where(known[places] == columns, values[places], np.float32(0)).astype(np.float32)


def build_index(
    scorer: Scorer, seen: sp.csr_array | None = None, *, enough: float = ENOUGH, seed: int = 0
) -> Index:
    """Return an index of the items, wide enough for a recall on some users of the scorer.

    Args:
        scorer: It must be indexable.
        seen: [U, I] pairs that are not returned.
        enough: Recall@20 to reach. If no width reaches it, all cells are searched.
        seed: Seed of the clustering.
    """
    try:
        import faiss
    except ImportError:
        raise missing_faiss() from None
    began = time.perf_counter()
    vectors = vectors_of(scorer)
    assert isinstance(vectors, DotScorer)
    rows = np.ascontiguousarray(vectors.items.float().numpy())
    cells = max(1, min(int(CELLS * len(rows) ** 0.5), len(rows) // PER_CELL))
    searched: Any = faiss.index_factory(
        rows.shape[1], f"IVF{cells},Flat", faiss.METRIC_INNER_PRODUCT
    )
    searched.cp.niter, searched.cp.seed = ROUNDS, seed
    sample = np.random.default_rng(seed).permutation(len(rows))[: PER_CELL * cells]
    searched.train(rows[np.sort(sample)])
    searched.add(rows)
    index = Index(vectors.items, searched)
    users = np.unique(
        np.linspace(0, scorer.num_users - 1, min(SAMPLED_USERS, scorer.num_users)).astype(np.int64)
    )
    k = min(SAMPLE_K, scorer.num_items)
    exact = top_k(scorer, users, k, seen=seen).items
    width = 8
    while True:
        searched.nprobe = min(width, cells)
        index.recall = recall_of(index.top_k(scorer, users, k, seen=seen).items, exact)
        if index.recall >= enough or width >= cells:
            break
        width *= 2
    index.seconds = time.perf_counter() - began
    return index


def recall_of(found: NDArray[np.int32], exact: NDArray[np.int32]) -> float:
    """Return the share of the items of exact lists that are found."""
    hits = sum(
        len(np.intersect1d(one[one >= 0], other)) for one, other in zip(found, exact, strict=True)
    )
    return hits / max(1, int((exact >= 0).sum()))
