"""Read a dataset: its interactions, its parts, and what is known about its items and users.

A source is a name of the catalog, a file, a folder, a data frame, or arrays. A folder holds one
file, a feedback log, or `train`, `valid` and `test` parts; all parts share their ids. Different
datasets share a name (Yelp2018, Gowalla, Beauty), so files of the catalog must have the counts of
the catalog.
"""

import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
import polars as pl
from numpy.typing import NDArray

from mgformer.data.attribute_file import Table, check_named, read_about
from mgformer.data.attributes import NO_ATTRIBUTES, Attributes, Side
from mgformer.data.entries import CATALOG, data_home, entry, local_form
from mgformer.data.formats import SUFFIXES, format_of, read_table, suffix_of
from mgformer.data.formats.feedback import is_feedback, read_feedback
from mgformer.data.formats.frames import read_arrays, read_frame
from mgformer.data.formats.packed import plain_name
from mgformer.data.formats.reading import Reading, say
from mgformer.data.ids import Ids, number
from mgformer.data.interactions import Interactions
from mgformer.data.options import DataConfig
from mgformer.errors import DataError, did_you_mean
from mgformer.progress import phase

if TYPE_CHECKING:
    import pandas as pd

log = logging.getLogger("mgformer")

_PART_NAMES = {name: name for name in ("train", "valid", "test")}
_BESIDE: dict[str, Side] = {"items": "item", "item_names": "item", "users": "user"}
"""Name of a file in a folder → what it is about."""
_PART_NAMES |= dict.fromkeys(("val", "validation", "dev"), "valid")


class About(TypedDict):
    """What is known about items and users."""

    about_items: Attributes
    about_users: Attributes


@dataclass(frozen=True, eq=False)
class Dataset:
    """Interactions with a name, given parts, and what is known about items and users."""

    name: str
    interactions: Interactions
    """All pairs, of all parts together."""
    parts: Mapping[str, Interactions] | None = None
    """Given parts: "train" and optionally "valid", "test"; they share ids."""
    about_items: Attributes = NO_ATTRIBUTES
    """[I] names and other attributes of items."""
    about_users: Attributes = NO_ATTRIBUTES
    """[U] attributes of users."""
    rows: pl.DataFrame | None = None
    """The rows of the source, before repeated pairs are merged; None unless they were asked for."""
    readings: Sequence[Reading] = ()
    """What was noticed while each file was read."""

    @cached_property
    def fingerprint(self) -> str:
        """Fingerprint of the interactions and, if parts are given, of the part of each pair."""
        if self.parts is None:
            return self.interactions.fingerprint
        pooled = _keys(self.interactions)
        digest = hashlib.sha256()
        for name in sorted(self.parts):
            digest.update(name.encode())
            digest.update(np.searchsorted(pooled, _keys(self.parts[name])).astype("<i8").tobytes())
        return f"{self.interactions.fingerprint}-{digest.hexdigest()[:6]}"

    def without_pairs(self) -> "Dataset":
        """Return the dataset without its pairs, once a split has its own; the fingerprint stays."""
        left = replace(self, interactions=self.interactions.no_pairs(), parts=None, rows=None)
        left.__dict__["fingerprint"] = self.fingerprint
        return left

    def attributes_for(self, items: Ids, users: Ids) -> About:
        """Return what is known about some items and users of the dataset."""
        own = self.interactions
        return About(
            about_items=self.about_items.for_ids(own.items, items),
            about_users=self.about_users.for_ids(own.users, users),
        )


def open_dataset(
    source: str | Path, options: DataConfig | None = None, *, keep_rows: bool = False
) -> Dataset:
    """Read a dataset given as a catalog name, a file, or a folder.

    A catalog name takes precedence over a file of the same name; write `./demo` for the file. (A
    `Path` drops the dot: pass a string or an absolute path.) With `keep_rows`, the dataset has the
    rows of the source too.
    """
    text = str(source)
    if text in CATALOG:
        return load_dataset(text, options, keep_rows=keep_rows)
    path = Path(source)
    if not path.exists():
        raise DataError(
            f"no dataset {text!r}: got neither a file, a folder, nor one of {', '.join(CATALOG)}"
            f"{did_you_mean(text, CATALOG)}"
        )
    return read_dataset(path, options, keep_rows=keep_rows)


