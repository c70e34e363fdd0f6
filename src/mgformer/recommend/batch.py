"""Write the lists of many users to one file, in memory that does not grow with their number.

Blocks of users are ranked one after another and written as parts beside the target. At the end the
parts are put together, and the target appears in one step. After an interruption, the same call
continues with the parts that exist; a call with other users or options does not use them. Parts
that were left behind by other calls are removed when the target is finished.
"""

import glob
import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import polars as pl

from mgformer.errors import ConfigError
from mgformer.files import replacing
from mgformer.progress import phase, quietly
from mgformer.recommend.lists import numbers_of, rank_users, to_frame
from mgformer.recommend.query import ListOptions, SomeIds
from mgformer.runs.bundle import Bundle

COLUMNS = ("user", "rank", "item", "score")
WRITERS: dict[str, Callable[[pl.LazyFrame, Path], object]] = {
    ".parquet": lambda lists, path: lists.sink_parquet(path),
    ".csv": lambda lists, path: lists.sink_csv(path),
    ".jsonl": lambda lists, path: lists.sink_ndjson(path),
}
FINGERPRINT = 12
"""Number of hexadecimal digits that identify the parts of a call."""


def check_target(target: Path) -> None:
    """Refuse a target that cannot be written."""
    if target.suffix not in WRITERS:
        raise ConfigError(f"--out {target}: expected a name ending in {', '.join(WRITERS)}")
    if target.is_dir():
        raise ConfigError(f"--out {target}: is a folder; give the name of a file")
    if not target.parent.is_dir():
        raise ConfigError(f"--out {target}: no folder {target.parent}; make it first")


def write_lists(
    bundle: Bundle,
    users: SomeIds,
    options: ListOptions,
    target: Path,
    *,
    block_users: int = 1 << 16,
) -> None:
    """Write user, rank, item and score of the best items of users, `block_users` at a time.

    The target is a .parquet, .csv or .jsonl file.
    """
    check_target(target)
    numbers = numbers_of("user", bundle.users, users)
    digest = hashlib.sha256(numbers.astype("<i4").tobytes())
    call = [bundle.record.to_mapping(), vars(options), block_users]
    digest.update(json.dumps(call, sort_keys=True, default=str).encode())
    folder = target.with_name(f".{target.name}.{digest.hexdigest()[:FINGERPRINT]}.parts")
    folder.mkdir(exist_ok=True)
    with phase("recommending", len(numbers)) as advance:
        for start in range(0, max(1, len(numbers)), block_users):
            block = numbers[start : start + block_users]
            part = folder / f"part-{start // block_users:06d}.parquet"
            if not part.exists():
                with quietly():
                    found, _ = rank_users(bundle, block, options)
                with replacing(part) as draft:
                    lists = to_frame(bundle, bundle.users.decode(block), found)
                    lists.select(COLUMNS).write_parquet(draft)
            advance(len(block))
    write_target(pl.scan_parquet(sorted(folder.glob("part-*.parquet"))), target)


def write_target(lists: pl.LazyFrame, target: Path) -> None:
    """Write lists to the target in one step, and remove all parts of this target."""
    with replacing(target) as draft:
        WRITERS[target.suffix](lists, draft)
    digits = "[0-9a-f]" * FINGERPRINT
    for parts in target.parent.glob(f".{glob.escape(target.name)}.{digits}.parts"):
        shutil.rmtree(parts)
