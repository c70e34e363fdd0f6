"""Top-k lists of many users into one file, in memory that does not grow with their number.

Blocks of users are ranked one after another and kept as parts beside the target. The target is put
together from them at the end and appears whole. Interrupted, the same question goes on with the
parts there are; another question does not see them. What lies beside a target that could not be
finished is removed when one is.
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from mgformer.errors import ConfigError
from mgformer.progress import phase, quietly
from mgformer.recommend.recommender import Recommender

BLOCK_USERS = 1 << 16
FINGERPRINT = 12
"""Letters that tell the parts of one question from those of another."""
COLUMNS = ("user", "rank", "item", "score")
WRITERS: dict[str, Callable[[pl.LazyFrame, Path], object]] = {
    ".parquet": lambda lists, path: lists.sink_parquet(path),
    ".csv": lambda lists, path: lists.sink_csv(path),
    ".jsonl": lambda lists, path: lists.sink_ndjson(path),
}


def check_target(target: Path) -> None:
    """Refuse a place where lists cannot be written."""
    if target.suffix not in WRITERS:
        raise ConfigError(f"--out {target}: expected a name ending in {', '.join(WRITERS)}")
    if target.is_dir():
        raise ConfigError(f"--out {target}: is a folder; give the name of a file")
    if not target.parent.is_dir():
        raise ConfigError(f"--out {target}: no folder {target.parent}; make it first")


def write_lists(
    recommender: Recommender,
    users: NDArray[np.int32],
    k: int,
    target: Path,
    *,
    candidates: NDArray[np.int32] | None = None,
    exclude: NDArray[np.int32] | Sequence[int] = (),
    exclude_seen: bool = True,
) -> None:
    """Write user, rank, item and score of the k best items of users, by number.

    Args:
        recommender: The trained recommender.
        users: Numbers of users.
        k: Length of a list.
        target: A .parquet, .csv or .jsonl file.
        candidates: Numbers of the items to choose from; all if not given.
        exclude: Numbers of items never to recommend.
        exclude_seen: Leave out what a user has already.
    """
    check_target(target)
    banned = np.asarray(exclude, dtype=np.int32)
    question = _fingerprint(recommender, users, k, candidates, banned, exclude_seen)
    folder = target.with_name(f".{target.name}.{question}.parts")
    folder.mkdir(exist_ok=True)
    with phase("recommending", len(users)) as advance:
        for start in range(0, max(1, len(users)), BLOCK_USERS):
            block = users[start : start + BLOCK_USERS]
            part = folder / f"part-{start // BLOCK_USERS:06d}.parquet"
            if not part.exists():
                with quietly():
                    found, _ = recommender.rank(
                        block,
                        k,
                        exclude_seen=exclude_seen,
                        candidates=candidates,
                        exclude=banned,
                    )
                draft = part.with_suffix(".tmp")
                recommender.table_of(block, found).select(COLUMNS).write_parquet(draft)
                draft.replace(part)
            advance(len(block))
    write_whole(pl.scan_parquet(sorted(folder.glob("part-*.parquet"))), target)


def write_whole(lists: pl.LazyFrame, target: Path) -> None:
    """Write to a draft beside the target and rename it: nobody ever sees half a file.

    Parts for the target, of this question and of others that were given up, are removed.
    """
    draft = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        WRITERS[target.suffix](lists, draft)
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)
    parts = re.compile(rf"\.{re.escape(target.name)}\.[0-9a-f]{{{FINGERPRINT}}}\.parts")
    for path in target.parent.iterdir():
        if parts.fullmatch(path.name):
            shutil.rmtree(path)


def _fingerprint(
    recommender: Recommender,
    users: NDArray[np.int32],
    k: int,
    candidates: NDArray[np.int32] | None,
    exclude: NDArray[np.int32],
    exclude_seen: bool,
) -> str:
    """Return what tells this question from all others."""
    digest = hashlib.sha256(json.dumps(recommender.bundle.record, sort_keys=True).encode())
    chosen = np.zeros(0, dtype=np.int32) if candidates is None else candidates
    arrays = users, chosen, exclude
    sizes = [len(array) for array in arrays]
    digest.update(f"{k} {exclude_seen} {BLOCK_USERS} {candidates is None} {sizes}".encode())
    for array in arrays:
        digest.update(array.astype("<i4").tobytes())
    return digest.hexdigest()[:FINGERPRINT]
