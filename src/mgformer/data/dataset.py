"""A named dataset: its pairs, the parts they came in, and what its items are called.

A source is a file, a folder with `train`, `valid` and `test` parts or a single file, a data
frame, or arrays. Parts are numbered together, so that an id means the same in all of them.
"""

import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from mgformer.data.formats.readers import (
    SUFFIXES,
    TYPED,
    DataConfig,
    format_of,
    frame_from,
    read_frame,
)
from mgformer.data.ids import number
from mgformer.data.interactions import Interactions
from mgformer.data.item_names import read_item_names
from mgformer.errors import DataError
from mgformer.progress import phase

if TYPE_CHECKING:
    import pandas as pd

log = logging.getLogger("mgformer")

_PART_NAMES = {
    "train": "train",
    "valid": "valid",
    "val": "valid",
    "validation": "valid",
    "dev": "valid",
    "test": "test",
}
_NAMES_STEMS = ("items", "item_names")


@dataclass(frozen=True, eq=False)
class Dataset:
    """Interactions with a name, the parts they were given in, and names of items."""

    name: str
    interactions: Interactions
    """All pairs, of all parts together."""
    parts: Mapping[str, Interactions] | None = None
    """Given parts by name: "train", and "valid" and "test" where there are; they share ids."""
    item_names: pl.Series | None = None
    """[I] what each item is called; null where that is not known."""

    @cached_property
    def fingerprint(self) -> str:
        """The fingerprint of the pairs and, if parts are given, of which part each is in."""
        if self.parts is None:
            return self.interactions.fingerprint
        pooled = _keys(self.interactions)
        digest = hashlib.sha256()
        for name in sorted(self.parts):
            digest.update(name.encode())
            digest.update(np.searchsorted(pooled, _keys(self.parts[name])).astype("<i8").tobytes())
        return f"{self.interactions.fingerprint}-{digest.hexdigest()[:6]}"

    def name_of(self, item: int) -> str:
        """Return what an item is called, or its id if no name is known."""
        name = None if self.item_names is None else self.item_names[item]
        return str(self.interactions.items.values[item]) if name is None else str(name)


def read_dataset(
    source: "Path | pl.DataFrame | pd.DataFrame | tuple[Any, ...]",
    options: DataConfig | None = None,
    name: str | None = None,
) -> Dataset:
    """Read a file, a folder, a data frame or arrays (users, items, times, weights)."""
    options = options or DataConfig()
    names_file = options.item_names
    parts = None
    with phase("reading", None):
        if isinstance(source, Path) and source.is_dir():
            files, beside = _files_of(source)
            names_file = names_file or beside
            if "" in files:
                interactions = Interactions.from_frame(read_frame(files[""], options))
            else:
                _refuse_core(options, source)
                interactions, parts = _read_parts(files, options)
        elif isinstance(source, Path):
            interactions = Interactions.from_frame(read_frame(source, options))
        elif isinstance(source, tuple):
            interactions = Interactions.from_frame(_frame_of_arrays(source, options))
        else:
            interactions = Interactions.from_frame(frame_from(source, options))
        if options.k_core > 1:
            interactions = _core(interactions, options.k_core)
        item_names = None if names_file is None else read_item_names(names_file, interactions.items)
    if name is None:
        name = _name_from(source) if isinstance(source, Path) else "data"
    return Dataset(name, interactions, parts, item_names)


def _name_from(path: Path) -> str:
    return path.resolve().name if path.is_dir() else path.name.partition(".")[0]


def _frame_of_arrays(arrays: tuple[Any, ...], options: DataConfig) -> pl.DataFrame:
    if not 2 <= len(arrays) <= 4:
        raise DataError(f"got {len(arrays)} arrays, expected users, items[, times[, weights]]")
    roles = dict(zip(("user", "item", "time", "weight"), arrays, strict=False))
    given = {role: values for role, values in roles.items() if values is not None}
    lengths = {role: len(values) for role, values in given.items()}
    if len(set(lengths.values())) > 1:
        raise DataError(f"got arrays of different lengths {lengths}, expected one value per pair")
    try:
        frame = pl.DataFrame(given, strict=True)
    except TypeError as error:
        raise DataError(
            f"got values of mixed types in one array ({error}), expected all text or all numbers"
        ) from None
    # Arrays come in a fixed order, so options that name columns do not concern them.
    return frame_from(frame, DataConfig(min_rating=options.min_rating))


def _refuse_core(options: DataConfig, folder: Path) -> None:
    if options.k_core > 1:
        raise DataError(
            f"{folder}: got data.k_core={options.k_core} with given parts, expected 0, since "
            "dropping pairs would change the given split; leave it out, or give all pairs in one "
            "file"
        )


def _core(interactions: Interactions, k: int) -> Interactions:
    core = interactions.core(k)
    if not len(core):
        raise DataError(f"got no pairs in the {k}-core, expected some; lower --set data.k_core={k}")
    counts = (k, len(core), len(interactions), core.num_users, core.num_items)
    log.info("%d-core keeps %d of %d pairs: %d users, %d items", *counts)
    return core


