"""The Python face of a trained recommender: questions and answers in the caller's own ids."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from mgformer.data.catalog import open_dataset
from mgformer.data.dataset import read_dataset
from mgformer.data.ids import ExternalId, Ids
from mgformer.errors import ConfigError, DataError, UnknownIdError
from mgformer.ranking.scorers import DotScorer, Scorer, cosines
from mgformer.ranking.topk import TopK, top_k
from mgformer.recommend.answer import Answer, History, Recommendation, Source
from mgformer.runs.bundle import Bundle
from mgformer.runs.bundle_files import load_bundle, save_bundle
from mgformer.runs.config import DEFAULT_MODEL, build_config
from mgformer.runs.refit import refit
from mgformer.runs.train import train

if TYPE_CHECKING:
    import pandas as pd

ANSWERED_TOGETHER = 1 << 10
"""Users whose lists are made at a time where they are taken one by one."""


class Recommender:
    """Recommendations, similar items and users, and reasons, from a trained bundle."""

    def __init__(self, bundle: Bundle) -> None:
        self.bundle = bundle

    @classmethod
    def fit(
        cls,
        data: "str | Path | pl.DataFrame | pd.DataFrame | tuple[Any, ...]",
        model: str = DEFAULT_MODEL,
        *,
        seed: int = 0,
        options: Mapping[str, Any] | None = None,
        **sections: Mapping[str, Any],
    ) -> "Recommender":
        """Train a model on interactions.

        Args:
            data: A file, a folder, a catalog name, a data frame, or arrays (users, items, …).
            model: Its name.
            seed: Of the split and the model.
            options: Of the model, such as {"dim": 64}.
            sections: Of the other parts, such as split={"kind": "time"}, train={"epochs": 20}.
        """
        described = {"model": {"name": model, **(options or {})}, "seed": seed, **sections}
        if isinstance(data, str | Path):
            config = build_config({**described, "dataset": str(data)})
            return cls(train(config, open_dataset(data, config.data)))
        config = build_config({**described, "dataset": "data"})
        return cls(train(config, read_dataset(data, config.data)))

    @classmethod
    def load(cls, folder: str | Path) -> "Recommender":
        """Load what `mgformer train`, or `save`, has written."""
        return cls(load_bundle(Path(folder)))

    def refit(self) -> "Recommender":
        """Return it trained once more on everything, held-out pairs too: for use, not for tests."""
        return Recommender(refit(self.bundle))

    def save(self, folder: str | Path) -> None:
        """Write the recommender to a folder, replacing the one there, if any, in one step."""
        save_bundle(self.bundle, Path(folder))

    def recommend(
        self,
        users: Iterable[ExternalId],
        k: int = 20,
        *,
        exclude_seen: bool = True,
        candidates: Iterable[ExternalId] | None = None,
        exclude: Iterable[ExternalId] = (),
    ) -> pl.DataFrame:
        """Return the columns user, rank, item, name (if items have names) and score.

        Args:
            users: Users of the training data.
            k: Items for each.
            exclude_seen: Leave out what a user has already.
            candidates: Items to choose from; all if not given.
            exclude: Items never to recommend; those that are not known never are.
        """
        numbers = self.numbers_of(users)
        found, _ = self.rank(
            numbers,
            k,
            exclude_seen=exclude_seen,
            candidates=self._candidates(candidates),
            exclude=self.excluded_numbers(exclude),
        )
        return self.table_of(numbers, found)

    def answers(
        self,
        users: Iterable[ExternalId],
        k: int = 20,
        *,
        exclude_seen: bool = True,
        candidates: Iterable[ExternalId] | None = None,
        exclude: Iterable[ExternalId] = (),
    ) -> Iterator[Answer]:
        """Yield what `recommend` returns, user by user, with where it comes from.

        Lists are made as they are taken: those of everybody need not fit into memory.
        """
        numbers, chosen = self.numbers_of(users), self._candidates(candidates)
        banned = self.excluded_numbers(exclude)
        for start in range(0, len(numbers), ANSWERED_TOGETHER):
            block = numbers[start : start + ANSWERED_TOGETHER]
            found, sources = self.rank(
                block, k, exclude_seen=exclude_seen, candidates=chosen, exclude=banned
            )
            for row, number in enumerate(block):
                yield self.answer(self.bundle.users.values[int(number)], found, row, sources[row])

    def recommend_for(
        self,
        history: Iterable[ExternalId],
        k: int = 20,
        *,
        user: ExternalId | None = None,
        exclude_seen: bool = True,
        candidates: Iterable[ExternalId] | None = None,
        exclude: Iterable[ExternalId] = (),
    ) -> Answer:
        """Answer for somebody known by the items of `history`; nothing is trained.

        Items of which the model has no training pair are passed over; if no other is left, the
        answer is what is popular.

        Args:
            history: Items.
            k: How many to recommend.
            user: A user of the training data who has taken these items since: to be added to what
                the user had.
            exclude_seen: Leave out the items of the history.
            candidates: Items to choose from; all if not given.
            exclude: Items never to recommend; those that are not known never are.
        """
        somebody = self.history_of(history, user)
        found, (source,) = self.rank_histories(
            self.rows_of([somebody.telling]),
            self.rows_of([somebody.owned]),
            k,
            exclude_seen=exclude_seen,
            candidates=self._candidates(candidates),
            exclude=self.excluded_numbers(exclude),
        )
        return self.answer(somebody.user, found, 0, source, somebody.unknown)

    def similar_items(self, item: ExternalId, k: int = 20) -> pl.DataFrame:
        """Return the items most like an item: item, name (if items have names), score.

        There are fewer than k where other items have nothing in common with it, by the model: a
        score that is not above zero. Of items that are not in train nothing can be said.
        """
        self._check_compares("items")
        number, trained = self._number_of_item(item), self.bundle.item_degrees > 0
        scores = self.bundle.scorer.similarities(number).numpy()
        scores = np.where(trained & trained[number], scores, np.float32(0))
        items, scores = _highest(scores, k, without=number)
        return self._named(items).with_columns(score=pl.Series(scores))

    def similar_users(self, user: ExternalId, k: int = 20) -> pl.DataFrame:
        """Return the users most like a user: user, score (a cosine above zero)."""
        self._check_compares("users")
        number = int(self.numbers_of([user])[0])
        scorer = self.bundle.complete_scorer
        if isinstance(scorer, DotScorer):
            scores = cosines(scorer.users[:, : scorer.num_varying], number).numpy()
        else:
            matrix = self.bundle.known
            common = (matrix @ matrix[[number]].T).toarray()[:, 0]
            lengths = np.sqrt(np.diff(matrix.indptr))
            scores = common / np.maximum(lengths * lengths[number], 1e-12)
        users, values = _highest(scores.astype(np.float32), k, without=number)
        return pl.DataFrame({"user": self.bundle.users.decode(users), "score": values})

    def embed_user(self, history: Iterable[ExternalId]) -> NDArray[np.float32]:
        """Return the vector of somebody known by items; its product with item vectors ranks."""
        scorer = self.bundle.scorer
        if not isinstance(scorer, DotScorer):
            raise ConfigError(
                f"{self.bundle.record.model} has no vectors: it compares items with items;"
                " train a model with embeddings, such as mgformer"
            )
        somebody = self.history_of(history)
        if not len(somebody.telling):
            raise DataError(
                f"no item of the history is known: {_listed(somebody.unknown)}; nothing to embed"
            )
        row = self.rows_of([somebody.telling])
        vector: NDArray[np.float32] = scorer.fold_in(row).users[0].numpy()
        return vector

    def explain(self, user: ExternalId, item: ExternalId) -> pl.DataFrame:
        """Return what each of a user's items adds to the score of an item, most first.

        The columns are item, name (if items have names) and weight. It is the score of the user as
        solved for from these items, which for a user of the training data ranks alike, not equal.
        """
        number = int(self.numbers_of([user])[0])
        own = _row(self.bundle.known, number)
        return self.explain_history(self.bundle.items.decode(own).to_list(), item)

    def explain_history(self, history: Iterable[ExternalId], item: ExternalId) -> pl.DataFrame:
        """Return what `explain` does, for somebody known by the items of `history`."""
        own = self.history_of(history).telling
        items = np.array([self._number_of_item(item)])
        weights = self.bundle.scorer.contributions(own, items)[:, 0]
        order = np.argsort(-weights, kind="stable")
        return self._named(own[order]).with_columns(weight=pl.Series(weights[order]))

    def history_of(self, history: Iterable[ExternalId], user: ExternalId | None = None) -> History:
        """Return what somebody has: the items of a history and, if given, those of a user."""
        listed = _several("history", history)
        numbers = self.bundle.items.encode(listed)
        learned = (numbers >= 0) & (self.bundle.item_degrees[numbers] > 0)
        unknown = tuple(item for item, known in zip(listed, learned, strict=True) if not known)
        owned = numbers[numbers >= 0]
        if user is not None:
            number = int(self.numbers_of([user])[0])
            user = self.bundle.users.values[number]
            owned = np.concatenate([owned, _row(self.bundle.known, number)])
        owned = np.unique(owned)
        return History(owned[self.bundle.item_degrees[owned] > 0], owned, unknown, user)

    def rows_of(self, histories: Sequence[NDArray[np.int32]]) -> sp.csr_array:
        """Return histories, by number, as rows of a matrix [n, I]."""
        items = np.concatenate(histories)
        ends = np.cumsum([0, *map(len, histories)], dtype=np.int32)
        shape = (len(histories), self.bundle.train.num_items)
        return sp.csr_array((np.ones(len(items), np.float32), items, ends), shape=shape)

    def numbers_of(self, users: Iterable[ExternalId]) -> NDArray[np.int32]:
        """Return internal numbers of users; the first unknown one is refused with suggestions."""
        listed = _several("users", users)
        numbers = self.bundle.users.encode(listed)
        unknown = np.flatnonzero(numbers < 0)
        if len(unknown):
            more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
            raise _unknown("user", self.bundle.users, listed[int(unknown[0])], more)
        return numbers

    def candidate_numbers(self, items: Iterable[ExternalId]) -> NDArray[np.int32]:
        """Return internal numbers of items to choose from; the first unknown one is refused."""
        listed = _several("candidates", items)
        numbers = self.bundle.items.encode(listed)
        unknown = np.flatnonzero(numbers < 0)
        if len(unknown):
            raise _unknown("item", self.bundle.items, listed[int(unknown[0])])
        return numbers

    def excluded_numbers(self, items: Iterable[ExternalId]) -> NDArray[np.int32]:
        """Return internal numbers of items never to recommend; unknown ones never would be."""
        numbers = self.bundle.items.encode(_several("exclude", items))
        return numbers[numbers >= 0]

    def _candidates(self, items: Iterable[ExternalId] | None) -> NDArray[np.int32] | None:
        return None if items is None else self.candidate_numbers(items)

    def rank(
        self,
        numbers: NDArray[np.int32],
        k: int,
        *,
        exclude_seen: bool = True,
        candidates: NDArray[np.int32] | None = None,
        exclude: NDArray[np.int32] | Sequence[int] = (),
    ) -> tuple[TopK, list[Source]]:
        """Rank for users by number; those without training pairs are folded in by their items."""
        bundle = self.bundle
        seen = bundle.known if exclude_seen else None
        found = top_k(bundle.scorer, numbers, k, seen=seen, candidates=candidates, exclude=exclude)
        sources: list[Source] = ["model"] * len(numbers)
        strangers = np.flatnonzero(bundle.train.indptr[numbers + 1] == bundle.train.indptr[numbers])
        if len(strangers):
            asked = numbers[strangers]
            (found.items[strangers], found.scores[strangers]), others = self.rank_histories(
                sp.csr_array(bundle.trained_items[asked]),
                sp.csr_array(bundle.known[asked]),
                k,
                exclude_seen=exclude_seen,
                candidates=candidates,
                exclude=exclude,
            )
            for place, source in zip(strangers, others, strict=True):
                sources[place] = source
        return found, sources

    def rank_histories(
        self,
        telling: sp.csr_array,
        owned: sp.csr_array,
        k: int,
        *,
        exclude_seen: bool = True,
        candidates: NDArray[np.int32] | None = None,
        exclude: NDArray[np.int32] | Sequence[int] = (),
    ) -> tuple[TopK, list[Source]]:
        """Rank for people by what they have, rows of [n, I]; what is popular if nothing is telling.

        Args:
            telling: Items by which they are known.
            owned: Items that `exclude_seen` leaves out.
            k: Items for each.
            exclude_seen: Leave out what they have.
            candidates: Numbers of the items to choose from; all if not given.
            exclude: Numbers of items never to recommend.
        """
        people, seen = np.arange(telling.shape[0]), owned if exclude_seen else None
        known = np.diff(telling.indptr) > 0
        folded = self.bundle.scorer.fold_in(telling)
        found = top_k(folded, people, k, seen=seen, candidates=candidates, exclude=exclude)
        if not known.all():
            popular, nobody = self._popularity(len(people)), people[~known]
            found.items[nobody], found.scores[nobody] = top_k(
                popular, nobody, k, seen=seen, candidates=candidates, exclude=exclude
            )
        return found, ["history" if one else "popularity" for one in known]

    def table_of(self, numbers: NDArray[np.int32], found: TopK) -> pl.DataFrame:
        """Return the lists found for users by number as one table, best first."""
        kept = found.items >= 0
        rows, ranks = np.nonzero(kept)
        return pl.DataFrame(
            {
                "user": self.bundle.users.decode(numbers[rows]),
                "rank": pl.Series(ranks + 1, dtype=pl.Int32),
                **self._named(found.items[kept]).to_dict(),
                "score": found.scores[kept],
            }
        )

    def warm_up(self) -> None:
        """Prepare what answers share, so that the first one does not have to wait for it."""
        self.bundle.users.prepare()
        self.bundle.items.prepare()
        items = self.bundle.items.values[:1].to_list()
        if items:
            self.recommend_for(items, 1)
        list(self.answers(self.bundle.users.values[:1].to_list(), 1))

    def items_of(self, user: int) -> pl.DataFrame:
        """Return what a user, by number, has: item and, if items have names, name."""
        return self._named(_row(self.bundle.known, user))

    def liked(self, user: int, most: int) -> list[str]:
        """Return what a user, by number, already has: names, or ids where there are none."""
        return [
            self.bundle.name_of(i) or str(self.bundle.items.values[int(i)])
            for i in _row(self.bundle.known, user)[:most]
        ]

    def _popularity(self, num_users: int) -> Scorer:
        return DotScorer(torch.ones(num_users, 1), self._counts)

    @cached_property
    def _counts(self) -> torch.Tensor:
        return torch.from_numpy(self.bundle.item_degrees).float()[:, None]

    def _check_compares(self, what: str) -> None:
        """Refuse to compare along a single channel, where everything is alike."""
        scorer = self.bundle.scorer
        if isinstance(scorer, DotScorer) and scorer.num_varying < 2:
            raise ConfigError(
                f"{self.bundle.record.model} cannot tell which {what} are alike: it has one"
                " number for each; train another model, such as mgformer"
            )

    def _number_of_item(self, item: ExternalId) -> int:
        return int(self.candidate_numbers([item])[0])

    def _named(self, items: NDArray[np.integer]) -> pl.DataFrame:
        """Return the columns item and, if items have names, name."""
        columns = {"item": self.bundle.items.decode(items)}
        if self.bundle.item_names is not None:
            columns["name"] = self.bundle.item_names[items]
        return pl.DataFrame(columns)

    def answer(
        self,
        user: ExternalId | None,
        found: TopK,
        row: int,
        source: Source,
        unknown: tuple[ExternalId, ...] = (),
        *,
        k: int | None = None,
    ) -> Answer:
        """Return one row of what was found, at most k items of it, in the caller's ids."""
        items = [
            Recommendation(self.bundle.items.values[int(i)], self.bundle.name_of(int(i)), float(s))
            for i, s in zip(found.items[row, :k], found.scores[row, :k], strict=True)
            if i >= 0
        ]
        return Answer(user, items, source, unknown)


