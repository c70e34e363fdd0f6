"""Generated interactions of any size, made block by block: the same seed gives the same pairs.

Numbers of pairs follow a power law, for users and for items. Users belong to groups. Two thirds of
the items of a user are from a group of `GROUP` items, and one third is from all items. The groups
do not grow with the catalog, so the neighborhood of an item does not depend on the size of a graph.
"""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import polars as pl
from numpy.typing import NDArray

BLOCK_USERS = 1 << 17
GROUP = 1_000
"""Items of a group."""
OWN_SHARE = 2 / 3
"""Share of a user's items that are from the group of the user."""
TAIL, MOST = 2.5, 50
"""Exponent of the Pareto law of users, and how many times the mean a user has at most."""
REPEATED = 0.055
"""Share of the pairs that repeat another one."""
SCATTER = 2_654_435_761
"""A prime: multiplied by it, the numbers of popular items lie far apart."""


def pair_blocks(
    num_users: int, num_items: int, num_pairs: int, seed: int = 0
) -> Iterator[tuple[NDArray[np.int32], NDArray[np.int32]]]:
    """Yield users and items of pairs: about as many different ones as asked, and a few repeat."""
    mean, groups = (1 + REPEATED) * num_pairs / num_users, max(1, num_items // GROUP)
    for number, start in enumerate(range(0, num_users, BLOCK_USERS)):
        rng = np.random.default_rng([seed, number])
        users = np.arange(start, min(start + BLOCK_USERS, num_users), dtype=np.int32)
        drawn = (rng.pareto(TAIL, len(users)) + 1) * (TAIL - 1) / TAIL  # 1 on average
        counts = np.maximum(1, rng.poisson(mean * np.minimum(drawn, MOST)))
        rows = np.repeat(users, counts)
        # The group of a user, and the popularity rank of an item within a group, from 0 to 1.
        group = np.repeat(rng.integers(0, groups, len(users)), counts)
        is_own, place = rng.random(len(rows)) < OWN_SHARE, rng.random(len(rows)) ** 3
        ranks = np.where(
            is_own,
            group + groups * (place * (num_items // groups)).astype(np.int64),
            (place * num_items).astype(np.int64),
        )
        yield rows, (ranks * SCATTER % num_items).astype(np.int32)


def write_generated(path: Path, num_users: int, num_items: int, num_pairs: int) -> None:
    """Write pairs to a Parquet file without holding them all."""
    with TemporaryDirectory(dir=path.parent) as folder:
        for number, (users, items) in enumerate(pair_blocks(num_users, num_items, num_pairs)):
            part = pl.DataFrame({"user_id": users, "item_id": items})
            part.write_parquet(Path(folder) / f"{number:06}.parquet")
        pl.scan_parquet(Path(folder) / "*.parquet").sink_parquet(path)
