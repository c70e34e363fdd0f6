"""Bundles on disk: a folder with a manifest, `bundle.json`, and the files that it names.

Tensors are safetensors files. Ids and per-user metrics are Parquet files. Data files carry their
checksum in their name and are written first. Replacing the manifest is the one step that makes a
bundle current. So a crash leaves the old bundle or the new one, and readers never see half of one.
Loading runs no code from the files: kinds are looked up in a table, and every byte is checked.
"""

import hashlib
import json
import os
import time
from contextlib import suppress
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import safetensors
import safetensors.torch
import scipy.sparse as sp
import torch
from torch import Tensor

from mgformer.data.ids import Ids
from mgformer.data.interactions import Interactions
from mgformer.errors import BundleError
from mgformer.files import DAY, Kept, sha256_of, write_by_checksum, write_text
from mgformer.locks import locked
from mgformer.progress import phase
from mgformer.ranking.scorers import DotScorer, HistoryScorer, Scorer, SumScorer
from mgformer.runs.bundle import Bundle
from mgformer.runs.record import Record, read_record
from mgformer.version import __version__

FORMAT = 1
MANIFEST = "bundle.json"
SCORERS: dict[str, type[Scorer]] = {
    kind.kind: kind for kind in (DotScorer, HistoryScorer, SumScorer)
}
PARTS = ("train", "valid", "test", "history")
ORDERS = ("times", "places")
FILES = ("scorer", "pairs", "users", "items", "per_user", "weights")
Stamp = frozenset[tuple[str, int, int, int]]


def save_bundle(bundle: Bundle, folder: Path) -> None:
    """Write a bundle; it replaces an existing one in one step.

    While it writes, another process that wants to write there gets a BusyError.
    """
    check_folder(folder)
    described, tensors = _pack_scorer(bundle.scorer)
    pairs = {}
    for name in PARTS:
        part: Interactions | None = getattr(bundle, name)
        if part is not None:
            pairs[f"{name}.indptr"] = torch.from_numpy(part.indptr)
            pairs[f"{name}.indices"] = torch.from_numpy(part.indices)
            for order in ORDERS:
                if (values := getattr(part, order)) is not None:
                    pairs[f"{name}.{order}"] = torch.from_numpy(values)
    if len(bundle.folded_users):
        pairs["folded_users"] = torch.from_numpy(bundle.folded_users)
    if bundle.missing is not None:
        pairs["test.missing"] = torch.from_numpy(bundle.missing)
    items = pl.DataFrame({"id": bundle.items.values})
    if bundle.item_names is not None:
        items = items.with_columns(bundle.item_names.rename("name"))
    users = pl.DataFrame({"id": bundle.users.values})
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
        manifest = {
            "format": FORMAT,
            "library": __version__,
            "scorer": described,
            "files": files,
            "record": bundle.record.to_mapping(),
        }
        manifest["checksum"] = _manifest_checksum(manifest)
        write_text(folder / MANIFEST, json.dumps(manifest, indent=2) + "\n")
        _remove_old(folder, alone)


def _remove_old(folder: Path, alone: bool) -> None:
    """Remove data files that the current manifest does not name.

    Where there are no locks, another writer may be about to name files that are there already. So
    recent files stay.
    """
    named = {file["name"] for file in _read_manifest(folder)["files"].values()}
    for path in folder.iterdir():
        if _kind_of(path) in FILES and path.name not in named:
            with suppress(FileNotFoundError):
                if alone or time.time() - path.stat().st_mtime > DAY:
                    path.unlink()


def load_bundle(folder: Path) -> Bundle:
    """Read a bundle and check every byte."""
    manifest = _read_manifest(folder)
    with phase("loading", None):
        try:
            paths = {name: _checked(folder, file) for name, file in manifest["files"].items()}
            # A mapped file must not be overwritten. Bundles of the same data share the name of the
            # pairs file, so its tensors are copied: another bundle may replace the file.
            mapped = safetensors.torch.load_file(paths["pairs"])
            pairs = {name: tensor.clone() for name, tensor in mapped.items()}
            users, items = (pl.read_parquet(paths[name]) for name in ("users", "items"))
            scorer = _unpack_scorer(
                manifest["scorer"], safetensors.torch.load_file(paths["scorer"])
            )
            per_user = pl.read_parquet(paths["per_user"]) if "per_user" in paths else None
            weights = safetensors.torch.load_file(paths["weights"]) if "weights" in paths else {}
        except (
            KeyError,
            OSError,
            TypeError,
            safetensors.SafetensorError,
            pl.exceptions.PolarsError,
        ) as error:
            raise BundleError(f"{folder}: not a usable bundle ({error}); train it again") from None
    user_ids, item_ids = Ids(users["id"]), Ids(items["id"])

    def part(name: str) -> Interactions | None:
        if f"{name}.indptr" not in pairs:
            return None
        indptr, indices = pairs[f"{name}.indptr"].numpy(), pairs[f"{name}.indices"].numpy()
        found = (pairs.get(f"{name}.{order}") for order in ORDERS)
        times, places = (None if order is None else order.numpy() for order in found)
        return Interactions(user_ids, item_ids, indptr, indices, times, places)

    train, valid, test = part("train"), part("valid"), part("test")
    assert train is not None
    assert valid is not None
    assert test is not None
    names = items["name"] if "name" in items.columns else None
    folded = pairs.get("folded_users", torch.zeros(0, dtype=torch.int64))
    missing = pairs.get("test.missing")
    return Bundle(
        scorer=scorer,
        train=train,
        valid=valid,
        test=test,
        history=part("history"),
        item_names=names,
        record=read_record(manifest.get("record"), str(folder)),
        per_user=per_user,
        weights=weights,
        folded_users=folded.numpy(),
        missing=None if missing is None else missing.numpy(),
    )


