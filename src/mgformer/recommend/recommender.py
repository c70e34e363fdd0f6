"""A trained recommender in Python: lists, similar items and users, and reasons, by your own ids."""

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, Unpack, cast, overload

import numpy as np
import polars as pl
from numpy.typing import NDArray

from mgformer.bars import showing
from mgformer.data.attributes import Side
from mgformer.data.dataset import open_dataset, read_dataset
from mgformer.data.ids import ExternalId
from mgformer.device import HOST, for_ranking, resolve
from mgformer.errors import ConfigError, DataError, MgformerError, python_words
from mgformer.models import AUTO, register
from mgformer.ranking.devices import moved
from mgformer.ranking.scorers import vectors_of
from mgformer.recommend import lists
from mgformer.recommend.answer import Answer
from mgformer.recommend.figures import Metrics, html_card, one_line
from mgformer.recommend.finding import find_items
from mgformer.recommend.frames import (
    Column,
    FitOptions,
    Frame,
    FrameKind,
    Source,
    as_frame,
    data_section,
    frame_kind,
)
from mgformer.recommend.query import ListOptions, Query, SomeIds, as_ids, by_time
from mgformer.recommend.similar import similar_items, similar_users
from mgformer.runs.add import add, read_more
from mgformer.runs.auto import contest, train_best
from mgformer.runs.bundle import Bundle
from mgformer.runs.bundle_files import load_bundle, save_bundle
from mgformer.runs.config import build_config
from mgformer.runs.refit import refit
from mgformer.runs.refresh import read_new, refresh
from mgformer.runs.rules import NO_RULES, Ruled, Rules, read_rules
from mgformer.runs.train import train

if TYPE_CHECKING:
    import pandas as pd

    from mgformer.models.base import Model


