"""What a model is worth when it gets old: left as it is, refreshed, or trained again.

The model of the first cut is tested in all later windows. Only users that it knows are ranked, so
that the three ways are compared on the same users and the same held-out items. An item that a model
does not know counts as a miss.
"""

import logging
import statistics
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from typing import NamedTuple

import numpy as np
import polars as pl

from mgformer.data.cuts import Cut, CutData, between, clock_of, held_out_for
from mgformer.data.dataset import Dataset
from mgformer.data.interactions import Interactions
from mgformer.experiments.tables import NDCG, RECALL, Tests, paired_tests
from mgformer.progress import quietly
from mgformer.ranking.evaluation import EvaluationConfig, evaluate
from mgformer.ranking.metrics import SELECTION_K
from mgformer.runs.bundle import Bundle
from mgformer.runs.folder import Run

STALE, REFRESHED, RETRAINED = "stale", "refreshed", "retrained"
REFRESH = "mgformer.runs.refresh"
WEEK = 7
METRICS = (RECALL, NDCG)
log = logging.getLogger("mgformer")


class Loss(NamedTuple):
    """How much NDCG@20 a way loses against a model that is trained again at every cut."""

    mean: float
    """In the mean over later windows."""
    per_window: float
    """For each window of age: the slope of a line through 0, by least squares."""
    per_week: float | None
    """For each week of age; None if the unit of time is not known."""
    tests: Tests
    """Over users, each averaged over the windows."""


class Way(NamedTuple):
    """A model in all later windows, kept in one way."""

    name: str
    way: str
    """stale, refreshed or retrained."""
    figures: list[dict[str, float]]
    """Recall@20 and NDCG@20 in each later window."""
    loss: Loss | None
    """None for the way that the others are compared with."""


class Retraining(NamedTuple):
    """What later windows say about models that are not trained again."""

    cuts: list[int]
    """Numbers of the later cuts."""
    users: list[int]
    """Users who are ranked in each later window: those known at the first cut."""
    ways: list[Way]
    can_refresh: bool
    """Whether this version of mgformer can refresh a recommender."""


class Measurements:
    """Collects what is measured while a backtest runs."""

    def __init__(self, dataset: Dataset, cuts: Sequence[Cut]) -> None:
        self.dataset, self.cuts = dataset, cuts
        self.first: dict[str, Run] = {}
        self.later: dict[int, Cut] = {}
        self.tables: dict[str, dict[str, list[pl.DataFrame]]] = {}

    def add(self, name: str, data: CutData, run: Run) -> None:
        """Measure a model at a cut; the runs of the first cut come first, with their bundles."""
        if data.cut.number == 1:
            self.first[name] = run
            return
        bundle = self.first[name].bundle()
        assert bundle is not None, "the recommenders of the first cut are kept"
        # Its own test is in the past by now, and comes with the new pairs.
        bundle = replace(bundle, test=bundle.test.no_pairs(), missing=None)
        known = bundle.users.encode(data.window.users.values) >= 0
        window = data.window.subset(known[data.window.rows])
        new = between(self.dataset, self.cuts[0].start, data.cut.start)
        if not len(window):  # no user of the first cut is left
            return
        self.later[data.cut.number] = data.cut
        found = {STALE: _per_user(bundle, window)}
        refreshed = _refreshed(bundle, new)
        if refreshed is not None:
            found[REFRESHED] = _per_user(refreshed, window)
        old = bundle.users.encode(run.per_user["user"]) >= 0
        found[RETRAINED] = run.per_user.filter(old).select("user", *METRICS)
        own = self.tables.setdefault(name, {})
        for way, table in found.items():
            own.setdefault(way, []).append(table)

    def result(self, names: Sequence[str]) -> Retraining | None:
        """Return what was measured, with the models in this order; None if there is nothing."""
        if not self.later:
            log.warning("--policy: no user known at the first cut has pairs in a later window")
            return None
        tables = next(iter(self.tables.values()))
        return Retraining(
            [*self.later],
            [table.height for table in tables[RETRAINED]],
            [way for name in names for way in self._ways(name)],
            REFRESHED in tables,
        )

    def _ways(self, name: str) -> list[Way]:
        tables = self.tables[name]
        figures = {
            way: [
                {metric: float(table[metric].to_numpy().mean()) for metric in METRICS}
                for table in own
            ]
            for way, own in tables.items()
        }
        best = [row[NDCG] for row in figures[RETRAINED]]
        ways = []
        for way, rows in figures.items():
            loss = None
            if way != RETRAINED:
                gaps = [top - row[NDCG] for top, row in zip(best, rows, strict=True)]
                tests = paired_tests(tables[way], tables[RETRAINED])
                loss = self._loss(gaps, tests)
            ways.append(Way(name, way, rows, loss))
        return ways

    def _loss(self, gaps: Sequence[float], tests: Tests) -> Loss:
        first, later = self.cuts[0], self.later.values()
        clock = clock_of(self.dataset)
        windows = [float(cut.number - first.number) for cut in later]
        days = [clock.days(first.start, cut.start) for cut in later]
        weeks = [day / WEEK for day in days if day is not None]
        per_week = _slope(weeks, gaps) if weeks else None
        return Loss(statistics.fmean(gaps), _slope(windows, gaps), per_week, tests)


def _refreshed(bundle: Bundle, new: Dataset) -> Bundle | None:
    """Return the recommender with new pairs and without training; None if that cannot be done."""
    if find_spec(REFRESH) is None:
        return None
    refreshed: Bundle = import_module(REFRESH).refresh(bundle, new)
    return refreshed


def _per_user(bundle: Bundle, window: Interactions) -> pl.DataFrame:
    """Return the figures of each user of a window; what the bundle knows is masked."""
    held_out = held_out_for(window, bundle.users, bundle.items)
    memory = bundle.record.config["evaluation"]["memory_mb"]
    options = EvaluationConfig(ks=(SELECTION_K,), memory_mb=memory)
    with quietly():
        found = evaluate(
            bundle.scorer,
            held_out.pairs,
            bundle.known,
            bundle.item_degrees,
            options,
            missing=held_out.missing,
        )
    users = found.users if found else np.zeros(0, dtype=np.int64)
    values = {metric: found.values[metric] if found else np.zeros(0) for metric in METRICS}
    return pl.DataFrame({"user": bundle.users.decode(users), **values})


def _slope(ages: Sequence[float], gaps: Sequence[float]) -> float:
    """Return the slope of the line through 0 that is nearest to the gaps, by least squares."""
    squares = sum(age * age for age in ages)
    return sum(age * gap for age, gap in zip(ages, gaps, strict=True)) / squares if squares else 0.0