def read_dataset(
    source: "Path | pl.DataFrame | pd.DataFrame | tuple[Any, ...]",
    options: DataConfig | None = None,
    name: str | None = None,
    *,
    keep_rows: bool = False,
    items_sep: str | None = None,
) -> Dataset:
    """Read a file, a folder, a data frame or arrays (users, items, times, weights).

    `items_sep` separates the fields of the file about items; it is guessed if not given.
    """
    options = options or DataConfig()
    about: dict[Side, Path | None] = {"item": options.items, "user": options.users}
    parts, readings = None, list[Reading]()
    with phase("reading", None):
        if isinstance(source, Path) and is_feedback(source):
            rows = read_feedback(source, options)
            interactions = Interactions.from_frame(rows)
        elif isinstance(source, Path):
            files, beside = _files_of(source) if source.is_dir() else ({"": source}, {})
            about = {side: path or beside.get(side) for side, path in about.items()}
            if "" in files:
                rows, reading = read_table(files[""], options)
                readings.append(reading)
                interactions = Interactions.from_frame(rows)
            else:
                rows, interactions, parts, readings = _read_parts(files, options)
        elif isinstance(source, tuple):
            rows = read_arrays(source, options)
            interactions = Interactions.from_frame(rows)
        else:
            rows = read_frame(source, options)
            interactions = Interactions.from_frame(rows)
        say(readings)
        if options.k_core > 1:
            before, interactions = len(interactions), interactions.core(options.k_core)
            if not len(interactions):
                raise DataError(
                    f"got no pairs in the {options.k_core}-core, expected some; "
                    f"lower --set data.k_core={options.k_core}"
                )
            counts = (len(interactions), before, interactions.num_users, interactions.num_items)
            message = "%d-core keeps %d of %d pairs: %d users, %d items"
            log.info(message, options.k_core, *counts)
        tables = {
            side: read_about(path, side, options, items_sep if side == "item" else None)
            for side, path in about.items()
            if path is not None
        }
    if name is None and isinstance(source, Path):
        name = source.resolve().name if source.is_dir() else source.name.partition(".")[0]
    dataset = Dataset(
        name or "data", interactions, parts, rows=rows if keep_rows else None, readings=readings
    )
    return with_tables(dataset, options, tables)


def with_tables(dataset: Dataset, options: DataConfig, tables: Mapping[Side, Table]) -> Dataset:
    """Return a dataset with what files know about its items and users."""
    check_named(options, list(tables.values()))
    changes: dict[str, Any] = {}
    if "item" in tables:
        changes["about_items"] = tables["item"].matched(dataset.interactions.items)
    if "user" in tables:
        changes["about_users"] = tables["user"].matched(dataset.interactions.users)
    return replace(dataset, **changes)


def load_dataset(
    name: str, options: DataConfig | None = None, *, keep_rows: bool = False
) -> Dataset:
    """Read a dataset of the catalog from the data home.

    `options` override those of the catalog. Without `options`, the counts of users, items and
    interactions must be those of the catalog.
    """
    options = options or DataConfig()
    folder = data_home() / name
    if not entry(name).forms:
        from mgformer.data.demo import demo_dataset  # which reads its table with this module

        dataset = demo_dataset(options, keep_rows=keep_rows)
    elif form := local_form(name):
        source, chosen, sep = folder / form.interactions, with_catalog(name, options), None
        if form.items and options.items is None:
            file, sep = (*form.items, None)[:2]
            chosen = chosen.model_copy(update={"items": folder / str(file)})
        dataset = read_dataset(source, chosen, name, keep_rows=keep_rows, items_sep=sep)
    else:
        raise DataError(f"{name} is not in {folder}; run: mgformer datasets fetch {name}")
    known, pairs = entry(name), dataset.interactions
    got = (pairs.num_users, pairs.num_items, len(pairs))
    expected = (known.num_users, known.num_items, known.num_interactions)
    if options == DataConfig() and got != expected:
        shape = "{:,} users × {:,} items, {:,} interactions"
        raise DataError(
            f"{folder}: got {shape.format(*got)}, expected {shape.format(*expected)} for {name}; "
            "different datasets share this name: "
            f"move these files away and run mgformer datasets fetch {name}"
        )
    return dataset


def with_catalog(name: str, options: DataConfig) -> DataConfig:
    """Return the options for a dataset of the catalog, overridden by the given ones."""
    form = local_form(name)
    known_order = {} if entry(name).chronological else {"order": "none"}
    own = {} if form is None else {**form.options, **known_order}
    return DataConfig.model_validate({**own, **options.model_dump(exclude_defaults=True)})


def _files_of(folder: Path) -> tuple[dict[str, Path], dict[Side, Path]]:
    """Return the file of each part, or a single file as part "", and those about items or users."""
    files: dict[str, Path] = {}
    others: list[Path] = []
    beside: dict[Side, Path] = {}
    for path in sorted(folder.iterdir()):
        pieces = plain_name(path).split(".")
        if not (pieces[0] and path.is_file() and suffix_of(path) in SUFFIXES):
            continue
        part = _PART_NAMES.get(pieces[-2], "")
        if part in files:
            raise DataError(
                f"{folder}: got both {files[part].name} and {path.name} as the {part} part, "
                "expected one; remove one"
            )
        if part:
            files[part] = path
        elif pieces[-2] in _BESIDE:
            beside[_BESIDE[pieces[-2]]] = path
        elif pieces[0] != "readme":
            others.append(path)
    if not files and len(others) == 1:
        return {"": others[0]}, beside
    if list(files) == ["train"] and not others:
        return {"": files["train"]}, beside
    if "train" not in files:
        found = ", ".join(path.name for path in sorted(folder.iterdir())[:12]) or "nothing"
        raise DataError(
            f"{folder}: got {found}, expected train.* with test.* (and valid.*), or exactly one "
            "data file; name the file itself, or rename the parts"
        )
    return {part: files[part] for part in ("train", "valid", "test") if part in files}, beside


