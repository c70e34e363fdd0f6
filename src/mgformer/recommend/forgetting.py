"""Forget users in a folder: in every run below it, and in every file that may name them.

The bundle of a run is replaced last. So after an interruption, the same command finishes the work.

    rewritten   bundles, records, figures per user, lists of users, exported user vectors, and the
                logs of a service, which may be writing them
    removed     checkpoints, reports, parts and drafts of unfinished work: they can be made again
    kept        files without anything about single users, such as logs and item vectors

Files that mgformer did not write are left alone, and the result lists them.
"""

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import polars as pl

from mgformer.data.formats.feedback import forget_in, is_log, logs_in, users_in
from mgformer.data.ids import ExternalId
from mgformer.errors import BundleError, DataError
from mgformer.files import DRAFTS, replacing, write_text
from mgformer.locks import NAME as LOCK
from mgformer.locks import locked
from mgformer.recommend.batch import WRITERS
from mgformer.recommend.lists import unknown_id
from mgformer.runs.bundle import Bundle
from mgformer.runs.bundle_files import load_bundle, remove_old, save_bundle
from mgformer.runs.bundle_manifest import FILES, MANIFEST
from mgformer.runs.folder import PER_USER, RECORD
from mgformer.runs.forget import forget
from mgformer.training.checkpoint import NAME as CHECKPOINT

Action = Literal["rewritten", "removed", "kept", "not ours"]
WITHOUT_USERS = {
    "log.jsonl", "best.toml", "trials.json", "items.faiss", "fold_in.onnx", "item_ids.parquet",
    "item_vectors.parquet", "items.npz", "item_weights.parquet", "item_weights.npz",
    "item_weights.npy", "guide.parquet", "guide.npz", "guide.npy", "scores.onnx",
}  # fmt: skip
"""Files that hold nothing about single users."""
STALE = (CHECKPOINT, "report.html", "MODEL_CARD.md")
"""Files that are removed: they cannot be changed, or they would tell what is no longer true."""


class Change(NamedTuple):
    """What happened to a file, named by its path in the folder."""

    file: str
    action: Action


class Done(NamedTuple):
    """What was forgotten."""

    users: int
    pairs: int
    changes: list[Change]


def forget_users(folder: Path, users: Sequence[ExternalId], feedback: Path | None = None) -> Done:
    """Remove users from a run, or from all runs below a folder.

    Args:
        folder: Holds a run, or runs somewhere below.
        users: Their ids. Each must be known in one of the runs, or in the logs.
        feedback: Folder of the logs of a service, which may be running.
    """
    logs = [] if feedback is None else logs_in(feedback)
    if feedback is not None and not logs:
        raise DataError(f"{feedback}: no log of feedback here; give the folder of serve --feedback")
    wanted = list(dict.fromkeys(str(user) for user in users))
    files = [path.relative_to(folder) for path in sorted(folder.rglob("*")) if path.is_file()]
    finished = [file for file in files if not _is_unfinished(file)]
    runs = [folder / file.parent for file in finished if file.name == MANIFEST]
    if not runs and all(file.name != RECORD for file in finished):
        raise BundleError(f"{folder}: no run here or below; give the folder of a run")
    for run in runs:  # a save that was killed leaves the files that it has replaced
        with locked(run) as alone:
            remove_old(run, alone)
    bundles = {run: load_bundle(run) for run in runs}
    numbers = {run: bundle.users.encode(wanted) for run, bundle in bundles.items()}
    own_logs = [folder / file for file in finished if is_log(folder / file)]
    logged = users_in([*logs, *own_logs])
    is_known = np.any([found >= 0 for found in numbers.values()], axis=0)
    unknown = np.flatnonzero(~(is_known | np.array([user in logged for user in wanted])))
    if bundles and len(unknown):  # a run that kept only its figures does not list its users
        more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
        raise unknown_id("user", next(iter(bundles.values())).users, wanted[unknown[0]], more)
    # All bundles are made before any file changes: an error leaves the folder as it was.
    after = {
        run: forget(bundles[run], found[found >= 0])
        for run, found in numbers.items()
        if (found >= 0).any()
    }
    changes = [
        Change(str(file), _clean(folder, file, wanted, after))
        for file in files
        # Writing one file removes the drafts that killed processes left beside it.
        if (folder / file).is_file() and file.name != LOCK and not _in_bundle(folder / file)
    ]
    for path in logs:
        if path.resolve().is_relative_to(folder.resolve()):
            continue  # it was one of the files above
        changes.append(Change(str(path), _clean_log(path, wanted)))
    for run, bundle in after.items():
        save_bundle(bundle, run)
        changes.append(Change(str((run / MANIFEST).relative_to(folder)), "rewritten"))
    for left in [path for path in folder.rglob(".*") if _is_left(path.name) and path.is_dir()]:
        shutil.rmtree(left, ignore_errors=True)
    num_pairs = sum(
        len(bundles[run].all_pairs) - len(bundle.all_pairs) for run, bundle in after.items()
    )
    return Done(len(wanted), num_pairs, changes)


