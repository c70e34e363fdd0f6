"""Exact top-k: every item is scored, seen items are left out, ties go to the smaller item number.

A matrix product gives the scores of a tile of users × items. The best of each row are found through
the maxima of blocks of columns, which costs one pass over the tile instead of a sort. A product
rounds differently for different tile shapes. So the best k, and some slack, are scored again pair
by pair in double precision and ordered by that. A row is accepted only if no other item could
belong to it. Other rows, which have many equal scores, are sorted in full. So the result depends on
the model alone, and not on tiles, batches or threads.

Shapes: B users of a tile, T items of a tile, n = k + slack candidates, D channels.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from mgformer.device import HOST, on_host
from mgformer.errors import ConfigError
from mgformer.progress import phase
from mgformer.ranking.best import best_columns, merge, settle, sort_row
from mgformer.ranking.devices import device_of
from mgformer.ranking.exact import (
    SLACK,
    of_addition,
    rank_all,
    rank_one,
    rounding,
    scores_at,
    scores_on_device,
)
from mgformer.ranking.scorers import DotScorer, HistoryScorer, Scorer, SumScorer, vectors_of

MAX_USERS = 512  # users of a tile: more would not make a matrix product faster
HISTORY_USERS = 256  # users of a tile that histories score on the processor: it stays in the cache
FEW_USERS = 4  # up to so many users are ranked one by one: a tile would not be faster
SOME_USERS = 64  # up to so many users are scored from transposed items, up to twice as fast
FEW_ALLOWED = 0.05  # up to this share of the items, the vectors of allowed items are gathered
CANDIDATE_BYTES = 80  # per candidate, while candidates are merged and ordered
NOTHING = -torch.inf


class TopK(NamedTuple):
    """The best items of each user, best first; item -1 with score -inf where fewer are left."""

    items: NDArray[np.int32]  # [users, k]; k is at most the number of items to choose from
    scores: NDArray[np.float32]  # [users, k]


def top_k(
    scorer: Scorer,
    users: ArrayLike,
    k: int,
    *,
    seen: sp.csr_array | None = None,
    candidates: ArrayLike | None = None,
    exclude: ArrayLike = (),
    allowed: NDArray[np.bool_] | None = None,
    memory_mb: int = 256,
) -> TopK:
    """Return the `k` best items of each user.

    Args:
        scorer: The trained recommender.
        users: Numbers of the users to rank for.
        k: Length of a list; it may exceed the number of items.
        seen: [U, I] pairs that are not returned, indexed like the users of the scorer.
        candidates: Numbers of the items to choose from; all by default.
        exclude: Numbers of items that are not returned to any user.
        allowed: [I] which items may be returned; all by default.
        memory_mb: Bound on the working memory, in megabytes.
    """
    if k < 1:
        raise ConfigError(f"k must be at least 1, got {k}")
    if memory_mb < 1:
        raise ConfigError(f"memory_mb must be at least 1, got {memory_mb}")
    asked = np.ascontiguousarray(users, dtype=np.int64).reshape(-1)
    banned = np.unique(np.asarray(exclude, dtype=np.int64))
    choice, barred = None, None
    if candidates is not None:
        choice = np.setdiff1d(np.asarray(candidates, dtype=np.int64), banned)
        banned = banned[:0]
        if allowed is not None:
            choice = choice[allowed[choice]]
    elif allowed is not None:
        if np.count_nonzero(allowed) <= FEW_ALLOWED * len(allowed):
            choice = np.setdiff1d(np.flatnonzero(allowed), banned, assume_unique=True)
            banned = banned[:0]
        else:
            barred = ~allowed
            barred[banned] = True
            if not _one_by_one(scorer, len(asked)):
                banned, barred = np.flatnonzero(barred), None
    k = min(k, scorer.num_items if choice is None else len(choice))
    items = np.full((len(asked), k), -1, dtype=np.int32)
    scores = np.full((len(asked), k), -np.inf, dtype=np.float32)
    if not k:
        return TopK(items, scores)
    task = _Task(asked, k, seen, choice, banned, memory_mb * 1_000_000, barred)
    with torch.no_grad(), phase("ranking", len(asked)) as advance:
        for start, best, values in _parts(scorer, task):
            stop = start + len(best)
            numbers, exact = best.cpu().numpy(), values.cpu().numpy()
            found = numbers if choice is None else choice[numbers]
            items[start:stop] = np.where(np.isneginf(exact), -1, found)
            scores[start:stop] = exact
            advance(len(best))
    return TopK(items, scores)


class _Task(NamedTuple):
    """The checked arguments of a ranking."""

    users: NDArray[np.int64]
    k: int
    seen: sp.csr_array | None
    choice: NDArray[np.int64] | None
    banned: NDArray[np.int64]  # ascending; empty if there is a choice, which leaves them out
    memory: int  # bytes
    barred: NDArray[np.bool_] | None = None  # [I] banned items as a mask, if users are few


Part = tuple[int, Tensor, Tensor]  # position of the first user of the part, items, scores


def _one_by_one(scorer: Scorer, num_users: int) -> bool:
    """Return whether so few users are ranked one by one, if they choose from all items."""
    vectors = vectors_of(scorer)
    return vectors is not None and num_users <= FEW_USERS and on_host(vectors.items)


def _parts(scorer: Scorer, task: _Task) -> Iterator[Part]:
    vectors = vectors_of(scorer)
    if vectors is None:
        return _rank(scorer, task)
    history = scorer.history if isinstance(scorer, SumScorer) else None
    if task.choice is None and _one_by_one(scorer, len(task.users)):
        return _rank_one_by_one(vectors, history, task)
    return _rank_dot(vectors, history, task)


def _rank_one_by_one(
    scorer: DotScorer, history: HistoryScorer | None, task: _Task
) -> Iterator[Part]:
    seen, own, added = task.seen, np.zeros(0, dtype=np.int32), None
    for place, user in enumerate(task.users.tolist()):
        if seen is not None:
            own = seen.indices[seen.indptr[user] : seen.indptr[user + 1]]
        masked = np.concatenate([own, task.banned]) if len(task.banned) else own
        if history is not None:
            added = history.scores(torch.tensor([user], device=HOST))[0].numpy()
        best, exact = rank_one(scorer, user, masked, task.k, task.memory // 4, added, task.barred)
        yield place, torch.from_numpy(best)[None], torch.from_numpy(exact)[None]


class _Found(NamedTuple):
    """What was found for a batch of users, on the device of the scorer."""

    start: int
    best: Tensor  # [B, k]
    exact: Tensor  # [B, k]
    is_unsure: Tensor  # [B]
    vectors: Tensor  # [B, D]
    added: Tensor | None  # [B, I] what histories add
    masked: tuple[Tensor, Tensor]  # places in the batch and columns, in the processor's memory


def _rank_dot(scorer: DotScorer, history: HistoryScorer | None, task: _Task) -> Iterator[Part]:
    """Rank by products of tiles, plus what histories add, and order the best pair by pair."""
    columns = None if task.choice is None else torch.from_numpy(task.choice).to(scorer.items.device)
    items = (scorer.items if columns is None else scorer.items[columns]).float().contiguous()
    for found in _dot_tiles(scorer, items, columns, history, task):
        best, exact, (places, masked) = found.best, found.exact, found.masked
        for row in found.is_unsure.nonzero()[:, 0].tolist():
            own = np.concatenate([masked[places == row].numpy(), task.banned])
            extra = None if found.added is None else found.added[row].cpu().numpy()
            vector = found.vectors[row].cpu().numpy()
            full = rank_all(vector, items.cpu().numpy(), own, task.k, extra)
            best[row], exact[row] = (torch.from_numpy(part).to(best.device) for part in full)
        yield found.start, best, exact


def _dot_tiles(
    scorer: DotScorer,
    items: Tensor,
    columns_of: Tensor | None,
    history: HistoryScorer | None,
    task: _Task,
) -> Iterator[_Found]:
    """Yield what is found without waiting for the device; rows may be uncertain."""
    users, k, seen, choice, banned, memory, _ = task
    device, by_channel = items.device, None
    if choice is None and len(users) <= SOME_USERS and on_host(items):
        by_channel = scorer.by_channel
    num_items = len(items)
    n = min(k + SLACK, num_items)
    # The scores of a tile take half of the memory, its candidates a quarter, and the rows by which
    # candidates are scored again another quarter. A single user may exceed it with a long list.
    of_a_user = max(8 * min(num_items, 16_384), 4 * CANDIDATE_BYTES * n)
    if history is not None:
        of_a_user = max(of_a_user, 16 * scorer.num_items)  # histories add to whole rows
    most = HISTORY_USERS if history is not None and on_host(items) else MAX_USERS
    rows = max(1, min(most, len(users), memory // of_a_user))
    columns = min(num_items, max(n, memory // (8 * rows)))
    tile = torch.empty(rows, columns, device=device)
    rough = _Rough(scorer, items, by_channel, banned, tile, columns, n, memory // 4)
    for start in range(0, len(users), rows):
        batch = users[start : start + rows]
        numbers = torch.from_numpy(batch)
        vectors = scorer.users[numbers.to(device)].float()
        added = None
        if history is not None:
            added = history.scores(numbers)
            added = added if columns_of is None else added[:, columns_of]
        masked = _pairs(seen, batch, choice)
        yield _Found(start, *rough.rank(vectors, added, masked, k), vectors, added, masked)


class _Rough(NamedTuple):
    """What all tiles of a ranking share. Ranking a tile never waits for the device."""

    scorer: DotScorer
    items: Tensor  # [I, D] to choose from
    by_channel: NDArray[np.float32] | None  # [D, I] the same, for a few users on the processor
    banned: NDArray[np.int64]
    tile: Tensor  # [rows, columns] reused for all tiles
    columns: int  # of a tile
    n: int
    memory: int  # bytes for the rows by which candidates are scored again

    def rank(
        self, vectors: Tensor, added: Tensor | None, masked: tuple[Tensor, Tensor], k: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the k best items and scores of users [B, k], and which users are uncertain [B].

        `added` [B, I] is what histories add. `masked` are pairs of a place in the batch and a
        column, in the memory of the processor.
        """
        num_users, num_items = len(vectors), len(self.items)
        found: tuple[Tensor, Tensor] | None = None
        for left in range(0, num_items, self.columns):
            part = self.items[left : left + self.columns]
            scores = self.tile[:num_users, : len(part)]
            if self.by_channel is None:
                torch.mm(vectors, part.T, out=scores)
            else:
                turned = self.by_channel[:, left : left + len(part)]
                np.matmul(vectors.numpy(), turned, out=scores.numpy())
            if added is not None:
                scores += added[:, left : left + len(part)]
            _mask(scores, masked, left)
            if len(self.banned):
                scores[:, _within(self.banned, left, len(part)).to(scores.device)] = NOTHING
            best, values = best_columns(scores, self.n)
            found = merge(found, (best + left, values), self.n)
        assert found is not None
        best, values = found
        if on_host(best):
            exact = torch.from_numpy(
                scores_at(vectors.numpy(), self.items.numpy(), best.numpy(), self.memory)
            )
        else:
            exact = scores_on_device(vectors, self.items, best, self.memory)
        lengths = vectors.norm(dim=1)
        margin = rounding(self.scorer) * lengths
        if added is not None:
            exact += added.gather(1, best)
            margin += of_addition(self.scorer, lengths, added.abs().amax(1))
        exact = torch.where(values.isneginf(), values, exact)
        return settle(best, values, exact, k, margin, num_items)


