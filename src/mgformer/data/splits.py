"""Split a dataset into train, validation and test.

A split depends on the pairs, the options and a random generator: the same seed gives the same
parts. The parts are disjoint and contain all pairs. Only users with items in train are ranked;
held-out users have theirs in `history`.
"""

import logging
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from mgformer import outside
from mgformer.data.dataset import Dataset
from mgformer.data.interactions import Interactions
from mgformer.data.options import VALID_SHARE, SplitConfig
from mgformer.errors import ConfigError, DataError

log = logging.getLogger("mgformer.splits")

TRAIN, VALID, TEST, HISTORY = range(4)
FEW_USERS = 100
"""With fewer users to rank, a split by time warns."""


@dataclass(frozen=True, eq=False)
class Split:
    """The parts of a dataset; they share its ids."""

    kind: str
    train: Interactions
    valid: Interactions
    test: Interactions
    history: Interactions | None = None
    """Items of held-out users that the model sees before it ranks; None if no user is held out."""
    protocol: str = ""
    """How the parts were made, in a few words."""
    chronological: bool = False
    """Whether held-out pairs are later than those that the model is trained on."""
    refit: bool = False
    """Whether the model is trained again on train and validation before the test."""
    whole: Interactions | None = None
    """Train and validation together, if a pair of train occurs again, later, in validation."""
    missing: NDArray[np.int64] | None = None
    """[U] test items of each user that have no id here: no model can find them, and they count as
    misses. None if there are none."""

    @property
    def cold_items(self) -> NDArray[np.int64] | None:
        """The items that are held out whole, by number; None unless kind is items."""
        return np.unique(self.test.indices).astype(np.int64) if self.kind == "items" else None

    @property
    def before_test(self) -> Interactions:
        """Train and validation together."""
        return self.train.union(self.valid) if self.whole is None else self.whole


def split_dataset(dataset: Dataset, options: SplitConfig, rng: np.random.Generator) -> Split:
    """Split a dataset as the options say."""
    kind = _kind(dataset, options)
    if kind == "given":
        return _given(dataset, options, rng)
    pairs = dataset.interactions
    known = pairs.times if kind == "time" else pairs.order
    if kind in ("last", "time") and known is None:
        raise DataError(
            f"{dataset.name}: split.kind={kind} needs times, got no time column; "
            "name it with --set data.time=NAME"
            + (
                ", or use --set data.order=file if rows are in order of time"
                if kind == "last"
                else ""
            )
        )
    builtin = {"ratio": _ratio, "last": _last, "time": _time, "users": _users, "items": _items}
    cut = builtin.get(kind) or partial(_outside, kind)
    labels = cut(pairs, options, rng)
    train, valid, test, history = (pairs.subset(labels == part) for part in range(4))
    return Split(
        kind,
        train,
        valid,
        test,
        history if kind == "users" else None,
        protocol=_protocol(kind, options),
        chronological=kind in ("last", "time"),
        refit=kind == "time" if options.refit is None else options.refit,
    )


def _kind(dataset: Dataset, options: SplitConfig) -> str:
    """Return the kind of split; `auto` follows what the dataset has."""
    if options.kind != "auto":
        return options.kind
    if dataset.parts:
        return "given"
    times = dataset.interactions.times
    if times is None or not len(times) or times.min() == times.max():
        return "ratio"
    log.info(
        "%s has times: the latest pairs are for validation and test (set split.kind=ratio to take"
        " random pairs instead)",
        dataset.name,
    )
    return "time"


