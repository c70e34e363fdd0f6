"""Bundles on disk: a folder with a manifest, `bundle.json`, and the files that it names.

Tensors are safetensors files. Ids and per-user metrics are Parquet files. Data files carry their
checksum in their name and are written first. Replacing the manifest is the one step that makes a
bundle current. So a crash leaves the old bundle or the new one, and readers never see half of one.
Loading runs no code from the files. `bundle_manifest.py`, `bundle_check.py` and `bundle_scorer.py`
check what is read.
"""

import hashlib
import os
import time
from contextlib import suppress
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import safetensors
import safetensors.torch
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from mgformer.checksums import checksum_of_file, read_file
from mgformer.data.formats.parquet_check import check_parquet
from mgformer.data.interactions import Interactions
from mgformer.errors import BundleError
from mgformer.files import DAY, Kept, sha256_of, write_by_checksum, write_text
from mgformer.locks import locked
from mgformer.progress import phase
from mgformer.ranking.cold import Own
from mgformer.ranking.scorers import Scorer, vectors_of
from mgformer.runs.bundle import Bundle
from mgformer.runs.bundle_attributes import attributes_of, packed
from mgformer.runs.bundle_check import (
    Contents,
    check_per_user,
    check_score,
    check_values,
    ids_of,
    pairs_of,
)
from mgformer.runs.bundle_manifest import (
    FILES,
    FORMAT,
    File,
    checksum_of_manifest,
    read_checked,
    read_manifest,
    sealed,
)
from mgformer.runs.bundle_manifest import MANIFEST as MANIFEST
from mgformer.runs.bundle_scorer import read_scorer
from mgformer.runs.record import Record
from mgformer.runs.rules import Rules, read_rules
from mgformer.runs.tensors import tensors_in
from mgformer.version import __version__

PARTS = ("train", "valid", "test", "history")
VALUES = ("times", "places", "weights")
"""What a pair may have."""
ROWS_PER_BYTE, MOST_ROWS = 1 << 16, 1 << 31
"""Bounds on the rows of a table. Ids that are counted up compress well."""
Stamp = frozenset[tuple[str, int, int, int]]


def save_bundle(bundle: Bundle, folder: Path, key: bytes | None = None) -> None:
    """Write a bundle; it replaces an existing one in one step. With a key, it is signed.

    While it writes, another process that wants to write there gets a BusyError.
    """
    check_folder(folder)
    described, tensors = _pack_scorer(bundle.scorer)
    if bundle.own_vectors is not None:
        tensors["own.items"] = torch.from_numpy(bundle.own_vectors.items)
        tensors["own.vectors"] = bundle.own_vectors.vectors.contiguous()
    for name, tensor in tensors.items():
        if tensor.is_floating_point():
            check_values(str(folder), name, tensor)  # what could not be loaded is not written
    pairs = {}
    for name in PARTS:
        part: Interactions | None = getattr(bundle, name)
        if part is not None:
            pairs[f"{name}.indptr"] = torch.from_numpy(part.indptr)
            pairs[f"{name}.indices"] = torch.from_numpy(part.indices)
            for value in VALUES:
                if (values := getattr(part, value)) is not None:
                    pairs[f"{name}.{value}"] = torch.from_numpy(values)
    if len(bundle.folded_users):
        pairs["folded_users"] = torch.from_numpy(bundle.folded_users)
    if len(bundle.predicted_users):
        pairs["predicted_users"] = torch.from_numpy(bundle.predicted_users)
    if bundle.missing is not None:
        pairs["test.missing"] = torch.from_numpy(bundle.missing)
    if bundle.stored_degrees is not None:
        pairs["item_degrees"] = torch.from_numpy(bundle.stored_degrees)
    users, about_users = packed(bundle.users, bundle.about_users)
    items, about_items = packed(bundle.items, bundle.about_items)
    with phase("saving", None), locked(folder) as alone:
        files = {
            "scorer": _write_tensors(folder, "scorer", tensors),
            "pairs": _write_tensors(folder, "pairs", pairs),
            "users": _write_table(folder, "users", users),
            "items": _write_table(folder, "items", items),
        }
        if bundle.per_user is not None:
            files["per_user"] = _write_table(folder, "per_user", bundle.per_user)
        if bundle.weights:
            files["weights"] = _write_tensors(folder, "weights", dict(bundle.weights))
        manifest: dict[str, Any] = {
            "format": FORMAT,
            "library": __version__,
            "scorer": described,
            "files": files,
            "attributes": {"items": about_items, "users": about_users},
            "rules": bundle.rules.to_mapping(),
            "record": bundle.record.to_mapping(),
        }
        write_text(folder / MANIFEST, sealed(manifest, key))
        remove_old(folder, alone)


