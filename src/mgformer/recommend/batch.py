"""Write the lists of many users to one file, in memory that does not grow with their number.

Blocks of users are ranked one after another and written as parts beside the target. At the end the
parts are put together, and the target appears in one step. After an interruption, the same call
continues with the parts that exist; a call with other users or options does not use them. Parts
have their checksum in their name, and a damaged one is written again. Parts that were left behind
by other calls are removed when the target is finished.
"""

import glob
import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import polars as pl

from mgformer.checksums import checksum_of_file
from mgformer.errors import ConfigError
from mgformer.files import SHOWN, make_folder, replacing, write_by_checksum
from mgformer.locks import locked_file
from mgformer.progress import phase, quietly
from mgformer.recommend.lists import rank_users, to_frame, user_column, user_numbers
from mgformer.recommend.query import ListOptions, SomeIds
from mgformer.runs.bundle import Bundle

COLUMNS = ("user", "rank", "item", "name", "score")
"""What a list has; without the names if items have none."""
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
    """Write user, rank, item, name (if any) and score of the best items of users.

    Lists are made for `block_users` users at a time. The target is a .parquet, .csv or .jsonl file.
    While it is written, another process that wants
    to write it gets a BusyError.
    """
    check_target(target)
    numbers = user_numbers(bundle, users, options)
    # With unknown users, ids come from the call, and all blocks need the same type.
    column = user_column(bundle, numbers, users) if (numbers < 0).any() else None
    digest = hashlib.sha256(numbers.astype("<i4").tobytes())
    followed = bundle.rules.to_mapping()
    call = [bundle.record.to_mapping(), followed, vars(options), block_users, COLUMNS]
    if column is not None:
        call.append(column.to_list())
    digest.update(json.dumps(call, sort_keys=True, default=str).encode())
    folder = target.with_name(f".{target.name}.{digest.hexdigest()[:FINGERPRINT]}.parts")
    with locked_file(target), phase("recommending", len(numbers)) as advance:
        make_folder(folder)
        parts = []
        for start in range(0, max(1, len(numbers)), block_users):
            block = numbers[start : start + block_users]
            name = f"part-{start // block_users:06d}"
            part = _whole_part(folder, name)
            if part is None:
                with quietly():
                    found, _ = rank_users(bundle, block, options)
                own = slice(start, start + block_users)
                ids = bundle.users.decode(block) if column is None else column[own]
                lists = to_frame(bundle, ids, found)
                part = write_by_checksum(folder, name, "parquet", lists.write_parquet).path
            parts.append(part)
            advance(len(block))
        write_target(pl.scan_parquet(parts), target)


def _whole_part(folder: Path, name: str) -> Path | None:
    """Return the part of this name that an earlier call wrote; None if it is missing or damaged."""
    for part in folder.glob(f"{name}-*.parquet"):
        if part.stem == f"{name}-{checksum_of_file(part)[:SHOWN]}":
            return part
    return None


def write_target(lists: pl.LazyFrame, target: Path) -> None:
    """Write lists to the target in one step, and remove all parts of this target."""
    with locked_file(target):
        with replacing(target) as draft:
            WRITERS[target.suffix](lists, draft)
        digits = "[0-9a-f]" * FINGERPRINT
        for parts in target.parent.glob(f".{glob.escape(target.name)}.{digits}.parts"):
            shutil.rmtree(parts)