def _given(dataset: Dataset, options: SplitConfig, rng: np.random.Generator) -> Split:
    """Return the parts of a dataset; validation is taken from train if it has none."""
    if not dataset.parts:
        raise DataError(
            f"{dataset.name}: got split.kind=given and no train and test parts; "
            "use a folder with train.* and test.*, or another split.kind"
        )
    whole = dataset.parts["train"]
    test = dataset.parts.get("test", whole.no_pairs())
    if "valid" in dataset.parts:
        return Split(
            "given",
            whole,
            dataset.parts["valid"],
            test,
            protocol="train, validation and test as given",
            chronological=whole.order is not None,
            refit=bool(options.refit),
        )
    if options.valid_kind == "last" and whole.order is None:
        raise DataError(
            f"{dataset.name}: split.valid_kind=last needs times or an order, got neither; name the"
            " times with --set data.time=NAME, or use --set data.order=file"
        )
    last = whole.order is not None and options.valid_kind != "random"
    share = options.valid
    if share is None:
        share = len(test) / (len(whole) + len(test)) if len(test) else VALID_SHARE
    keys = _time_order(whole, rng) if last else rng.random(len(whole))
    num_valid, _ = held_out_counts(np.diff(whole.indptr), share, 0.0)
    labels = _label_tails(whole, keys, num_valid, np.zeros_like(num_valid))
    return Split(
        "given",
        whole.subset(labels == TRAIN),
        whole.subset(labels == VALID),
        test,
        protocol=f"parts as given, validation {'the last' if last else 'a random'} {share:.2g} of"
        " each user's train items",
        chronological=whole.order is not None,
        refit=options.refit is not False,
    )


def _protocol(kind: str, options: SplitConfig) -> str:
    shares = f"valid {options.valid_share:g}, test {options.test:g}"
    known = {
        "ratio": f"per user at random, {shares}",
        "last": "last item of each user for test, the one before for validation",
        "time": f"one moment for all, {shares} of the interactions",
        "users": f"whole users held out, {shares}, known by {options.history:g} of their items",
        "items": f"{options.test:g} of the items held out whole for test and ranked among"
        f" themselves; validation {options.valid_share:g} of each user's other items",
    }
    return known.get(kind, "a split from outside")


