"""A trained recommender in Python: lists, similar items and users, and reasons, by your own ids."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from mgformer.data.dataset import open_dataset, read_dataset
from mgformer.data.ids import ExternalId
from mgformer.errors import ConfigError, DataError, MgformerError
from mgformer.models import DEFAULT_MODEL, register
from mgformer.ranking.scorers import cosines, vectors_of
from mgformer.recommend import lists
from mgformer.recommend.answer import Answer
from mgformer.recommend.query import ListOptions, Query, SomeIds, by_time
from mgformer.runs.bundle import Bundle
from mgformer.runs.bundle_files import load_bundle, save_bundle
from mgformer.runs.config import build_config
from mgformer.runs.refit import refit
from mgformer.runs.refresh import read_new, refresh
from mgformer.runs.train import train

if TYPE_CHECKING:
    import pandas as pd

    from mgformer.models.base import Model


class Recommender:
    """A trained model with its data: recommends items, finds similar ones, gives reasons.

    Create one with `fit` or `load`. Methods that recommend take the options of `ListOptions` as
    keywords: `candidates`, `exclude` and `exclude_seen`.
    """

    def __init__(self, bundle: Bundle) -> None:
        self.bundle = bundle

    def __repr__(self) -> str:
        bundle = self.bundle
        sizes = f"{len(bundle.users):,} users, {len(bundle.items):,} items"
        return f"Recommender({bundle.record.model} on {bundle.record.dataset}: {sizes})"

    @classmethod
    def fit(
        cls,
        data: "str | Path | pl.DataFrame | pd.DataFrame | tuple[Any, ...]",
        model: "str | type[Model]" = DEFAULT_MODEL,
        *,
        seed: int = 0,
        options: Mapping[str, Any] | None = None,
        **sections: Mapping[str, Any],
    ) -> "Recommender":
        """Train a model on interactions.

        Args:
            data: A file, a folder, a catalog name, a data frame, or arrays (users, items, …).
            model: The name of a model, or a subclass of `mgformer.models.base.Model`.
            seed: Seed of the split and of the model.
            options: Options of the model, such as {"dim": 64}.
            sections: Options of the other parts, such as split={"kind": "time"} and
                train={"epochs": 20}.
        """
        name = model if isinstance(model, str) else register(model)
        described = {"model": {"name": name, **(options or {})}, "seed": seed, **sections}
        if isinstance(data, str | Path):
            config = build_config({**described, "dataset": str(data)})
            return cls(train(config, open_dataset(data, config.data)))
        config = build_config({**described, "dataset": "data"})
        return cls(train(config, read_dataset(data, config.data)))

    @classmethod
    def load(cls, folder: str | Path, key: bytes | None = None) -> "Recommender":
        """Load a recommender that `mgformer train` or `save` has written.

        If a key is given, a recommender that is not signed with it is refused.
        """
        return cls(load_bundle(Path(folder), key))

    def refit(self) -> "Recommender":
        """Return the model trained on all pairs, held-out pairs too: for use, not for tests."""
        return Recommender(refit(self.bundle))

    def refresh(
        self,
        data: "str | Path | pl.DataFrame | pd.DataFrame | tuple[Any, ...]",
        options: Mapping[str, Any] | None = None,
    ) -> "Recommender":
        """Return the recommender with new interactions; nothing is trained.

        Popularity, trend and histories follow the new interactions. New users get lists by their
        items. Interactions with items that the model has not learned are left out, with a warning;
        `bundle.record.refreshed` counts them.

        Args:
            data: A file, a folder, a catalog name, a data frame, or arrays (users, items, …).
            options: Options of `data` that differ from those of the training, such as
                {"time": "when"}.
        """
        return Recommender(refresh(self.bundle, read_new(self.bundle, data, options)))

    def save(self, folder: str | Path, key: bytes | None = None) -> None:
        """Write the recommender to a folder. An older one in the folder is replaced in one step.

        If a key is given, at least 32 bytes, the recommender is signed with it.
        """
        save_bundle(self.bundle, Path(folder), key)

    def recommend(self, users: SomeIds, k: int = 20, **options: Any) -> pl.DataFrame:
        """Return the best items of one user or several users of the training data.

        The columns are user, rank, item, name (if items have names) and score.
        """
        numbers = lists.numbers_of("user", self.bundle.users, users)
        found, _ = lists.rank_users(self.bundle, numbers, ListOptions(k=k, **options))
        return lists.to_frame(self.bundle, self.bundle.users.decode(numbers), found)

    def recommend_for(
        self,
        history: SomeIds,
        k: int = 20,
        *,
        user: ExternalId | None = None,
        times: Sequence[float] | None = None,
        **options: Any,
    ) -> pl.DataFrame:
        """Return the best items for a new user, who is known by the items of `history`.

        The latest item comes last, unless `times` has a number for each item. If the model was
        trained with times, older items count less. The columns are those of `recommend`. Nothing is
        trained. Items that are not in the training set are ignored; if no other item is left, the
        most popular items are returned. `answer` tells which items were ignored. If `user` is
        given, it is a user of the training data who got the items of `history` later.
        """
        ordered = history if times is None else by_time(history, times)
        own = lists.read_history(self.bundle, ordered, user)
        found, _ = lists.rank_histories(self.bundle, [own], ListOptions(k=k, **options))
        users = pl.Series([own.user], dtype=self.bundle.users.values.dtype)
        return lists.to_frame(self.bundle, users, found)

    def answer(self, query: Query) -> Answer:
        """Answer one query. An answer also tells its source, ignored items and reasons."""
        (answer,) = lists.answer_all(self.bundle, [query])
        if isinstance(answer, MgformerError):
            raise answer
        return answer

    def answers(
        self, users: SomeIds, k: int = 20, *, block_users: int = 1 << 10, **options: Any
    ) -> Iterator[Answer]:
        """Yield an answer for each of many users.

        Lists are made when they are needed, for `block_users` users at a time, so the lists of all
        users do not have to fit into memory.
        """
        wanted = ListOptions(k=k, **options)
        numbers = lists.numbers_of("user", self.bundle.users, users)
        for start in range(0, len(numbers), block_users):
            yield from lists.answer_users(self.bundle, numbers[start : start + block_users], wanted)

    def similar_items(self, item: ExternalId, k: int = 20) -> pl.DataFrame:
        """Return the items most similar to an item: item, name (if items have names), score.

        Only items with a score above zero are returned, which may be fewer than k. Items that are
        not in the training set have no similar items.
        """
        (number,) = lists.numbers_of("item", self.bundle.items, item)
        is_trained = self.bundle.item_degrees > 0
        scores = self.bundle.scorer.similarities(int(number)).numpy()
        scores = np.where(is_trained & is_trained[number], scores, np.float32(0))
        items, scores = self._highest("items", scores, number, k)
        return lists.with_names(self.bundle, items).with_columns(score=pl.Series(scores))

    def similar_users(self, user: ExternalId, k: int = 20) -> pl.DataFrame:
        """Return the users most similar to a user: user, score (a cosine above zero)."""
        (number,) = lists.numbers_of("user", self.bundle.users, user)
        scorer = vectors_of(self.bundle.complete_scorer)
        if scorer is not None:
            scores = cosines(scorer.users[:, : scorer.num_varying], int(number)).numpy()
        else:
            matrix = self.bundle.known
            common = (matrix @ matrix[[number]].T).toarray()[:, 0]
            lengths = np.sqrt(np.diff(matrix.indptr))
            scores = common / np.maximum(lengths * lengths[number], 1e-12)
        users, values = self._highest("users", scores.astype(np.float32), number, k)
        return pl.DataFrame({"user": self.bundle.users.decode(users), "score": values})

    def embed_user(self, history: SomeIds) -> NDArray[np.float32]:
        """Return the vector of a new user; its products with the item vectors are the scores.

        What a guide adds to the scores is not part of the vectors.
        """
        scorer = vectors_of(self.bundle.scorer)
        if scorer is None:
            raise ConfigError(
                f"{self.bundle.record.model} has no vectors because it compares items with"
                " items; train a model with embeddings, such as mgformer"
            )
        own = lists.read_history(self.bundle, history)
        if not len(own.trained):
            listed = ", ".join(map(str, own.unknown[:5])) or "the history is empty"
            raise DataError(f"no item of the history is in the training set: {listed}")
        rows = lists.as_rows(self.bundle, [own.trained], self.bundle.record.kappa)
        return scorer.fold_in(rows).users[0].numpy()

    def explain(self, user: ExternalId, item: ExternalId) -> pl.DataFrame:
        """Return how much each item of a user adds to the score of an item, largest first.

        The columns are item, name (if items have names) and weight. The weights add up to the score
        that the user gets by these items. For a trained user, this is close to the score of the
        model, not equal to it.
        """
        return self.explain_history(self.items_of(user)["item"], item)

    def explain_history(self, history: SomeIds, item: ExternalId) -> pl.DataFrame:
        """Return what `explain` returns, for a new user with the items of `history`."""
        own = lists.read_history(self.bundle, history).trained
        number = lists.numbers_of("item", self.bundle.items, item)
        counts = lists.counts_of(own, self.bundle.record.kappa)
        weights = self.bundle.scorer.contributions(own, number, counts)[:, 0]
        order = np.argsort(-weights, kind="stable")
        table = lists.with_names(self.bundle, own[order])
        return table.with_columns(weight=pl.Series(weights[order]))

    def items_of(self, user: ExternalId) -> pl.DataFrame:
        """Return the items that a user has: item and, if items have names, name.

        The latest item comes last, if the order is known.
        """
        (number,) = lists.numbers_of("user", self.bundle.users, user)
        return lists.with_names(self.bundle, lists.items_of(self.bundle, number))

    def _highest(
        self, what: str, scores: NDArray[np.float32], number: int, k: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return the k highest scores above zero, except that of `number`: positions and values."""
        scorer = vectors_of(self.bundle.scorer)
        if scorer is not None and scorer.num_varying < 2:
            # By a single channel, everything would be equally similar.
            raise ConfigError(
                f"{self.bundle.record.model} cannot find similar {what} because it has one"
                " number for each; train another model, such as mgformer"
            )
        if k < 1:
            raise ConfigError(f"k must be at least 1, got {k}")
        order = np.argsort(-scores, kind="stable")
        order = order[(order != number) & (scores[order] > 0)][:k]
        return order, scores[order]
