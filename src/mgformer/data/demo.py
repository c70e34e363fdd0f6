"""The built-in demo dataset: 800 generated users, 400 generated items, ten tastes.

The name of an item shows its taste, so a person can see whether recommendations make sense. The
data are the same on every machine: they use one seed, uniform numbers and integer arithmetic.
"""

import tomllib
from bisect import bisect_right
from dataclasses import replace
from itertools import accumulate, cycle, islice
from pathlib import Path

import numpy as np
import polars as pl

from mgformer.data.attributes import Attribute, Attributes
from mgformer.data.dataset import Dataset, read_dataset
from mgformer.data.options import DataConfig

NUM_USERS = 800
ITEMS_PER_TASTE = 40
FEWEST = 5
"""Number of interactions of the least active user."""
_MOST = 38
_NOISE = 0.12
_TWO_TASTES = 0.10
_SEED = 2024
_NEW_YEAR = 1_704_067_200
_DAY = 86_400

# Beginnings and endings of the names of each taste's items, and first names of users.
_NAMES = tomllib.loads(Path(__file__).with_name("demo.toml").read_text(encoding="utf-8"))
_NUM_TASTES = len(_NAMES["tastes"])


def demo_dataset(options: DataConfig | None = None, *, keep_rows: bool = False) -> Dataset:
    """Return the demo dataset, with a name and a taste for each item.

    `options` such as `k_core` can reduce it.
    """
    dataset = read_dataset(_interactions(), options, name="demo", keep_rows=keep_rows)
    if dataset.about_items:  # from a file that the options name
        return dataset
    names = _item_names()
    items = dataset.interactions.items.values
    about = {
        "name": Attribute("text", pl.Series("name", [names[item] for item in items])),
        "taste": Attribute("category", items.str.head(-3).rename("taste")),
    }
    return replace(dataset, about_items=Attributes(about))


def _item_names() -> dict[str, str]:
    """Return the name of each item id; within a taste, the most popular comes first."""
    names = {}
    for taste, words in _NAMES["tastes"].items():
        pairs = zip(cycle(words["beginnings"]), cycle(words["endings"]), strict=False)
        for place, pair in enumerate(islice(pairs, ITEMS_PER_TASTE), start=1):
            names[f"{taste}-{place:02}"] = " ".join(pair)
    return names


def _interactions() -> pl.DataFrame:
    rng = np.random.Generator(np.random.PCG64(_SEED))
    items = list(_item_names())
    first_names = _NAMES["first_names"]
    # Popularity within a taste falls like 1 / rank; whole numbers keep it exact.
    mass = list(accumulate(1_000_000 // (rank + 1) for rank in range(ITEMS_PER_TASTE)))

    def below(limit: int) -> int:
        return int(rng.random() * limit)

    rows: list[tuple[str, str, int]] = []
    for number in range(NUM_USERS):
        user = f"{first_names[number % len(first_names)]}-{number:03}"
        tastes = [below(_NUM_TASTES)]
        if rng.random() < _TWO_TASTES:
            tastes.append((tastes[0] + 1 + below(_NUM_TASTES - 1)) % _NUM_TASTES)
        activity = rng.random()
        wanted = FEWEST + int((_MOST - FEWEST) * activity * activity)
        chosen: dict[int, None] = {}
        for _ in range(wanted):
            noise = rng.random() < _NOISE
            first = tastes[below(len(tastes))] * ITEMS_PER_TASTE
            # Decide between noise and taste before drawing again after a duplicate. Otherwise users
            # who have nearly all items of a taste would get more noise.
            before = len(chosen)
            while len(chosen) == before:
                item = below(len(items)) if noise else first + bisect_right(mass, below(mass[-1]))
                chosen[item] = None
        time = _NEW_YEAR + below(250 * _DAY)
        # Popular items tend to be drawn first; the shuffle removes that from the timestamps.
        for item in sorted(chosen, key=lambda _: rng.random()):
            time += below(4 * _DAY)
            rows.append((user, items[item], time))
    return pl.DataFrame(rows, schema=["user", "item", "time"], orient="row")
