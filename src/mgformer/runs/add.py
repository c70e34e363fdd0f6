"""Add items or users to a trained recommender by their attributes, without training.

New items and users get what a regression on attributes predicts (`cold.py`). Those that are there
get the values of the table. What the model has learned stays.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl

from mgformer.data.attribute_file import Table
from mgformer.data.attribute_update import alike, read_update
from mgformer.data.attributes import Attributes, Side, joined
from mgformer.data.formats.values import shown
from mgformer.data.ids import Ids, number
from mgformer.data.options import DataConfig
from mgformer.errors import ConfigError, DataError
from mgformer.runs.bundle import Bundle
from mgformer.runs.cold import as_learned, wants_predictions, with_predictions
from mgformer.runs.config import build_data_config
from mgformer.runs.record import Added, Record, commit_of_code
from mgformer.runs.renumber import pairs_among, places_in, scorer_among, tables_among
from mgformer.version import __version__

if TYPE_CHECKING:
    import pandas as pd

NOT_TESTED = "; then items or users were added, which is not tested"
USED = ("kinds", "max_unpacked")
"""Options of the section [data] that tables of items and users follow."""


class Done(NamedTuple):
    """A recommender with more items or users."""

    bundle: Bundle
    new: int
    """How many were added."""
    updated: int
    """How many were there, and got the attributes of the table."""


def read_more(
    bundle: Bundle,
    side: Side,
    source: "str | Path | pl.DataFrame | pd.DataFrame",
    options: Mapping[str, Any] | None = None,
) -> Table:
    """Read a table about items or users by the kinds of attributes that a recommender has.

    Args:
        bundle: The recommender.
        side: What the table is about.
        source: A file or a data frame.
        options: Options of the section [data]: which columns to ignore, and how much a file may
            unpack to.
    """
    given = build_data_config(dict(options or {}), "options")
    _check_used(given, side)
    about = bundle.about_items if side == "item" else bundle.about_users
    if not about:
        why = "" if bundle.record.histories and not bundle.record.hashed_ids else (
            "; those of users are left out with --hash-ids and --no-histories")  # fmt: skip
        raise ConfigError(
            f"this recommender has no attributes of {side}s to predict from; train it with --set"
            f" data.{side}s=FILE{why if side == 'user' else ''}"
        )
    if not wants_predictions(bundle):
        raise ConfigError(
            f"this recommender predicts nothing from attributes (score.cold = false), so a new"
            f" {side} would never be scored; train it without this option"
        )
    own = bundle.record.config.get("data", {})
    described = DataConfig(
        kinds={**own.get("kinds", {}), **given.kinds},
        max_unpacked=given.max_unpacked or own.get("max_unpacked"),
    )
    return read_update(Path(source) if isinstance(source, str) else source, side, about, described)


def _check_used(options: DataConfig, side: Side) -> None:
    """Refuse options that would do nothing."""
    for name in sorted(options.model_fields_set - {*USED}):
        raise ConfigError(
            f"--set data.{name}: got an option that does nothing for new {side}s, expected"
            f" {' or '.join(USED)}; leave it out"
        )
    for name, kind in options.kinds.items():
        if kind != "ignore":
            raise ConfigError(
                f"--set data.kinds: got {kind} for {name}, expected ignore, because the kinds of"
                " columns stay as they were in the training"
            )


def add(bundle: Bundle, side: Side, table: Table) -> Done:
    """Return the recommender with the items or users of a table. Nothing is trained.

    Values of the table replace those that are there; empty ones do not.
    """
    old, about = (
        (bundle.items, bundle.about_items) if side == "item" else (bundle.users, bundle.about_users)
    )
    wanted = _as_known(table, old, side)
    before, after = alike(about, table.attributes, table.path)
    table = table._replace(ids=wanted, attributes=after)
    whole = number(pl.concat([old.values, wanted]).rename("id"))[0]
    rows = table.places(whole)
    known = joined([(old, before), (whole, table.attributes.gather(rows))], whole)
    columns = {name: replace(own, values=known[name].values) for name, own in about.items()}
    num_new = len(whole) - len(old)
    items, users = (whole, bundle.users) if side == "item" else (bundle.items, whole)
    grown = _among(as_learned(bundle), users, items)
    about = Attributes(columns)
    grown = (
        replace(grown, about_items=about) if side == "item" else replace(grown, about_users=about)
    )
    done = with_predictions(grown)
    num_updated = int((rows >= 0).sum()) - num_new
    return Done(replace(done, record=_record(bundle, done, side, num_new)), num_new, num_updated)


def _among(bundle: Bundle, users: Ids, items: Ids) -> Bundle:
    """Return a recommender with more users and items, of whom nothing is known yet."""
    of_users, of_items = places_in(bundle.users, users), places_in(bundle.items, items)
    sizes, history, missing = (len(bundle.users), len(bundle.items)), bundle.history, bundle.missing
    degrees = bundle.stored_degrees
    return replace(
        bundle,
        scorer=scorer_among(bundle.scorer, of_users, of_items),
        train=pairs_among(bundle.train, users, items),
        valid=pairs_among(bundle.valid, users, items),
        test=pairs_among(bundle.test, users, items),
        history=None if history is None else pairs_among(history, users, items),
        about_items=bundle.about_items.gather(of_items),
        about_users=bundle.about_users.gather(of_users),
        weights=tables_among(bundle.weights, sizes, of_users, of_items),
        folded_users=users.encode(bundle.users.values)[bundle.folded_users].astype(np.int64),
        missing=None if missing is None else np.where(of_users >= 0, missing[of_users], 0),
        stored_degrees=None if degrees is None else np.where(of_items >= 0, degrees[of_items], 0),
    )


def _as_known(table: Table, known: Ids, side: Side) -> pl.Series:
    """Return the ids of a table in the type of those of the recommender."""
    if not len(table.ids):
        raise DataError(f"{table.path}: got no rows, expected at least one {side}")
    ids = table.ids.cast(known.values.dtype, strict=False)
    if ids.null_count():
        row = int(ids.is_null().arg_true()[0])
        raise DataError(
            f"{table.path}: got the {side} id {shown(table.ids[row])}, expected whole numbers, as"
            " the recommender has; use the same kind of ids"
        )
    return ids


def _record(before: Bundle, after: Bundle, side: Side, num_new: int) -> Record:
    record, earlier = after.record, before.record.added
    done = Added(
        items=(earlier.items if earlier else 0) + num_new * (side == "item"),
        users=(earlier.users if earlier else 0) + num_new * (side == "user"),
        library=__version__,
        commit=commit_of_code(),
    )
    changes = {
        "added": done,
        "fingerprint": after.all_pairs.fingerprint,
        "protocol": record.protocol + ("" if earlier else NOT_TESTED),
    }
    return record.model_copy(update=changes) if num_new else record