class Recommender(Generic[Frame]):
    """A trained model with its data: recommends items, finds similar ones, gives reasons.

    Create one with `fit` or `load`. Methods that recommend take the options of `ListOptions` as
    keywords: `candidates`, `exclude`, `exclude_seen`, `fallback`, `where` and `attributes`. Where a
    method takes ids, it takes a single one too. Tables are polars frames, or pandas frames if
    `frame` is "pandas".
    """

    def __init__(self, bundle: Bundle, frame: FrameKind = "polars", *, device: str = "cpu") -> None:
        """Wrap a bundle; lists are made on a device, everything else on the processor."""
        self.bundle = bundle
        self.frame = frame
        self.ranked = bundle
        """The bundle with its scorer on the device."""
        if (ranks := for_ranking(resolve(device))) != HOST:
            self.ranked = replace(bundle, scorer=moved(bundle.scorer, ranks))

    def __repr__(self) -> str:
        return one_line(self.bundle)

    def _repr_html_(self) -> str:
        return html_card(self.bundle)

    @property
    def model(self) -> str:
        """Name of the model."""
        return self.bundle.record.model

    @property
    def config(self) -> dict[str, Any]:
        """All options of the run, in sections."""
        return deepcopy(self.bundle.record.config)

    @property
    def metrics(self) -> Metrics:
        """What was measured: on test, for the most popular items there, and on validation."""
        return Metrics(self.bundle.record)

    @overload
    @classmethod
    def fit(
        cls,
        interactions: "pd.DataFrame",
        /,
        model: "str | type[Model]" = ...,
        *,
        frame: None = None,
        **options: Unpack[FitOptions],
    ) -> "Recommender[pd.DataFrame]": ...
    @overload
    @classmethod
    def fit(
        cls,
        interactions: Source,
        /,
        model: "str | type[Model]" = ...,
        *,
        frame: Literal["pandas"],
        **options: Unpack[FitOptions],
    ) -> "Recommender[pd.DataFrame]": ...
    @overload
    @classmethod
    def fit(
        cls,
        interactions: Source,
        /,
        model: "str | type[Model]" = ...,
        *,
        frame: Literal["polars"] | None = None,
        **options: Unpack[FitOptions],
    ) -> "Recommender[pl.DataFrame]": ...

    @classmethod
    def fit(
        cls,
        interactions: Source,
        /,
        model: "str | type[Model]" = AUTO,
        *,
        seed: int = 0,
        budget: float | None = None,
        options: Mapping[str, Any] | None = None,
        user: Column = None,
        item: Column = None,
        time: Column = None,
        rating: Column = None,
        weight: Column = None,
        data: Mapping[str, Any] | None = None,
        frame: FrameKind | None = None,
        progress: bool | None = None,
        **sections: Any,
    ) -> "Recommender[Any]":
        """Train a model on interactions.

        Args:
            interactions: A file, a folder, a catalog name, a data frame, or arrays (users, items,
                times, weights).
            model: The name of a model, a subclass of `mgformer.models.base.Model`, or "auto": the
                model that is best on validation. `bundle.record.auto` has the table.
            seed: Seed of the split and of the model.
            budget: Seconds for the choice of "auto"; 120 by default.
            options: Options of the model, such as {"dim": 64}.
            user: Column of user ids, by name or position. By default, columns are known by their
                usual names, such as user_id.
            item: Column of item ids.
            time: Column of times; False ignores times.
            rating: Column of ratings, for data={"min_rating": 4}.
            weight: Column of weights; False ignores weights.
            data: More options of reading, such as {"min_rating": 4, "items": "items.csv"}.
            frame: "polars" or "pandas": what tables are. By default pandas if `interactions` is a
                pandas frame, else polars.
            progress: Whether progress is shown. By default in a notebook only.
            sections: Options of the other parts, such as split={"kind": "time"} and
                train={"epochs": 20}.
        """
        columns = {"user": user, "item": item, "time": time, "rating": rating, "weight": weight}
        kind = frame_kind(frame, interactions)
        with python_words(), showing(progress):
            name = model if isinstance(model, str) else register(model)
            described = {
                **sections,
                "dataset": str(interactions) if isinstance(interactions, str | Path) else "data",
                "model": {"name": name, **(options or {})},
                "seed": seed,
                "data": data_section(data, columns, interactions),
            }
            runs = contest(described, "fit", budget=budget) if name == AUTO else None
            if runs is None and budget is not None:
                raise ConfigError(f"got a budget and the model {name}; a budget is for {AUTO}")
            config = runs.first if runs else build_config(described, "fit")
            if isinstance(interactions, str | Path):
                dataset = open_dataset(interactions, config.data)
            else:
                dataset = read_dataset(interactions, config.data)
            bundle = train_best(runs, dataset) if runs else train(config, dataset)
            return cls(bundle, kind)

    @overload
    @classmethod
    def load(
        cls,
        folder: str | Path,
        key: bytes | None = None,
        *,
        frame: Literal["pandas"],
        device: str = ...,
    ) -> "Recommender[pd.DataFrame]": ...
    @overload
    @classmethod
    def load(
        cls,
        folder: str | Path,
        key: bytes | None = None,
        *,
        frame: Literal["polars"] = ...,
        device: str = ...,
    ) -> "Recommender[pl.DataFrame]": ...

    @classmethod
    def load(
        cls,
        folder: str | Path,
        key: bytes | None = None,
        *,
        frame: FrameKind = "polars",
        device: str = "cpu",
    ) -> "Recommender[Any]":
        """Load a recommender that `mgformer train` or `save` has written.

        Args:
            folder: Where it is.
            key: If given, a recommender that is not signed with this key is refused.
            frame: "polars" or "pandas": what tables are.
            device: What makes lists: auto, cpu, cuda, cuda:1 or mps.
        """
        kind = frame_kind(frame)
        resolve(device)  # a wrong device is reported before the files are read
        with python_words():
            return cls(load_bundle(Path(folder), key), kind, device=device)

    def refit(self, *, progress: bool | None = None) -> "Recommender[Frame]":
        """Return the model trained on all pairs, held-out pairs too: for use, not for tests."""
        with python_words(), showing(progress):
            return Recommender(refit(self.bundle), self.frame)

    def refresh(
        self,
        interactions: Source,
        /,
        *,
        user: Column = None,
        item: Column = None,
        time: Column = None,
        rating: Column = None,
        weight: Column = None,
        data: Mapping[str, Any] | None = None,
        progress: bool | None = None,
    ) -> "Recommender[Frame]":
        """Return the recommender with new interactions; nothing is trained.

        Popularity, trend and histories follow the new interactions. New users get lists by their
        items. Interactions with items that the model has not learned are left out, with a warning;
        `bundle.record.refreshed` counts them. Columns and options are those of `fit`; where none
        are given, they are those of the training.
        """
        columns = {"user": user, "item": item, "time": time, "rating": rating, "weight": weight}
        with python_words(), showing(progress):
            changed = data_section(data, columns, interactions)
            new = read_new(self.bundle, interactions, changed)
            return Recommender(refresh(self.bundle, new), self.frame)

    def add_items(
        self,
        items: "str | Path | pl.DataFrame | pd.DataFrame",
        /,
        *,
        data: Mapping[str, Any] | None = None,
        progress: bool | None = None,
    ) -> "Recommender[Frame]":
        """Return the recommender with new items, which are known by their attributes only.

        Args:
            items: A file or a data frame: a column of ids, and attributes that the recommender
                knows. Items that are there get its values; missing ones change nothing.
            data: Options of reading, such as {"kinds": {"note": "ignore"}}.
            progress: Whether progress is shown. By default in a notebook only.
        """
        return self._with("item", items, data, progress)

    def add_users(
        self,
        users: "str | Path | pl.DataFrame | pd.DataFrame",
        /,
        *,
        data: Mapping[str, Any] | None = None,
        progress: bool | None = None,
    ) -> "Recommender[Frame]":
        """Return the recommender with new users, as `add_items` does with new items."""
        return self._with("user", users, data, progress)

    def _with(
        self,
        side: Side,
        table: "str | Path | pl.DataFrame | pd.DataFrame",
        data: Mapping[str, Any] | None,
        progress: bool | None,
    ) -> "Recommender[Frame]":
        with python_words(), showing(progress):
            read = read_more(self.bundle, side, table, data)
            return Recommender(add(self.bundle, side, read).bundle, self.frame)

    def with_rules(
        self, rules: "str | Path | Mapping[str, Any] | Rules | None"
    ) -> "Recommender[Frame]":
        """Return the recommender with rules that all of its lists follow; None removes them.

        Rules are a TOML file or a mapping: hide, pin, boost and at_most. `save` keeps them.
        """
        found = NO_RULES if rules is None else read_rules(rules)
        source = str(rules) if isinstance(rules, str | Path) else "rules"
        bundle = replace(self.bundle, rules=found)
        Ruled(found, bundle.filters, bundle.items, source)  # what is wrong is said now
        changed: Recommender[Frame] = Recommender(bundle, self.frame)
        if self.ranked is not self.bundle:
            changed.ranked = replace(bundle, scorer=self.ranked.scorer)
        return changed

    def save(self, folder: str | Path, key: bytes | None = None) -> None:
        """Write the recommender to a folder. An older one in the folder is replaced in one step.

        If a key is given, at least 32 bytes, the recommender is signed with it.
        """
        with python_words():
            save_bundle(self.bundle, Path(folder), key)

    def recommend(self, users: SomeIds, k: int = 20, **options: Any) -> Frame:
        """Return the best items of one user or several users of the training data.

        With `fallback=True`, unknown users get popular items; otherwise they are an error. The
        columns are user, rank, item, name (if items have names), score, and the `attributes` that
        are asked for.
        """
        wanted = ListOptions(k=k, **options)
        numbers = lists.user_numbers(self.bundle, users, wanted)
        found, _ = lists.rank_users(self.ranked, numbers, wanted)
        column = lists.user_column(self.bundle, numbers, users)
        return self._shown(lists.to_frame(self.bundle, column, found, wanted.attributes))

    def recommend_for(
        self,
        history: SomeIds,
        k: int = 20,
        *,
        user: ExternalId | None = None,
        times: Sequence[float] | None = None,
        **options: Any,
    ) -> Frame:
        """Return the best items for a new user, who is known by the items of `history`.

        The latest item comes last, unless `times` has a number for each item. If the model was
        trained with times, older items count less. The columns are those of `recommend`. Nothing is
        trained. Items that are not in the training set are ignored; if no other item is left, the
        most popular items are returned. `answer` tells which items were ignored. If `user` is
        given, it is a user of the training data who got the items of `history` later; with
        `fallback=True`, it may be an unknown user too.
        """
        ordered = history if times is None else by_time(history, times)
        wanted = ListOptions(k=k, **options)
        own = lists.read_history(self.bundle, ordered, user, fallback=wanted.fallback)
        found, _ = lists.rank_histories(self.ranked, [own], wanted)
        users = pl.Series([own.user], dtype=self.bundle.users.values.dtype, strict=False)
        if own.unknown_user and users.null_count():
            users = pl.Series([str(own.user)])
        return self._shown(lists.to_frame(self.bundle, users, found, wanted.attributes))

    def answer(self, query: Query) -> Answer:
        """Answer one query. An answer also tells its source, ignored items and reasons."""
        (answer,) = lists.answer_all(self.ranked, [query])
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
        asked = users if isinstance(users, pl.Series) else as_ids(users)
        numbers = lists.user_numbers(self.bundle, asked, wanted)
        for start in range(0, len(numbers), block_users):
            block = slice(start, start + block_users)
            yield from lists.answer_users(self.ranked, asked[block], numbers[block], wanted)

    def find_items(self, text: str, k: int = 20) -> Frame:
        """Return items whose name or id contains a text, the most popular first.

        The columns are item and name (if items have names). Case and accents do not matter.
        """
        return self._shown(find_items(self.bundle, text, k))

    def similar_items(self, item: ExternalId, k: int = 20) -> Frame:
        """Return the items most similar to an item: item, name (if items have names), score.

        Only items with a score above zero are returned, which may be fewer than k. Items that are
        not in the training set have no similar items.
        """
        return self._shown(similar_items(self.bundle, item, k))

    def similar_users(self, user: ExternalId, k: int = 20) -> Frame:
        """Return the users most similar to a user: user, score (a cosine above zero)."""
        return self._shown(similar_users(self.bundle, user, k))

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

    def explain(self, user: ExternalId, item: ExternalId) -> Frame:
        """Return how much each item of a user adds to the score of an item, largest first.

        The columns are item, name (if items have names) and weight. The weights add up to the score
        that the user gets by these items. For a trained user, this is close to the score of the
        model, not equal to it.
        """
        (number,) = lists.numbers_of("user", self.bundle.users, user)
        return self.explain_history(
            self.bundle.items.decode(lists.items_of(self.bundle, number)), item
        )

    def explain_history(self, history: SomeIds, item: ExternalId) -> Frame:
        """Return what `explain` returns, for a new user with the items of `history`."""
        own = lists.read_history(self.bundle, history).trained
        number = lists.numbers_of("item", self.bundle.items, item)
        counts = lists.counts_of(own, self.bundle.record.kappa)
        weights = self.bundle.scorer.contributions(own, number, counts)[:, 0]
        order = np.argsort(-weights, kind="stable")
        table = lists.with_names(self.bundle, own[order])
        return self._shown(table.with_columns(weight=pl.Series(weights[order])))

    def items_of(self, user: ExternalId) -> Frame:
        """Return the items that a user has: item and, if items have names, name.

        The latest item comes last, if the order is known.
        """
        (number,) = lists.numbers_of("user", self.bundle.users, user)
        return self._shown(lists.with_names(self.bundle, lists.items_of(self.bundle, number)))

    def _shown(self, table: pl.DataFrame) -> Frame:
        """Return a table as the kind of frame that the user works with."""
        return cast("Frame", as_frame(table, self.frame))