def remove_old(folder: Path, alone: bool) -> None:
    """Remove data files that the current manifest does not name.

    If no lock keeps this writer `alone`, another one may be about to name files that are there
    already. So recent files stay.
    """
    named = {file.name for file in read_manifest(folder).files.values()}
    for path in folder.iterdir():
        if _kind_of(path) in FILES and path.name not in named:
            with suppress(FileNotFoundError):
                if alone or time.time() - path.stat().st_mtime > DAY:
                    path.unlink()


def load_bundle(folder: Path, key: bytes | None = None) -> Bundle:
    """Read a bundle and check every byte, every index and every value.

    With a key, the bundle must be signed with it. Then nothing is mapped: what was checked cannot
    change any more, also if others can write to the folder.
    """
    manifest = read_manifest(folder, key)
    with phase("loading", None):
        # Bundles of the same data have pairs of the same name: another one may be copied over them.
        pairs = Contents(
            str(folder / manifest.files["pairs"].name),
            _tensors(folder, manifest.files["pairs"], private=True),
        )
        users = _table(folder, manifest.files["users"])
        items = _table(folder, manifest.files["items"])
        user_ids = ids_of(users, str(folder / manifest.files["users"].name))
        item_ids = ids_of(items, str(folder / manifest.files["items"].name))
        kinds = manifest.attributes
        about_users = attributes_of(
            users, kinds.get("users", {}), str(folder / manifest.files["users"].name)
        )
        about_items = attributes_of(
            items, kinds.get("items", {}), str(folder / manifest.files["items"].name)
        )
        parts = {
            name: pairs_of(pairs, name, user_ids, item_ids)
            for name in PARTS
            if name != "history" or f"{name}.indptr" in pairs
        }
        folded = _some(pairs, "folded_users", len(user_ids))
        of_nobody = _some(pairs, "predicted_users", len(user_ids))
        missing = None
        if "test.missing" in pairs:
            missing = pairs.numbers("test.missing", [torch.int64], 1 << 31, len(user_ids))
        degrees = None
        if "item_degrees" in pairs:
            degrees = pairs.numbers("item_degrees", [torch.int64], 1 << 31, len(item_ids))
        pairs.finish()
        tensors = Contents(
            str(folder / manifest.files["scorer"].name),
            _tensors(folder, manifest.files["scorer"], private=key is not None),
        )
        scorer = read_scorer(manifest.scorer, tensors, len(user_ids), len(item_ids))
        own = _own_vectors(tensors, scorer)
        tensors.finish()
        per_user, weights = None, {}
        if "per_user" in manifest.files:
            per_user = _table(folder, manifest.files["per_user"])
            check_per_user(per_user, user_ids, str(folder / manifest.files["per_user"].name))
        if "weights" in manifest.files:
            weights = _tensors(folder, manifest.files["weights"], private=key is not None)
    record = manifest.record_of(folder)
    rules = read_rules(manifest.rules, f"{folder / MANIFEST}: rules")
    check_score(record, [part for part in parts.values() if len(part)], str(folder))
    return Bundle(
        scorer=scorer,
        train=parts["train"],
        valid=parts["valid"],
        test=parts["test"],
        history=parts.get("history"),
        record=record,
        about_items=about_items,
        about_users=about_users,
        rules=rules,
        per_user=per_user,
        weights=weights,
        folded_users=folded,
        predicted_users=of_nobody,
        own_vectors=own,
        missing=missing,
        stored_degrees=degrees,
    )


def load_rules(folder: Path, key: bytes | None = None) -> Rules:
    """Return the rules of the bundle in a folder, without reading its tensors."""
    return read_rules(read_manifest(folder, key).rules, f"{folder / MANIFEST}: rules")


def load_record(folder: Path) -> Record:
    """Return the record of the bundle in a folder, without reading its tensors."""
    return read_manifest(folder).record_of(folder)


def manifest_checksum(folder: Path) -> str:
    """Return the checksum that identifies the bundle in a folder."""
    return checksum_of_manifest(read_checked(folder))


def stamp_of(folder: Path) -> Stamp:
    """Return a value that changes with any file of a bundle; it reads none of them."""
    found = set()
    for path in folder.glob("*"):
        if path.name == MANIFEST or _kind_of(path) in FILES:
            with suppress(FileNotFoundError):  # the file is being replaced
                seen = path.stat()
                found.add((path.name, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns))
    return frozenset(found)


def check_folder(folder: Path) -> None:
    """Refuse a folder that cannot be written to, before any work is done."""
    nearest = folder
    while not nearest.exists():
        nearest = nearest.parent
    if not nearest.is_dir():
        raise BundleError(f"{nearest}: is a file, expected a folder; choose another --out")
    if not os.access(nearest, os.W_OK):
        raise BundleError(f"{nearest}: no permission to write; choose another --out")


