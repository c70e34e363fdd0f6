"""Cut a dataset at several moments: what was known at each of them, and what came next.

A model of a cut is made from the rows before the cut and from nothing else. Users and items that
appear later have no id at that cut. So the future cannot change a model, not even by its size. The
rows in the window after the cut are the test. Rows after the window are not looked at.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from mgformer.data.dataset import Dataset
from mgformer.data.ids import Ids, number
from mgformer.data.interactions import Interactions
from mgformer.data.splits import Split
from mgformer.errors import ConfigError, DataError

Moment = int | float
Times = NDArray[np.int64] | NDArray[np.float64]
MOST_POPULAR = 100
DAY = 86_400
UNIX_UNITS = {1: (1e8, 1e10), 10**3: (1e11, 1e13), 10**6: (1e14, 1e16), 10**9: (1e17, 1e19)}
"""Units per second → the times that look like Unix times in this unit, from 1973 on."""


class Cut(NamedTuple):
    """A moment. What is before it is known, and what follows in its window is the test."""

    number: int
    """Counted from 1."""
    valid_from: Moment
    """The first moment of validation, which ends at the cut."""
    start: Moment
    """The cut itself: the first moment of the window."""
    last: Moment
    """The last moment of the window."""


class Clock(NamedTuple):
    """How to read the times of a dataset."""

    per_second: int | None
    """Units of time in a second; None if times do not look like Unix times."""

    def text(self, moment: Moment) -> str:
        """Return a moment as a date, or as the number that it is."""
        if self.per_second is None:
            return f"{moment:.12g}"
        date = datetime.fromtimestamp(moment / self.per_second, UTC)
        whole_day = not (date.hour or date.minute or date.second)
        return f"{date:%Y-%m-%d}" if whole_day else f"{date:%Y-%m-%d %H:%M}"

    def days(self, start: Moment, end: Moment) -> float | None:
        """Return the days from one moment to another; None if the unit of time is not known."""
        return None if self.per_second is None else (end - start) / self.per_second / DAY


class Drift(NamedTuple):
    """How a window differs from what was known before it."""

    new_users: float
    """Share of the window's pairs whose user was not known."""
    new_items: float
    """Share of the window's pairs whose item was not known."""
    popular_kept: float
    """Share of the window's 100 most popular items that were among those of the window before."""


class HeldOut(NamedTuple):
    """The pairs of a window, for a model that has its own ids."""

    pairs: Interactions
    """Those whose user and item the model knows."""
    missing: NDArray[np.int64]
    """[U] pairs of each user that the model knows, with items that it does not know."""


@dataclass(frozen=True, eq=False)
class CutData:
    """The data of one cut."""

    cut: Cut
    dataset: Dataset
    """All rows up to the end of the window; its parts are train, validation and test."""
    split: Split
    """What a model is trained and tested on; its ids are those known before the cut."""
    window: Interactions
    """The pairs that are new in the window, with the ids of the dataset."""
    drift: Drift

    @property
    def num_ranked(self) -> int:
        """Number of users who have pairs before the cut, and new pairs in the window."""
        assert self.split.missing is not None
        return int(np.count_nonzero(np.diff(self.split.test.indptr) + self.split.missing))

    @property
    def num_unknown(self) -> int:
        """Number of users of the window who are not ranked: the model knows nothing of them."""
        return int(np.count_nonzero(np.diff(self.window.indptr))) - self.num_ranked


def check_cuts(num_cuts: int, share: float) -> None:
    """Refuse windows that leave nothing to train on."""
    if num_cuts < 1:
        raise ConfigError(f"--cuts must be at least 1, got {num_cuts}")
    if not 0 < share < 1:
        raise ConfigError(f"--window must be a share between 0 and 1, got {share:g}")
    if (num_cuts + 1) * share >= 1:
        raise ConfigError(
            f"{num_cuts} windows of {share:g} and one for validation leave nothing to train on;"
            " lower --cuts or --window"
        )


def choose_cuts(dataset: Dataset, num_cuts: int, share: float) -> list[Cut]:
    """Return cuts whose windows follow each other up to the last row, with equally many rows each.

    Rows of the same moment stay together, so windows can differ by them.

    Args:
        dataset: It must have times.
        num_cuts: Number of windows.
        share: Share of the rows in each window, and in the validation before each cut.
    """
    check_cuts(num_cuts, share)
    if dataset.interactions.times is None:
        raise DataError(
            f"{dataset.name}: a backtest needs times, got no time column; name it with --set"
            " data.time=NAME"
        )
    times = np.sort(_rows(dataset)["time"].to_numpy())
    size = int(len(times) * share + 1e-9)
    places = [len(times) - size * (num_cuts + 1 - place) for place in range(num_cuts + 1)]
    starts = times[np.minimum(places, len(times) - 1)]
    if not size or starts[0] == times[0] or (np.diff(starts) == 0).any():
        raise DataError(
            f"{dataset.name}: cannot cut {len(times)} rows with {len(np.unique(times))} different"
            f" times into {num_cuts} windows of {share:g}; use fewer --cuts or a larger --window"
        )
    ends = [*np.searchsorted(times, starts[2:]), len(times)]
    return [
        Cut(place + 1, starts[place].item(), starts[place + 1].item(), times[end - 1].item())
        for place, end in enumerate(ends)
    ]


