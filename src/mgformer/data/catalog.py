"""Datasets by name: list them, fetch them, read them; and the one way to open any dataset.

A dataset lives in `<data home>/<name>/`. Names mislead, several different datasets are called
Yelp2018, Gowalla or Beauty: so counts are part of an entry, and what is read must have them.
"""

import os
from dataclasses import replace
from pathlib import Path

import polars as pl

from mgformer.data.dataset import Dataset, read_dataset
from mgformer.data.demo import demo_dataset
from mgformer.data.download import download, extract_members, sha256_of
from mgformer.data.entries import CATALOG, Entry, Form
from mgformer.data.formats.readers import DataConfig
from mgformer.errors import DataError, did_you_mean


def data_home() -> Path:
    """Return the folder of datasets: $MGFORMER_DATA, else `mgformer` in the user's cache folder."""
    if home := os.environ.get("MGFORMER_DATA"):
        return Path(home).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "mgformer"


def names() -> list[str]:
    """Return the names of the known datasets."""
    return list(CATALOG)


def entry(name: str) -> Entry:
    """Return what is known about a dataset."""
    if name not in CATALOG:
        known = ", ".join(CATALOG)
        raise DataError(f"unknown dataset {name!r}, known: {known}{did_you_mean(name, CATALOG)}")
    return CATALOG[name]


def is_present(name: str) -> bool:
    """Return whether the dataset can be loaded without fetching it."""
    return not entry(name).forms or _local_form(name) is not None


def fetch(name: str) -> Path:
    """Download what a dataset lacks and return its folder.

    Nothing is done when the files of one form are there, so a home that cannot be written is fine
    then. The demo is generated and has no folder.
    """
    folder = data_home() / name
    if is_present(name):
        return folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = error.strerror or error
        raise DataError(
            f"cannot make {folder}: {reason}; set MGFORMER_DATA to a folder you can write to"
        ) from None
    for file in entry(name).files:
        target = folder / file.name
        if not target.exists():
            download(file.url, target, file.sha256)
        if file.members:
            extract_members(target, {inside: folder / to for inside, to in file.members.items()})
    return folder


def verify(name: str) -> dict[str, bool | None]:
    """Return for each local file whether its bytes are the known ones, None if none are known.

    Other bytes may hold the same data, in another order for instance; `load` checks counts.
    """
    form = _local_form(name)
    sums = form.files if form else {}
    folder = data_home() / name
    return {
        file: None if known is None else sha256_of(folder / file) == known
        for file, known in sums.items()
    }


def load(name: str, options: DataConfig | None = None) -> Dataset:
    """Read a dataset of the catalog from the data home.

    Options that are set replace what the catalog knows of the files. Without any, the dataset must
    have the users, items and interactions that its entry says.
    """
    options = options or DataConfig()
    folder = data_home() / name
    if not entry(name).forms:
        dataset = demo_dataset(options)
    elif form := _local_form(name):
        dataset = _read(name, form, folder, options)
    else:
        raise DataError(f"{name} is not in {folder}; run: mgformer datasets fetch {name}")
    if options == DataConfig():
        _check_counts(name, dataset, folder)
    return dataset


def open_dataset(source: str | Path, options: DataConfig | None = None) -> Dataset:
    """Read a dataset given as a catalog name, a file, or a folder.

    A catalog name means the catalog even where a file of that name lies in the current folder;
    write `./demo` for the file. (A `Path` drops the dot: give the text, or an absolute path.)
    """
    text = str(source)
    if text in CATALOG:
        return load(text, options)
    path = Path(source)
    if not path.exists():
        suggestion = did_you_mean(text, CATALOG)
        raise DataError(
            f"no dataset {text!r}: neither a file, a folder, nor one of {', '.join(CATALOG)}"
            f"{suggestion}"
        )
    return read_dataset(path, options)


def _local_form(name: str) -> Form | None:
    folder = data_home() / name
    for form in entry(name).forms:
        if all((folder / file).is_file() for file in form.files):
            return form
    return None


def _read(name: str, form: Form, folder: Path, options: DataConfig) -> Dataset:
    chosen = options.model_dump(exclude_defaults=True)
    dataset = read_dataset(folder / form.interactions, form.options.model_copy(update=chosen), name)
    if form.titles is None or options.item_names is not None:
        return dataset
    titles = form.titles(folder)
    items = dataset.interactions.items.values.cast(pl.String)
    named = items.replace_strict(titles, default=None, return_dtype=pl.String)
    return replace(dataset, item_names=named.rename("name"))


def _check_counts(name: str, dataset: Dataset, folder: Path) -> None:
    known, table = entry(name), dataset.interactions
    got = (table.num_users, table.num_items, len(table))
    expected = (known.num_users, known.num_items, known.num_interactions)
    if got != expected:
        shape = "{:,} users × {:,} items, {:,} interactions"
        raise DataError(
            f"{folder}: got {shape.format(*got)}, expected {shape.format(*expected)} for {name}; "
            "names mislead, several datasets are called Yelp2018: "
            f"move these files away and run mgformer datasets fetch {name}"
        )