def _row(matrix: sp.csr_array, number: int) -> NDArray[np.int32]:
    found: NDArray[np.int32] = matrix.indices[matrix.indptr[number] : matrix.indptr[number + 1]]
    return found


def _highest(
    scores: NDArray[np.float32], k: int, without: int
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return places and values of the k highest scores above zero but one, ties by place."""
    if k < 1:
        raise ConfigError(f"k must be at least 1, got {k}")
    order = np.argsort(-scores, kind="stable")
    order = order[(order != without) & (scores[order] > 0)][:k]
    return order, scores[order]


def _several(what: str, ids: Iterable[ExternalId]) -> list[ExternalId]:
    """Return ids as a list; a single one, which would be read letter by letter, is refused."""
    if isinstance(ids, str | int):
        raise ConfigError(f"{what}: got {ids!r} alone, expected several ids, such as [{ids!r}]")
    return list(ids)


def _unknown(kind: str, ids: Ids, asked: ExternalId, more: str = "") -> UnknownIdError:
    return UnknownIdError(
        f"unknown {kind} {str(asked)!r}{more}: not among the {len(ids):,} {kind}s"
        " of the training data",
        lambda: ids.closest(asked),
    )


def _listed(ids: Sequence[ExternalId], most: int = 5) -> str:
    shown = ", ".join(map(str, ids[:most])) or "it is empty"
    return f"{shown}, …" if len(ids) > most else shown