def _rank(scorer: Scorer, task: _Task) -> Iterator[Part]:
    """Rank with a scorer that returns exact rows, such as history × item-item matrix."""
    users, k, seen, choice, banned, memory, _ = task
    num_items = scorer.num_items if choice is None else len(choice)
    n = min(k + SLACK, num_items)
    of_a_user = max(16 * scorer.num_items, 4 * CANDIDATE_BYTES * n)
    device = device_of(scorer)
    most = HISTORY_USERS if device == HOST else MAX_USERS
    rows = max(1, min(most, len(users), memory // of_a_user))
    for start in range(0, len(users), rows):
        batch = users[start : start + rows]
        scores = scorer.scores(torch.from_numpy(batch))
        if choice is not None:
            scores = scores[:, torch.from_numpy(choice).to(device)]
        _mask(scores, _pairs(seen, batch, choice), 0)
        if len(banned):
            scores[:, torch.from_numpy(banned).to(device)] = NOTHING
        best, values = best_columns(scores, n)
        margin = torch.zeros(len(batch), device=device)
        best, exact, is_unsure = settle(best, values, values, k, margin, num_items)
        for row in is_unsure.nonzero()[:, 0].tolist():
            exact[row], best[row] = sort_row(scores[row], k)
        yield start, best, exact


def _pairs(
    matrix: sp.csr_array | None, rows: NDArray[np.int64], choice: NDArray[np.int64] | None
) -> tuple[Tensor, Tensor]:
    """Return the entries of some rows: positions within `rows`, and within the chosen columns."""
    if matrix is None:
        nobody = torch.from_numpy(np.zeros(0, dtype=np.int64))
        return nobody, nobody
    starts = matrix.indptr[rows]
    counts = matrix.indptr[rows + 1] - starts
    place = np.repeat(np.arange(len(rows)), counts)
    within = np.arange(len(place)) - np.repeat(np.cumsum(counts) - counts, counts)
    columns = matrix.indices[np.repeat(starts, counts) + within]
    if choice is not None:
        found = np.minimum(np.searchsorted(choice, columns), len(choice) - 1)
        chosen = choice[found] == columns
        place, columns = place[chosen], found[chosen]
    return torch.from_numpy(place), torch.from_numpy(columns.astype(np.int64))


def _mask(scores: Tensor, pairs: tuple[Tensor, Tensor], left: int) -> None:
    """Mask the pairs that fall into a tile beginning at column `left`.

    Pairs are in the memory of the processor: which of them fall into the tile is found there.
    """
    rows, columns = pairs
    if len(columns) and (left > 0 or int(columns.max()) >= scores.shape[1]):
        inside = (columns >= left) & (columns < left + scores.shape[1])
        rows, columns = rows[inside], columns[inside] - left
    scores[rows.to(scores.device), columns.to(scores.device)] = NOTHING


def _within(banned: NDArray[np.int64], left: int, width: int) -> Tensor:
    """Return which columns of a tile beginning at `left` are banned."""
    start, stop = np.searchsorted(banned, [left, left + width])
    return torch.from_numpy(banned[start:stop] - left)