def load_record(folder: Path) -> Record:
    """Return the record of the bundle in a folder, without reading its tensors."""
    return read_record(_read_manifest(folder).get("record"), str(folder))


def manifest_checksum(folder: Path) -> str:
    """Return the checksum that identifies the bundle in a folder."""
    return _manifest_checksum(_read_manifest(folder))


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


def _unpack_scorer(description: dict[str, Any], tensors: dict[str, Tensor]) -> Scorer:
    settings = dict(description)
    kind = settings.pop("kind")
    if kind not in SCORERS:
        raise BundleError(f"unknown kind of scorer {kind!r}; upgrade mgformer")
    values: dict[str, Any] = settings
    inside = {key.partition("/")[0] for key in tensors if "/" in key}
    for name in inside:
        inner = {
            key.partition("/")[2]: tensor
            for key, tensor in tensors.items()
            if key.startswith(f"{name}/")
        }
        values[name] = _unpack_scorer(values[name], inner)
    for name in {key.partition(".")[0] for key in tensors if "/" not in key}:
        if name in tensors:
            values[name] = tensors[name]
            continue
        data, indices, indptr, shape = (
            tensors[f"{name}.{part}"].numpy() for part in ("data", "indices", "indptr", "shape")
        )
        values[name] = sp.csr_array((data, indices, indptr), shape=tuple(shape))
    return SCORERS[kind](**values)


def _write_tensors(folder: Path, name: str, tensors: dict[str, Tensor]) -> dict[str, Any]:
    write = partial(safetensors.torch.save_file, tensors)
    return _described(write_by_checksum(folder, name, "safetensors", write))


def _write_table(folder: Path, name: str, table: pl.DataFrame) -> dict[str, Any]:
    return _described(write_by_checksum(folder, name, "parquet", table.write_parquet))


def _described(kept: Kept) -> dict[str, Any]:
    return {"name": kept.path.name, "bytes": kept.size, "sha256": kept.sha256}


def _kind_of(path: Path) -> str:
    """Return which file of a bundle this is, going by its name."""
    return path.name.rpartition("-")[0]


def _read_manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    if not path.is_file():
        raise BundleError(
            f"{folder}: no trained recommender here (no {MANIFEST});"
            f" train one with: mgformer train --out {folder}"
        )
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        written = int(manifest["format"])
        library = manifest["library"]
    except (ValueError, KeyError, TypeError):
        raise BundleError(f"{path}: damaged, not valid JSON; train it again") from None
    if written > FORMAT:
        raise BundleError(
            f"{path}: bundle format {written}, written by mgformer {library}; this is mgformer"
            f" {__version__}, which reads up to {FORMAT}: upgrade it"
        )
    if manifest.pop("checksum", None) != _manifest_checksum(manifest):
        raise BundleError(f"{path}: changed since it was written (checksum); train it again")
    assert isinstance(manifest, dict)
    return manifest


def _checked(folder: Path, file: dict[str, Any]) -> Path:
    path = folder / Path(file["name"]).name  # a name cannot lead out of the folder
    if not path.is_file():
        raise BundleError(f"{path}: missing from the bundle; copy the folder whole, or train again")
    size = path.stat().st_size
    if size != file["bytes"]:
        raise BundleError(
            f"{path}: {size} bytes, expected {file['bytes']}: truncated or not the file that was"
            " written; copy the folder again, or train again"
        )
    if sha256_of(path) != file["sha256"]:
        raise BundleError(
            f"{path}: changed since it was written (checksum); copy it again, or train again"
        )
    return path


def _manifest_checksum(manifest: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
