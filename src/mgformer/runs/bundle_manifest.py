"""The manifest of a bundle, `bundle.json`: which files it has, their checksums, and its record.

Nothing in it is trusted before it is checked: types, names, checksum and, if a key is given, the
signature.
"""

import hashlib
import json
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mgformer.data.options import AttributeKind
from mgformer.errors import BundleError
from mgformer.runs.record import Record, read_record
from mgformer.signatures import is_signed, signature_of
from mgformer.version import __version__

FORMAT = 3
"""Format 1 had plain SHA-256 checksums of files, and format 2 had no attributes but the names of
items. Both are still read."""
MANIFEST = "bundle.json"
REQUIRED = ("scorer", "pairs", "users", "items")
FILES = (*REQUIRED, "per_user", "weights")
LARGEST = 16 << 20
"""Bytes of the largest manifest that is read."""
DEEPEST = 32
"""Levels of the deepest nesting that is read."""

Hexadecimal = Annotated[str, Field(pattern=r"\A[0-9a-f]{64}\z")]


class File(BaseModel):
    """A file of a bundle."""

    model_config = ConfigDict(frozen=True, strict=True, use_attribute_docstrings=True)

    name: str = Field(pattern=r"\A[A-Za-z0-9_][A-Za-z0-9_.-]{0,200}\z")
    """A plain name: it cannot lead out of the folder."""
    bytes: int = Field(ge=0)
    checksum: Hexadecimal | None = None
    """As checksums.py computes it."""
    sha256: Hexadecimal | None = None
    """Of the whole file; only format 1 has it."""


class Column(BaseModel):
    """What a column of the items or the users holds."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    kind: AttributeKind
    private: bool = False


class Manifest(BaseModel):
    """A manifest whose types are as expected."""

    model_config = ConfigDict(frozen=True, strict=True)

    scorer: dict[str, Any]
    files: dict[Literal["scorer", "pairs", "users", "items", "per_user", "weights"], File]
    attributes: dict[Literal["items", "users"], dict[str, Column]] = {}
    rules: dict[str, Any] = {}
    record: dict[str, Any]

    def record_of(self, folder: Path) -> Record:
        """Return the record of the run."""
        return read_record(self.record, str(folder))


def sealed(manifest: dict[str, Any], key: bytes | None = None) -> str:
    """Return the text of a manifest with its checksum and, if a key is given, a signature."""
    whole = {name: v for name, v in manifest.items() if name not in ("checksum", "signature")}
    if key is not None:
        whole["signature"] = signature_of(_content(whole), key)
    whole["checksum"] = checksum_of_manifest(whole)
    return json.dumps(whole, indent=2) + "\n"


def checksum_of_manifest(manifest: dict[str, Any]) -> str:
    """Return the checksum of a manifest, which identifies the bundle."""
    without = {name: value for name, value in manifest.items() if name != "checksum"}
    return hashlib.sha256(_content(without)).hexdigest()


def read_manifest(folder: Path, key: bytes | None = None) -> Manifest:
    """Read a manifest and check it; with a key, its signature must be right too."""
    path, whole = folder / MANIFEST, read_checked(folder)
    if key is not None:
        signed = {name: v for name, v in whole.items() if name not in ("checksum", "signature")}
        if "signature" not in whole:
            raise BundleError(f"{path}: has no signature, but one is required; sign it with --sign")
        if not is_signed(_content(signed), whole["signature"], key):
            raise BundleError(
                f"{path}: its signature was not made with this key; do not use the bundle, or give"
                " the key that it was signed with"
            )
    try:
        manifest = Manifest.model_validate(whole)
    except ValidationError as error:
        problem = error.errors()[0]
        where = ascii(".".join(map(str, problem["loc"])))[1:-1]
        raise BundleError(f"{path}: {where}: {problem['msg']}; train it again") from None
    for name in REQUIRED:
        if name not in manifest.files:
            raise BundleError(f"{path}: names no file for {name}; train it again")
    return manifest


def read_checked(folder: Path) -> dict[str, Any]:
    """Read the JSON of a manifest and check its format and checksum."""
    path = folder / MANIFEST
    if not path.is_file():
        raise BundleError(
            f"{folder}: no trained recommender here (no {MANIFEST});"
            f" train one with: mgformer train --out {folder}"
        )
    size = path.stat().st_size
    if size > LARGEST:
        raise BundleError(f"{path}: {size:,} bytes, expected at most {LARGEST:,}; train it again")
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        written = manifest["format"]
        if not isinstance(manifest, dict) or type(written) is not int or written < 1:
            raise ValueError
        if _is_deep(manifest):
            raise RecursionError
        library, checksum = manifest.get("library"), checksum_of_manifest(manifest)
    except (ValueError, KeyError, TypeError, RecursionError):
        raise BundleError(f"{path}: damaged, not valid JSON; train it again") from None
    if written > FORMAT:
        by = library if isinstance(library, str) and library.isprintable() else "another version"
        raise BundleError(
            f"{path}: bundle format {written}, written by mgformer {by}; this is mgformer"
            f" {__version__}, which reads up to {FORMAT}: upgrade it"
        )
    if manifest.get("checksum") != checksum:
        raise BundleError(f"{path}: changed since it was written (checksum); train it again")
    return manifest


def _content(manifest: dict[str, Any]) -> bytes:
    return json.dumps(manifest, sort_keys=True).encode()


def _is_deep(value: object) -> bool:
    """Return whether JSON is nested deeper than any manifest, without recursion."""
    level = [value]
    for _ in range(DEEPEST):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return False
    return True
