"""Generated interactions with times, for tests of what happens over time."""

import numpy as np
import polars as pl

NUM_ROWS = 900
NEW_YEAR = 1_704_067_200
HOUR = 3_600


def events(seed: int = 3) -> pl.DataFrame:
    """Return rows of users with one of three tastes; users and items appear one after the other.

    Some pairs repeat, and up to three rows share a moment.
    """
    rng = np.random.default_rng(seed)
    rows = []
    for place in range(NUM_ROWS):
        user = int(rng.integers(30 + place // 40))
        newest = 20 + place // 60
        item = user % 3 * 100 + int(newest * rng.random() ** 1.5)
        if rng.random() < 0.15:
            item = int(rng.integers(3)) * 100 + int(rng.integers(newest))
        rows.append((f"u{user}", f"i{item}", NEW_YEAR + place // 3 * 2 * HOUR))
    shuffled = [rows[place] for place in rng.permutation(NUM_ROWS)]
    return pl.DataFrame(shuffled, schema=["user", "item", "time"], orient="row")


def changed(rows: pl.DataFrame, start: int, last: int, seed: int) -> pl.DataFrame:
    """Return the rows with other users and items from one moment to another; times stay.

    Some of the new ids are new, and some of the new pairs are old ones.
    """
    rng = np.random.default_rng(seed)
    hit = ((rows["time"] >= start) & (rows["time"] <= last)).to_numpy()
    columns = {}
    old = rng.integers(rows.height, size=rows.height)
    for name in ("user", "item"):
        values = np.array(rows[name].to_list(), dtype=object)
        other = values[old].copy()
        strange = rng.random(rows.height) < 0.3
        other[strange] = [f"{name[0]}x{n}" for n in rng.integers(500, size=strange.sum())]
        columns[name] = pl.Series(name, np.where(hit, other, values).tolist())
    return rows.with_columns(**columns)
