"""The Python face of a trained recommender: questions and answers in the caller's own ids."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from mgformer.bundle import Bundle, load_bundle
from mgformer.data.ids import ExternalId
from mgformer.errors import DataError
from mgformer.ranking.scorers import DotScorer, Scorer
from mgformer.ranking.topk import TopK, top_k

Source = Literal["model", "history", "popularity"]


@dataclass(frozen=True)
class Recommendation:
    """One item for one user."""

    item: ExternalId
    name: str | None
    score: float


@dataclass(frozen=True)
class Answer:
    """What is recommended to one user, best first."""

    user: ExternalId | None
    items: list[Recommendation]
    source: Source
    """model: a user of the training data; history: by given items; popularity: nothing known."""


class Recommender:
    """Top-k lists from a trained bundle."""

    def __init__(self, bundle: Bundle) -> None:
        self.bundle = bundle

    @classmethod
    def load(cls, folder: str | Path) -> "Recommender":
        """Load what `mgformer train` saved."""
        return cls(load_bundle(Path(folder)))

    def recommend(self, users: Sequence[ExternalId], k: int = 20) -> Iterator[Answer]:
        """Yield an answer for each known user; items the user already has are left out."""
        numbers = self.numbers_of(users)
        found, sources = self.rank(numbers, k)
        for row, number in enumerate(numbers):
            yield self._answer(self.bundle.users.values[int(number)], found, row, sources[row])

    def recommend_for(self, history: Sequence[ExternalId], k: int = 20) -> Answer:
        """Answer for somebody who is not in the data, known by the items of `history`.

        Unknown items are passed over; if none is known, the answer is what is popular.
        """
        items = self.bundle.items.encode(history)
        known = np.unique(items[items >= 0])
        shape = (1, self.bundle.train.num_items)
        row = sp.csr_array((np.ones(len(known), np.float32), known, [0, len(known)]), shape=shape)
        if len(known):
            found = top_k(self.bundle.scorer.fold_in(row), [0], k, seen=row)
            return self._answer(None, found, 0, "history")
        return self._answer(None, top_k(self._popularity, [0], k), 0, "popularity")

    def unknown_items(self, history: Sequence[ExternalId]) -> list[ExternalId]:
        """Return the items of a history that the model has never seen."""
        return [i for i, n in zip(history, self.bundle.items.encode(history), strict=True) if n < 0]

    def numbers_of(self, users: Sequence[ExternalId]) -> NDArray[np.int32]:
        """Return internal numbers of users; the first unknown one is refused with suggestions."""
        numbers = self.bundle.users.encode(users)
        unknown = np.flatnonzero(numbers < 0)
        if len(unknown):
            asked = users[int(unknown[0])]
            close = self.bundle.users.closest(asked)
            hint = f" did you mean {', '.join(close)}?" if close else ""
            more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
            raise DataError(
                f"unknown user {str(asked)!r}{more}: not among the {len(self.bundle.users):,} users"
                f" of the training data;{hint} for somebody new use --history item1,item2,…"
            )
        return numbers

    def rank(self, numbers: NDArray[np.int32], k: int) -> tuple[TopK, list[Source]]:
        """Rank for users by number; those without training pairs are folded in by their items."""
        bundle = self.bundle
        trained = np.diff(bundle.train.indptr)[numbers] > 0
        found = top_k(bundle.scorer, numbers, k, seen=bundle.known)
        if not trained.all():
            strangers = np.flatnonzero(~trained)
            histories = sp.csr_array(bundle.known[numbers[strangers]])
            folded = bundle.scorer.fold_in(histories)
            rows = np.arange(len(strangers))
            found.items[strangers], found.scores[strangers] = top_k(folded, rows, k, seen=histories)
        return found, ["model" if t else "history" for t in trained]

    def liked(self, user: int, most: int) -> list[str]:
        """Return what a user, by number, already has: names, or ids where there are none."""
        items = self.bundle.known.indices[
            self.bundle.known.indptr[user] : self.bundle.known.indptr[user + 1]
        ]
        return [
            self.bundle.name_of(i) or str(self.bundle.items.values[int(i)]) for i in items[:most]
        ]

    @property
    def _popularity(self) -> Scorer:
        counts = torch.from_numpy(self.bundle.item_degrees).float()[:, None]
        return DotScorer(torch.ones(1, 1), counts)

    def _answer(self, user: ExternalId | None, found: TopK, row: int, source: Source) -> Answer:
        items = [
            Recommendation(self.bundle.items.values[int(i)], self.bundle.name_of(int(i)), float(s))
            for i, s in zip(found.items[row], found.scores[row], strict=True)
            if i >= 0
        ]
        return Answer(user, items, source)
