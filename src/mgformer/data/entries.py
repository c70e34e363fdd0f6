"""The entries of the catalog, from `catalog.toml`; imports the standard library only.

A dataset can be stored in several forms: as the public files, or as one plain table.
"""

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
    item_names: Sequence[str] = ()
    """A file with the item id and the name in its first columns, and its separator."""


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
    files: Sequence[RemoteFile] = ()
    """Files to download; none if the dataset is generated."""
    forms: Sequence[Form] = ()


def entry(name: str) -> CatalogEntry:
    """Return the catalog entry of a dataset."""
    if name not in CATALOG:
        known = ", ".join(CATALOG)
        raise DataError(f"unknown dataset {name!r}, known: {known}{did_you_mean(name, CATALOG)}")
    return CATALOG[name]


def _entry_from(facts: dict[str, Any]) -> CatalogEntry:
    files = [RemoteFile(**file) for file in facts.pop("files", ())]
    forms = [Form(**form) for form in facts.pop("forms", ())]
    return CatalogEntry(**facts, files=files, forms=forms)


_TABLES = tomllib.loads(Path(__file__).with_name("catalog.toml").read_text(encoding="utf-8"))
CATALOG: Mapping[str, CatalogEntry] = {n: _entry_from(facts) for n, facts in _TABLES.items()}