def held_out_counts(
    sizes: NDArray[np.int64], valid: float, test: float
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return how many of each user's items go to validation and to test.

    Each part gets floor(share · n) items. A part without items gets one, test first, if train keeps
    at least one.
    """
    # The small term makes 0.29 · 100 = 28.999999999999996 count as 29.
    num_valid, num_test = (np.floor(s * sizes + 1e-9).astype(np.int64) for s in (valid, test))
    train = sizes - num_valid - num_test
    for share, counts in ((test, num_test), (valid, num_valid)):
        extra = ((counts == 0) & (train > 1) & (share > 0)).astype(np.int64)
        counts += extra
        train -= extra
    return num_valid, num_test


def _ratio(pairs: Interactions, options: SplitConfig, rng: np.random.Generator) -> NDArray[np.int8]:
    num_held_out = held_out_counts(np.diff(pairs.indptr), options.valid_share, options.test)
    return _label_tails(pairs, rng.random(len(pairs)), *num_held_out)


def _last(pairs: Interactions, options: SplitConfig, rng: np.random.Generator) -> NDArray[np.int8]:
    sizes = np.diff(pairs.indptr)
    num_test = ((sizes > 1) & (options.test > 0)).astype(np.int64)
    num_valid = ((sizes - num_test > 1) & (options.valid_share > 0)).astype(np.int64)
    return _label_tails(pairs, _time_order(pairs, rng), num_valid, num_test)


def _time(pairs: Interactions, options: SplitConfig, rng: np.random.Generator) -> NDArray[np.int8]:
    """Cut at two moments; pairs of the same moment stay together.

    A user who appears only after a cut is not ranked there: the model knows nothing about the user.
    """
    times = pairs.times
    assert times is not None
    ordered = np.sort(times)
    labels = np.full(len(times), TRAIN, dtype=np.int8)
    for part, share, rest in (
        (VALID, options.valid_share, options.valid_share + options.test),
        (TEST, options.test, options.test),
    ):
        if share > 0:
            cut = min(int(len(times) * (1 - rest)), len(times) - 1)
            labels[times >= ordered[cut]] = part
    # Before the test, the model is trained on validation too, unless the options say otherwise.
    is_known = labels == TRAIN if options.refit is False else labels != TEST
    known = np.zeros(pairs.num_users, dtype=bool)
    known[pairs.rows[is_known]] = True
    if not known.all():
        log.info("%d users appear only after the cut and are not ranked", (~known).sum())
    tested = np.zeros(pairs.num_users, dtype=bool)
    tested[pairs.rows[labels == TEST]] = True
    if options.test > 0 and (ranked := int((known & tested).sum())) < FEW_USERS:
        log.warning(
            "only %d users have pairs both before and after the cut, so figures are rough; set"
            " split.kind=last to test the last item of every user",
            ranked,
        )
    return labels


def _users(pairs: Interactions, options: SplitConfig, rng: np.random.Generator) -> NDArray[np.int8]:
    """Hold out whole users; part of their items is their history, the rest is held out."""
    sizes = np.diff(pairs.indptr)
    able = rng.permutation(np.flatnonzero(sizes > 1))  # one for the history, one to hold out
    num_valid, num_test = (int(len(sizes) * share) for share in (options.valid_share, options.test))
    if num_valid + num_test >= len(able):
        raise DataError(
            f"cannot hold out {num_valid + num_test} users: only {len(able)} have two items or "
            "more; lower --set split.valid or split.test"
        )
    role = np.full(len(sizes), TRAIN, dtype=np.int8)
    role[able[:num_valid]] = VALID
    role[able[num_valid : num_valid + num_test]] = TEST
    known = np.clip(np.round(sizes * options.history).astype(np.int64), 1, np.maximum(sizes - 1, 1))
    place = _places_within_users(pairs, rng.random(len(pairs)))
    labels = role[pairs.rows]
    labels[(labels != TRAIN) & (place < known[pairs.rows])] = HISTORY
    return labels


def _items(pairs: Interactions, options: SplitConfig, rng: np.random.Generator) -> NDArray[np.int8]:
    """Hold out whole items for test; validation is random pairs of the others."""
    num_test = int(pairs.num_items * options.test)
    is_test = np.zeros(pairs.num_items, dtype=bool)
    is_test[rng.permutation(pairs.num_items)[:num_test]] = True
    rest = pairs.subset(~is_test[pairs.indices])
    if not len(rest) or not num_test:
        raise DataError(
            f"cannot hold out {num_test} of {pairs.num_items} items; change --set split.test"
        )
    num_valid, none = held_out_counts(np.diff(rest.indptr), options.valid_share, 0.0)
    labels = np.full(len(pairs), TEST, dtype=np.int8)
    labels[~is_test[pairs.indices]] = _label_tails(rest, rng.random(len(rest)), num_valid, none)
    return labels


def _outside(
    name: str, pairs: Interactions, options: SplitConfig, rng: np.random.Generator
) -> NDArray[np.int8]:
    """Return the labels of a split `package.module:function` that the user named."""
    function = outside.imported.get(name)
    if not callable(function):
        raise ConfigError(
            f"split.kind={name} is not imported, or not a function; add --set split.kind={name}"
        )
    labels: NDArray[np.int8] = np.asarray(function(pairs, options, rng))
    if labels.shape != (len(pairs),) or not np.isin(labels, (TRAIN, VALID, TEST)).all():
        raise DataError(
            f"{name}: expected {len(pairs)} labels that are {TRAIN} (train), {VALID} (validation)"
            f" or {TEST} (test), got {labels!r}"
        )
    return labels


def _places_within_users(pairs: Interactions, keys: NDArray[np.generic]) -> NDArray[np.int64]:
    """Return each pair's position among its user's pairs, sorted by `keys`."""
    return np.argsort(np.lexsort((keys, pairs.rows))) - pairs.indptr[pairs.rows]


def _time_order(pairs: Interactions, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return each pair's rank in time; pairs of the same moment are in random order."""
    assert pairs.order is not None
    return np.argsort(np.lexsort((rng.random(len(pairs)), pairs.order)))


def _label_tails(
    pairs: Interactions,
    keys: NDArray[np.generic],
    num_valid: NDArray[np.int64],
    num_test: NDArray[np.int64],
) -> NDArray[np.int8]:
    """Give each user's last pairs by `keys` to test, and the pairs before them to validation."""
    place = _places_within_users(pairs, keys)
    test_from = (np.diff(pairs.indptr) - num_test)[pairs.rows]
    labels = np.full(len(pairs), TRAIN, dtype=np.int8)
    labels[place >= test_from - num_valid[pairs.rows]] = VALID
    labels[place >= test_from] = TEST
    return labels