def _files_of(folder: Path) -> tuple[dict[str, Path], Path | None]:
    """Return the file of each part, or a single file as part "", and a file of item names."""
    files: dict[str, Path] = {}
    others: list[Path] = []
    names_file = None
    for path in sorted(folder.iterdir()):
        pieces = path.name.lower().removesuffix(".gz").split(".")
        is_data = path.is_file() and f".{pieces[-1]}" in SUFFIXES and len(pieces) > 1 and pieces[0]
        part = _PART_NAMES.get(pieces[-2]) if is_data else None
        if part is not None:
            if part in files:
                raise DataError(
                    f"{folder}: got both {files[part].name} and {path.name} as the {part} part, "
                    "expected one; remove one"
                )
            files[part] = path
        elif is_data and pieces[-2] in _NAMES_STEMS:
            names_file = path
        elif is_data and pieces[0] != "readme":
            others.append(path)
    if not files and len(others) == 1:
        return {"": others[0]}, names_file
    if list(files) == ["train"] and not others:
        return {"": files["train"]}, names_file
    if "train" not in files:
        found = ", ".join(path.name for path in sorted(folder.iterdir())[:12]) or "nothing"
        raise DataError(
            f"{folder}: got {found}, expected train.* with test.* (and valid.*), or exactly one "
            "data file; name the file itself, or rename the parts"
        )
    return files, names_file


def _read_parts(
    files: Mapping[str, Path], options: DataConfig
) -> tuple[Interactions, dict[str, Interactions]]:
    formats = {part: format_of(path, options) for part, path in files.items()}
    # A part where all users have equally many items does not show by itself that it has lists.
    if "lightgcn" in formats.values():
        for part, path in files.items():
            if SUFFIXES[Path(path.name.lower().removesuffix(".gz")).suffix] is None:
                formats[part] = "lightgcn"
    order = [part for part in ("train", "valid", "test") if part in files]
    frames = {}
    for part in order:
        exact = options.model_copy(update={"format": formats[part]})
        frames[part] = read_frame(files[part], exact)
    shared = [
        column
        for column in ("user", "item", "time", "weight")
        if all(column in frame.columns for frame in frames.values())
    ]
    all_typed = all(formats[part] in TYPED for part in order)
    types = {role: _common_type(role, frames, files, all_typed) for role in ("user", "item")}
    if "time" in shared:
        whole = all(frame["time"].dtype == pl.Int64 for frame in frames.values())
        types["time"] = pl.Int64() if whole else pl.Float64()
    pooled = pl.concat([_cast(frames[part].select(shared), types) for part in order])
    heights = [frames[part].height for part in order]
    return _split_as_given(pooled, order, heights, files)


def _cast(frame: pl.DataFrame, types: Mapping[str, pl.DataType]) -> pl.DataFrame:
    return frame.with_columns(pl.col(column).cast(dtype) for column, dtype in types.items())


def _common_type(
    column: str, frames: Mapping[str, pl.DataFrame], files: Mapping[str, Path], all_typed: bool
) -> pl.DataType:
    whole = {part: frame[column].dtype == pl.Int64 for part, frame in frames.items()}
    if all(whole.values()):
        return pl.Int64()
    if any(whole.values()) and all_typed:
        number_part = next(part for part in whole if whole[part])
        text_part = next(part for part in whole if not whole[part])
        raise DataError(
            f"{files[text_part]}: got {column} ids of text where {files[number_part].name} has "
            "whole numbers, expected one type in all parts; convert one of them"
        )
    return pl.String()


def _split_as_given(
    pooled: pl.DataFrame, order: Sequence[str], heights: Sequence[int], files: Mapping[str, Path]
) -> tuple[Interactions, dict[str, Interactions]]:
    users, rows = number(pooled["user"])
    items, columns = number(pooled["item"])
    times = pooled["time"].to_numpy() if "time" in pooled.columns else None
    weights = None
    if "weight" in pooled.columns:
        weights = pooled["weight"].cast(pl.Float32).to_numpy()
    parts: dict[str, Interactions] = {}
    end = 0
    for part, height in zip(order, heights, strict=True):
        span = slice(end, end := end + height)
        part_times = None if times is None else times[span]
        part_weights = None if weights is None else weights[span]
        parts[part] = Interactions.from_numbers(
            users, items, rows[span], columns[span], part_times, part_weights
        )
    _check_disjoint(parts, files)
    _check_known(parts, files)
    together = parts[order[0]]
    for part in order[1:]:
        together = together.union(parts[part])
    return together, parts


def _check_disjoint(parts: Mapping[str, Interactions], files: Mapping[str, Path]) -> None:
    order = list(parts)
    for later in range(len(order)):
        for earlier in range(later):
            one, other = parts[order[earlier]], parts[order[later]]
            common = np.intersect1d(_keys(one), _keys(other), assume_unique=True)
            if len(common):
                user, item = divmod(int(common[0]), one.num_items)
                example = (one.users.values[user], one.items.values[item])
                raise DataError(
                    f"{files[order[later]]}: got {len(common)} pairs that are also in "
                    f"{files[order[earlier]].name}, for example user {example[0]!r} with item "
                    f"{example[1]!r}, expected parts without common pairs; remove them from one"
                )


def _check_known(parts: Mapping[str, Interactions], files: Mapping[str, Path]) -> None:
    train = parts["train"]
    known_items = np.bincount(train.indices, minlength=train.num_items) > 0
    for name, part in parts.items():
        strangers = np.flatnonzero((np.diff(part.indptr) > 0) & (np.diff(train.indptr) == 0))
        if len(strangers):
            example = train.users.values[int(strangers[0])]
            raise DataError(
                f"{files[name]}: got {len(strangers)} users without pairs in "
                f"{files['train'].name}, for example {example!r}, expected every user in both; "
                "remove them, or give all pairs in one file to be split"
            )
        new_items = int((~known_items[np.unique(part.indices)]).sum())
        if new_items:
            message = "%s: %d items do not occur in %s; no model can learn them"
            log.warning(message, files[name], new_items, files["train"].name)


def _keys(interactions: Interactions) -> NDArray[np.int64]:
    return interactions.rows.astype(np.int64) * interactions.num_items + interactions.indices