def _in_bundle(path: Path) -> bool:
    kind = path.name.rpartition("-")[0]
    return path.name == MANIFEST or (kind in FILES and (path.parent / MANIFEST).is_file())


def _is_left(name: str) -> bool:
    """Whether a folder of this name holds drafts, or parts of lists."""
    return DRAFTS.fullmatch(name) is not None or (name[0] == "." and name.endswith(".parts"))


def _is_unfinished(file: Path) -> bool:
    """Whether a file, named by its path in the folder, is a draft or a part of lists."""
    is_draft = file.name[0] == "." and file.suffix == ".tmp"
    return is_draft or any(_is_left(name) for name in file.parts[:-1])


def _clean(folder: Path, file: Path, users: Sequence[str], after: dict[Path, Bundle]) -> Action:
    """Remove users from a file, named by its path in the folder, or remove the file."""
    path = folder / file
    if file.name in STALE or _is_unfinished(file):
        path.unlink()
        return "removed"
    if file.name in WITHOUT_USERS or "tensorboard" in file.parts:
        return "kept"
    if path.name == RECORD and path.parent in after:
        record = after[path.parent].record.to_mapping()
        write_text(path, json.dumps(record, indent=2))
        return "rewritten"
    if path.name == RECORD:
        return "kept"
    if path.name == "vectors.npz":
        return _clean_arrays(path, users)
    if is_log(path):
        return _clean_log(path, users)
    column = "id" if path.name == "user_vectors.parquet" else "user"
    if path.suffix in READERS:
        return _clean_table(path, users, column)
    return "not ours"


def _clean_log(path: Path, users: Sequence[str]) -> Action:
    """Leave out the lines of users in a log."""
    return "rewritten" if forget_in(path, users) else "kept"


READERS: dict[str, Callable[[Path], pl.DataFrame]] = {
    ".parquet": pl.read_parquet,
    # Ids are text here: nothing is guessed, so every other cell is written as it was read.
    ".csv": lambda path: pl.read_csv(path, infer_schema=False),
    ".jsonl": pl.read_ndjson,
}


def _clean_table(path: Path, users: Sequence[str], column: str) -> Action:
    """Leave out the rows of users in a table with a column of users."""
    try:
        table = READERS[path.suffix](path)
    except (OSError, pl.exceptions.PolarsError):
        if path.name != PER_USER:
            return "not ours"
        path.unlink()
        return "removed"
    if column not in table.columns:
        return "not ours"
    is_gone = pl.col(column).cast(pl.String).is_in(users)
    rest = table.filter(~is_gone.fill_null(False))  # the lists of histories name nobody
    if len(rest) == len(table):
        return "kept"
    with replacing(path) as draft:
        WRITERS[path.suffix](rest.lazy(), draft)
    return "rewritten"


def _clean_arrays(path: Path, users: Sequence[str]) -> Action:
    """Leave out the rows of users in exported vectors."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = dict(file)
        keep = ~np.isin(arrays["user_ids"].astype(str), users)
    except (OSError, ValueError, KeyError):
        return "not ours"
    arrays |= {name: arrays[name][keep] for name in ("users", "user_ids")}
    with replacing(path) as draft, draft.open("wb") as stream:
        np.savez(stream, **arrays)
    return "rewritten"