def _pack_scorer(scorer: Scorer) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the kind of a scorer with its numbers, and its tensors (several per sparse matrix).

    The tensors of a scorer inside another one are named `field/name`.
    """
    tensors: dict[str, Tensor] = {}
    settings: dict[str, Any] = {"kind": scorer.kind}
    for own in fields(scorer):  # type: ignore[arg-type]
        value = getattr(scorer, own.name)
        if isinstance(value, Scorer):
            settings[own.name], inner = _pack_scorer(value)
            tensors |= {f"{own.name}/{name}": tensor for name, tensor in inner.items()}
        elif isinstance(value, Tensor):
            tensors[own.name] = value.detach().contiguous()
        elif sp.issparse(value):
            for part in ("data", "indices", "indptr"):
                tensors[f"{own.name}.{part}"] = torch.from_numpy(getattr(value, part))
            tensors[f"{own.name}.shape"] = torch.tensor(value.shape)
        elif value is not None:
            settings[own.name] = value
    return settings, _unshared(tensors)


def _unshared(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Copy tensors that share memory with an earlier one: safetensors refuses to write those."""
    seen: set[int] = set()
    apart = {}
    for name, tensor in tensors.items():
        address = tensor.untyped_storage().data_ptr()
        apart[name] = tensor.clone() if address in seen and tensor.numel() else tensor
        seen.add(address)
    return apart


def _write_tensors(folder: Path, name: str, tensors: dict[str, Tensor]) -> dict[str, Any]:
    write = partial(safetensors.torch.save_file, tensors)
    return _described(write_by_checksum(folder, name, "safetensors", write))


def _write_table(folder: Path, name: str, table: pl.DataFrame) -> dict[str, Any]:
    return _described(write_by_checksum(folder, name, "parquet", table.write_parquet))


def _described(kept: Kept) -> dict[str, Any]:
    return {"name": kept.path.name, "bytes": kept.size, "checksum": kept.checksum}


def _kind_of(path: Path) -> str:
    """Return which file of a bundle this is, going by its name."""
    return path.name.rpartition("-")[0]


def _tensors(folder: Path, file: File, *, private: bool) -> dict[str, Tensor]:
    """Return the tensors of a file.

    They are mapped, which lets several processes share them, unless they are `private`. A mapped
    file must not be overwritten.
    """
    path = folder / file.name
    try:
        if private:
            return tensors_in(_content(path, file))
        _check_size(path, file)
        _check_checksum(path, file, checksum_of_file(path) if file.checksum else sha256_of(path))
        return safetensors.torch.load_file(path)
    except FileNotFoundError:
        raise _missing(path) from None
    except BundleError:
        raise
    except (safetensors.SafetensorError, LookupError, TypeError, ValueError) as error:
        raise _unusable(path, error) from None


def _table(folder: Path, file: File) -> pl.DataFrame:
    path = folder / file.name
    content = _content(path, file).tobytes()
    try:
        check_parquet(content, most_rows=min(ROWS_PER_BYTE * len(content), MOST_ROWS))
        return pl.read_parquet(content)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError) as error:
        raise _unusable(path, error) from None


def _content(path: Path, file: File) -> NDArray[np.uint8]:
    """Return the bytes of a file, which are those that were written."""
    try:
        _check_size(path, file)
        content, checksum = read_file(path)
    except FileNotFoundError:
        raise _missing(path) from None
    found = checksum if file.checksum else hashlib.sha256(content.data).hexdigest()
    _check_checksum(path, file, found)
    return content


def _check_size(path: Path, file: File) -> None:
    if not path.is_file():
        raise _missing(path)
    size = path.stat().st_size
    if size != file.bytes:
        raise BundleError(
            f"{path}: {size} bytes, expected {file.bytes}: truncated or not the file that was"
            " written; copy the folder again, or train again"
        )


def _check_checksum(path: Path, file: File, found: str) -> None:
    if found != (file.checksum or file.sha256):
        raise BundleError(
            f"{path}: changed since it was written (checksum); copy it again, or train again"
        )


def _missing(path: Path) -> BundleError:
    return BundleError(f"{path}: missing from the bundle; copy the folder whole, or train again")


def _unusable(path: Path, error: BaseException) -> BundleError:
    """Return the error for a file that was written as it is, but not by mgformer."""
    why = ascii(str(error).partition("\n")[0])[1:-1][:200]
    return BundleError(f"{path}: not a usable file of a bundle ({why}); train it again")


def _some(contents: Contents, name: str, below: int) -> NDArray[np.int64]:
    """Return some users or items by number, ascending; none if the file does not name them."""
    if name not in contents:
        return np.zeros(0, dtype=np.int64)
    found = contents.numbers(name, [torch.int64], below, None)
    if not (found[1:] > found[:-1]).all():
        contents.refuse(name, "numbers out of order, or twice", "ascending numbers")
    return found


def _own_vectors(contents: Contents, scorer: Scorer) -> Own | None:
    vectors = vectors_of(scorer)
    if vectors is None or "own.items" not in contents:
        return None
    items = _some(contents, "own.items", vectors.num_items)
    return Own(items, contents.values("own.vectors", len(items), vectors.num_varying))