def clock_of(dataset: Dataset) -> Clock:
    """Return how to read the times of a dataset; it must have times."""
    times = dataset.interactions.times
    assert times is not None
    for units, (low, high) in UNIX_UNITS.items():
        if low <= times.min() and times.max() < high:
            return Clock(units)
    return Clock(None)


def at_cut(dataset: Dataset, cut: Cut, k_core: int = 0) -> CutData:
    """Return what was known at a cut, and what came in the window after it.

    A pair that occurs again in the window is no test pair. Before the cut, it has its latest time
    and the sum of its weights, as in a file that ends at the cut.

    Args:
        dataset: The dataset that was cut.
        cut: One of its cuts.
        k_core: Users and items with fewer pairs before the cut are not known there.
    """
    rows = _rows(dataset).filter(pl.col("time") <= cut.last)
    times: Times = rows["time"].to_numpy()
    weights = rows["weight"].to_numpy() if "weight" in rows.columns else None
    (users, user), (items, item) = number(rows["user"]), number(rows["item"])

    def pairs_where(keep: NDArray[np.bool_]) -> Interactions:
        own = None if weights is None else weights[keep]
        return Interactions.from_numbers(users, items, user[keep], item[keep], times[keep], own)

    before, early = pairs_where(times < cut.start), pairs_where(times < cut.valid_from)
    recent = pairs_where((times >= cut.valid_from) & (times < cut.start))
    inside = pairs_where(times >= cut.start)
    window = inside.subset(~inside.within(before))
    parts = {"train": early, "valid": before.subset(~before.within(early)), "test": window}
    until = pairs_where(times <= cut.last)
    whole = Dataset(dataset.name, until, parts, **dataset.attributes_for(items, users))

    known = before.core(k_core) if k_core > 1 else before.compact()
    if not len(known):
        raise DataError(
            f"{dataset.name}: got no pairs in the {k_core}-core before cut {cut.number}, expected"
            f" some; lower --set data.k_core={k_core}"
        )
    train = early.renumbered(known.users, known.items)
    valid = known.subset(~known.within(train))
    test = held_out_for(window, known.users, known.items)
    clock = clock_of(dataset)
    protocol = (
        f"cut at {clock.text(cut.start)}, test until {clock.text(cut.last)}, validation from"
        f" {clock.text(cut.valid_from)} on"
    )
    split = Split(
        "time",
        train,
        valid,
        test.pairs,
        protocol=protocol,
        chronological=True,
        refit=True,
        whole=known,
        missing=test.missing,
    )
    found = CutData(cut, whole, split, window, _drift(before, recent, inside, window))
    validated = (np.diff(valid.indptr) > 0) & (np.diff(train.indptr) > 0)
    for what, enough in (("validation", validated.any()), ("test", found.num_ranked)):
        if not enough:
            raise DataError(
                f"{dataset.name}: no user of the {what} part of cut {cut.number} has earlier pairs;"
                " use fewer --cuts or a larger --window"
            )
    return found


def between(dataset: Dataset, start: Moment, end: Moment) -> Dataset:
    """Return the rows from one moment up to another, which is not included, as a dataset."""
    rows = _rows(dataset).filter((pl.col("time") >= start) & (pl.col("time") < end))
    pairs = Interactions.from_frame(rows)
    return Dataset(dataset.name, pairs, **dataset.attributes_for(pairs.items, pairs.users))


def held_out_for(window: Interactions, users: Ids, items: Ids) -> HeldOut:
    """Return the pairs of a window for a model that has the ids `users` and `items`."""
    pairs = window.renumbered(users, items)
    owners = users.encode(window.users.values)[window.rows]
    all_pairs = np.bincount(owners[owners >= 0], minlength=len(users))
    return HeldOut(pairs, all_pairs - np.diff(pairs.indptr))


def _rows(dataset: Dataset) -> pl.DataFrame:
    """Return users, items, times and perhaps weights as they happened."""
    if dataset.rows is not None:
        return dataset.rows
    pairs = dataset.interactions
    columns = {"user": pairs.users.decode(pairs.rows), "item": pairs.items.decode(pairs.indices)}
    orders = {"time": pairs.times, "weight": pairs.weights}
    given = {name: pl.Series(values) for name, values in orders.items() if values is not None}
    return pl.DataFrame({**columns, **given})


def _drift(
    before: Interactions, recent: Interactions, inside: Interactions, window: Interactions
) -> Drift:
    known_users = np.diff(before.indptr) > 0
    known_items = np.bincount(before.indices, minlength=before.num_items) > 0
    now, then = (_most_popular(pairs) for pairs in (inside, recent))
    return Drift(
        _share(~known_users[window.rows]),
        _share(~known_items[window.indices]),
        _share(np.isin(now, then)),
    )


def _share(which: NDArray[np.bool_]) -> float:
    return float(which.mean()) if len(which) else 0.0


def _most_popular(pairs: Interactions) -> NDArray[np.int64]:
    """Return the most popular items by number; of equally popular ones, those of the first ids."""
    counts = np.bincount(pairs.indices, minlength=pairs.num_items)
    order = np.argsort(-counts, kind="stable")[:MOST_POPULAR]
    return order[counts[order] > 0]
