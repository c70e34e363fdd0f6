"""The datasets of the catalog, and where they are stored; imports the standard library only.

The facts are in `catalog.toml`. Each dataset is in a folder of its own name in the data home, in
one of several forms: as the public files, or as one plain table.
"""

import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mgformer.errors import DataError, did_you_mean


@dataclass(frozen=True)
class RemoteFile:
    """A public file to download into the dataset's folder."""

    url: str
    sha256: str = ""
    """Empty if it is not known; the counts of the dataset are checked in any case."""
    members: Mapping[str, str] = field(default_factory=dict)
    """For a zip file: the members to extract, and their names in the folder."""

    @property
    def name(self) -> str:
        """Name of the file in the folder."""
        return self.url.rpartition("/")[2]


@dataclass(frozen=True)
class Form:
    """A set of files that a dataset can be read from."""

    files: Mapping[str, str]
    """SHA-256 of each file, empty if it is not known."""
    interactions: str = ""
    """The file to read; empty if the folder holds train and test parts."""
    options: Mapping[str, object] = field(default_factory=dict)
    """Options of `DataConfig`."""
    items: Sequence[str] = ()
    """A file about items, and its separator. If it has no header, ids and names come first."""


@dataclass(frozen=True)
class CatalogEntry:
    """The facts about one dataset."""

    title: str
    num_users: int
    num_items: int
    num_interactions: int
    licence: str
    citation: str
    source: str
    """Web page of the dataset."""
    chronological: bool = False
    """Whether rows without times stand in order of time."""
    files: Sequence[RemoteFile] = ()
    """Files to download; none if the dataset is generated."""
    forms: Sequence[Form] = ()


def entry(name: str) -> CatalogEntry:
    """Return the catalog entry of a dataset."""
    if name not in CATALOG:
        known = ", ".join(CATALOG)
        raise DataError(f"unknown dataset {name!r}, known: {known}{did_you_mean(name, CATALOG)}")
    return CATALOG[name]


def data_home() -> Path:
    """Return the folder of datasets: $MGFORMER_DATA, else `mgformer` in the user's cache folder."""
    if home := os.environ.get("MGFORMER_DATA"):
        return Path(home).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "mgformer"


def local_form(name: str) -> Form | None:
    """Return the first form of a dataset whose files are all in the data home."""
    folder = data_home() / name
    for form in entry(name).forms:
        if all((folder / file).is_file() for file in form.files):
            return form
    return None


def is_present(name: str) -> bool:
    """Return whether a dataset can be read without a download; generated ones always can."""
    return not entry(name).forms or local_form(name) is not None


def _entry_from(facts: dict[str, Any]) -> CatalogEntry:
    files = [RemoteFile(**file) for file in facts.pop("files", ())]
    forms = [Form(**form) for form in facts.pop("forms", ())]
    return CatalogEntry(**facts, files=files, forms=forms)


_TABLES = tomllib.loads(Path(__file__).with_name("catalog.toml").read_text(encoding="utf-8"))
CATALOG: Mapping[str, CatalogEntry] = {n: _entry_from(facts) for n, facts in _TABLES.items()}
