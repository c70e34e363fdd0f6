"""Generated interactions: reproducible, of the size that is asked for, with popular items."""

import numpy as np
import polars as pl
from benchmarks.generated import pair_blocks, write_generated

from benchmarks import generated


def pairs_of(*size):
    return [np.concatenate(side) for side in zip(*pair_blocks(*size), strict=True)]


def test_generated_pairs_have_the_size_and_the_law(tmp_path, monkeypatch):
    monkeypatch.setattr(generated, "BLOCK_USERS", 1_000)
    users, items = pairs_of(3_000, 2_000, 60_000)
    assert users.dtype == items.dtype == np.int32
    distinct = np.unique(users.astype(np.int64) * 2_000 + items)
    assert 0.9 < len(distinct) / 60_000 < 1.1
    assert (np.bincount(users, minlength=3_000) > 0).all()
    degrees = np.sort(np.bincount(items, minlength=2_000))[::-1]
    assert degrees[:100].sum() > 0.25 * len(items)  # a twentieth of the items, five times its share
    write_generated(tmp_path / "a.parquet", 3_000, 2_000, 60_000)
    table = pl.read_parquet(tmp_path / "a.parquet")
    assert table["user_id"].to_list() == users.tolist()
    assert table["item_id"].to_list() == items.tolist()
    assert [path.name for path in tmp_path.iterdir()] == ["a.parquet"]
