"""A trained recommender in Python: lists, similar items and users, and reasons, by your own ids."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from mgformer.data.dataset import open_dataset, read_dataset
from mgformer.data.ids import ExternalId
from mgformer.errors import ConfigError, DataError, MgformerError
from mgformer.models import DEFAULT_MODEL, register
from mgformer.ranking.scorers import DotScorer, cosines
from mgformer.recommend.answer import Answer
from mgformer.recommend.answering import answer_all, answer_users
from mgformer.recommend.lists import (
    as_rows,
    items_of,
    numbers_of,
    rank_histories,
    rank_users,
    read_history,
    to_frame,
    with_names,
)
from mgformer.recommend.query import ListOptions, Query, SomeIds
from mgformer.runs.bundle import Bundle
from mgformer.runs.bundle_files import load_bundle, save_bundle
from mgformer.runs.config import build_config
from mgformer.runs.refit import refit
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
    def load(cls, folder: str | Path) -> "Recommender":
        """Load a recommender that `mgformer train` or `save` has written."""
        return cls(load_bundle(Path(folder)))

    def refit(self) -> "Recommender":
        """Return the model trained on all pairs, held-out pairs too: for use, not for tests."""
        return Recommender(refit(self.bundle))

    def save(self, folder: str | Path) -> None:
        """Write the recommender to a folder. An older one in the folder is replaced in one step."""
        save_bundle(self.bundle, Path(folder))

    def recommend(self, users: SomeIds, k: int = 20, **options: Any) -> pl.DataFrame:
        """Return the best items of users of the training data.

        The columns are user, rank, item, name (if items have names) and score.

        Args:
            users: One user or several.
            k: Number of items for each user.
            options: `candidates`, `exclude` and `exclude_seen`, see `ListOptions`.
        """
        numbers = numbers_of("user", self.bundle.users, users)
        found, _ = rank_users(self.bundle, numbers, ListOptions(k=k, **options))
        return to_frame(self.bundle, self.bundle.users.decode(numbers), found)

    def recommend_for(
        self, history: SomeIds, k: int = 20, *, user: ExternalId | None = None, **options: Any
    ) -> pl.DataFrame:
        """Return the best items for a new user, who is known by the items of `history`.

        The columns are those of `recommend`. Nothing is trained. Items that are not in the training
        set are ignored; if no other item is left, the most popular items are returned. `answer`
        tells which items were ignored.

        Args:
            history: The items of the new user.
            k: Number of items.
            user: A user of the training data who got the items of `history` later.
            options: `candidates`, `exclude` and `exclude_seen`, see `ListOptions`.
        """
        own = read_history(self.bundle, history, user)
        found, _ = rank_histories(self.bundle, [own], ListOptions(k=k, **options))
        users = pl.Series([own.user], dtype=self.bundle.users.values.dtype)
        return to_frame(self.bundle, users, found)

    def answer(self, query: Query) -> Answer:
        """Answer one query. An answer also tells its source, ignored items and reasons."""
        (answer,) = answer_all(self.bundle, [query])
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
        numbers, wanted = numbers_of("user", self.bundle.users, users), ListOptions(k=k, **options)
        for start in range(0, len(numbers), block_users):
            yield from answer_users(self.bundle, numbers[start : start + block_users], wanted)

    def similar_items(self, item: ExternalId, k: int = 20) -> pl.DataFrame:
        """Return the items most similar to an item: item, name (if items have names), score.

        Only items with a score above zero are returned, which may be fewer than k. Items that are
        not in the training set have no similar items.
        """
        self._check_similarity("items")
        (number,), is_trained = (
            numbers_of("item", self.bundle.items, item),
            self.bundle.item_degrees > 0,
        )
        scores = self.bundle.scorer.similarities(int(number)).numpy()
        scores = np.where(is_trained & is_trained[number], scores, np.float32(0))
        items, scores = _highest(scores, k, without=number)
        return with_names(self.bundle, items).with_columns(score=pl.Series(scores))

    def similar_users(self, user: ExternalId, k: int = 20) -> pl.DataFrame:
        """Return the users most similar to a user: user, score (a cosine above zero)."""
        self._check_similarity("users")
        (number,), scorer = numbers_of("user", self.bundle.users, user), self.bundle.complete_scorer
        if isinstance(scorer, DotScorer):
            scores = cosines(scorer.users[:, : scorer.num_varying], int(number)).numpy()
        else:
            matrix = self.bundle.known
            common = (matrix @ matrix[[number]].T).toarray()[:, 0]
            lengths = np.sqrt(np.diff(matrix.indptr))
            scores = common / np.maximum(lengths * lengths[number], 1e-12)
        users, values = _highest(scores.astype(np.float32), k, without=number)
        return pl.DataFrame({"user": self.bundle.users.decode(users), "score": values})

    def embed_user(self, history: SomeIds) -> NDArray[np.float32]:
        """Return the vector of a new user; its products with the item vectors are the scores."""
        scorer = self.bundle.scorer
        if not isinstance(scorer, DotScorer):
            raise ConfigError(
                f"{self.bundle.record.model} has no vectors because it compares items with"
                " items; train a model with embeddings, such as mgformer"
            )
        own = read_history(self.bundle, history)
        if not len(own.trained):
            listed = ", ".join(map(str, own.unknown[:5])) or "the history is empty"
            raise DataError(f"no item of the history is in the training set: {listed}")
        rows = as_rows(self.bundle, [own.trained])
        vector: NDArray[np.float32] = scorer.fold_in(rows).users[0].numpy()
        return vector

    def explain(self, user: ExternalId, item: ExternalId) -> pl.DataFrame:
        """Return how much each item of a user adds to the score of an item, largest first.

        The columns are item, name (if items have names) and weight. The weights add up to the score
        that the user gets by these items. For a trained user, this is close to the score of the
        model, not equal to it.
        """
        (number,) = numbers_of("user", self.bundle.users, user)
        return self.explain_history(self.bundle.items.decode(items_of(self.bundle, number)), item)

    def explain_history(self, history: SomeIds, item: ExternalId) -> pl.DataFrame:
        """Return what `explain` returns, for a new user with the items of `history`."""
        own = read_history(self.bundle, history).trained
        weights = self.bundle.scorer.contributions(
            own, numbers_of("item", self.bundle.items, item)
        )[:, 0]
        order = np.argsort(-weights, kind="stable")
        return with_names(self.bundle, own[order]).with_columns(weight=pl.Series(weights[order]))

    def items_of(self, user: ExternalId) -> pl.DataFrame:
        """Return the items that a user has: item and, if items have names, name."""
        (number,) = numbers_of("user", self.bundle.users, user)
        return with_names(self.bundle, items_of(self.bundle, number))

    def _check_similarity(self, what: str) -> None:
        """Refuse to compare by a single channel: everything would be equally similar."""
        scorer = self.bundle.scorer
        if isinstance(scorer, DotScorer) and scorer.num_varying < 2:
            raise ConfigError(
                f"{self.bundle.record.model} cannot find similar {what} because it has one"
                " number for each; train another model, such as mgformer"
            )


def _highest(
    scores: NDArray[np.float32], k: int, without: int | np.integer
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return positions and values of the k highest scores above zero, ties by position."""
    if k < 1:
        raise ConfigError(f"k must be at least 1, got {k}")
    order = np.argsort(-scores, kind="stable")
    order = order[(order != without) & (scores[order] > 0)][:k]
    return order, scores[order]