def _read_parts(
    files: Mapping[str, Path], options: DataConfig
) -> tuple[pl.DataFrame, Interactions, dict[str, Interactions], list[Reading]]:
    """Read the parts of a dataset; return all rows and pairs together, and each part."""
    if options.k_core > 1:
        raise DataError(
            f"{files['train'].parent}: got data.k_core={options.k_core} with given parts, expected "
            "0, as dropping pairs changes the split; remove it, or put all pairs into one file"
        )
    formats = {part: format_of(path, options) for part, path in files.items()}
    # A LightGCN file whose users all have equally many items looks like a CSV. If one part is a
    # LightGCN file, all parts whose extension does not say otherwise are.
    if "lightgcn" in formats.values():
        formats |= {p: "lightgcn" for p, path in files.items() if SUFFIXES[suffix_of(path)] is None}
    tables = {
        part: read_table(path, options.model_copy(update={"format": formats[part]}))
        for part, path in files.items()
    }
    frames = {part: frame for part, (frame, _) in tables.items()}
    if all(name in ("parquet", "jsonl") for name in formats.values()):
        _refuse_mixed_ids(frames, files)
    if "place" in frames["train"].columns:  # the other parts may be sorted, but they come later
        frames = {
            part: frame.with_columns(place=pl.int_range(frame.height))
            for part, frame in frames.items()
        }
    shared = set.intersection(*(set(frame.columns) for frame in frames.values()))
    columns = [name for name in ("user", "item", "time", "place", "weight") if name in shared]
    if "place" in shared:  # the parts follow each other in time
        starts = np.cumsum([0, *(frame.height for frame in frames.values())]).tolist()
        frames = {
            part: frame.with_columns(pl.col("place") + start)
            for (part, frame), start in zip(frames.items(), starts, strict=False)
        }
    # Ids become text, and times floats, where parts differ in type.
    pooled = pl.concat([frame.select(columns) for frame in frames.values()], how="vertical_relaxed")
    users, items = number(pooled["user"])[0], number(pooled["item"])[0]
    parts = {
        part: Interactions.from_frame(frame.select(columns).cast(pooled.schema), users, items)
        for part, frame in frames.items()
    }
    _check_disjoint(parts, files)
    _check_known(parts, files)
    readings = [reading for _, reading in tables.values()]
    return pooled, reduce(Interactions.union, parts.values()), parts, readings


def _refuse_mixed_ids(frames: Mapping[str, pl.DataFrame], files: Mapping[str, Path]) -> None:
    for role in ("user", "item"):
        text = [files[part] for part, frame in frames.items() if frame[role].dtype == pl.String]
        numbers = [path for path in files.values() if path not in text]
        if text and numbers:
            raise DataError(
                f"{text[0]}: got {role} ids of text where {numbers[0].name} has whole numbers, "
                "expected one type in all parts; convert one of them"
            )


def _check_disjoint(parts: Mapping[str, Interactions], files: Mapping[str, Path]) -> None:
    for earlier, later in combinations(parts, 2):
        one, other = parts[earlier], parts[later]
        common = np.intersect1d(_keys(one), _keys(other), assume_unique=True)
        if len(common):
            user, item = divmod(int(common[0]), one.num_items)
            raise DataError(
                f"{files[later]}: got {len(common)} pairs that are also in {files[earlier].name}, "
                f"for example user {one.users.values[user]!r} with item "
                f"{one.items.values[item]!r}, expected no common pairs; remove them from one part"
            )


def _check_known(parts: Mapping[str, Interactions], files: Mapping[str, Path]) -> None:
    train = parts["train"]
    known_items = np.bincount(train.indices, minlength=train.num_items) > 0
    for name, part in parts.items():
        unknown = np.flatnonzero((np.diff(part.indptr) > 0) & (np.diff(train.indptr) == 0))
        if len(unknown):
            raise DataError(
                f"{files[name]}: got {len(unknown)} users without pairs in {files['train'].name}, "
                f"for example {train.users.values[int(unknown[0])]!r}, expected every user in "
                "train; remove them, or put all pairs into one file and let mgformer split it"
            )
        new_items = int((~known_items[np.unique(part.indices)]).sum())
        if new_items:
            message = "%s: %d items do not occur in %s; no model can learn them"
            log.warning(message, files[name], new_items, files["train"].name)


def _keys(interactions: Interactions) -> NDArray[np.int64]:
    return interactions.rows.astype(np.int64) * interactions.num_items + interactions.indices
