"""The built-in demo dataset: 800 generated users, 400 generated items, ten tastes.

The name of an item shows its taste, so a person can see whether recommendations make sense. The
data are the same on every machine: they use one seed, uniform numbers and integer arithmetic.
"""

from bisect import bisect_right
from dataclasses import replace
from itertools import accumulate

import numpy as np
import polars as pl

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

# Eight beginnings and five endings per taste: 8 and 5 have no common divisor, so stepping through
# both at once gives 40 different names, and items of similar popularity have different names.
_TASTES = {
    "jazz": (
        "Midnight Harbor/Blue Corner/Velvet Hour/Brass Alley/Slow Train/Smoky Lantern"
        "/Seventh Street/Late September",
        "Jazz Quartet/Saxophone Nights/Big Band/Jazz Trio Live/Swing Ballads",
    ),
    "scifi": (
        "The Last/Children of the/Beyond the/Orphans of the/Return of the/War of the"
        "/Dreams of the/Songs of the",
        "Starship/Androids/Wormhole/Martian Colony/Galactic Empire",
    ),
    "garden": (
        "Heirloom/Cottage/Balcony/Organic/Climbing/Evergreen/Wildflower/Kitchen",
        "Seed Mix/Rose Bush/Garden Trowel/Planter Box/Gardening Almanac",
    ),
    "baking": (
        "Sourdough/Cinnamon/Rye/Brioche/Almond/Chocolate/Lemon/Hazelnut",
        "Bread Tin/Pastry Course/Cake Mix/Baking Book/Cookie Cutters",
    ),
    "alpine": (
        "Summit/Glacier/North Face/Granite/Ridgeline/Basecamp/Matterhorn/Avalanche",
        "Ice Axe/Climbing Rope/Crampons/Mountain Tent/Carabiner Set",
    ),
    "chess": (
        "Sicilian/Queen's Gambit/Endgame/Caro-Kann/King's Indian/Ruy Lopez/Grandmaster/Blitz",
        "Chess Repertoire/Chess Puzzles/Chess Masterclass/Chess Clock/Chess Set",
    ),
    "photo": (
        "Portrait/Macro/Vintage/Wide-Angle/Street/Landscape/Studio/Telephoto",
        "Camera Lens/Photo Workshop/Camera Bag/Lens Filter/Photo Book",
    ),
    "sailing": (
        "Offshore/Regatta/Atlantic/Coastal/Trade Wind/Baltic/Leeward/Harbour",
        "Sailing Jacket/Sea Chart/Spinnaker/Mooring Line/Deck Shoes",
    ),
    "astro": (
        "Saturn/Orion/Andromeda/Lunar/Deep-Sky/Jupiter/Perseid/Nebula",
        "Telescope/Star Atlas/Eyepiece/Observing Guide/Planisphere",
    ),
    "mystery": (
        "Murder at/The Body in/Death at/The Secret of/Poison at/The Last Guest at"
        "/A Thief in/The Alibi of",
        "Blackwood Manor/the Lighthouse/the Vicarage/Foxglove Hall/the Night Train",
    ),
}
_FIRST_NAMES = (
    "ana/ben/chloe/david/elif/felix/grace/hugo/iris/jonas/kira/leo/mina/noah/olga/pablo/quinn/rosa"
    "/samir/tara/umar/vera/wen/xenia/yusuf/zoe/amir/bella/carlos/dina/emil/freya/goran/hana/ivan"
    "/julia/kofi/lena/marco/nadia"
)


def demo_dataset(options: DataConfig | None = None) -> Dataset:
    """Return the demo dataset with item names; `options` such as `k_core` can reduce it."""
    dataset = read_dataset(_interactions(), options, name="demo")
    names = _item_names()
    named = [names[item] for item in dataset.interactions.items.values]
    return replace(dataset, item_names=pl.Series("name", named))


def _item_names() -> dict[str, str]:
    """Return the name of each item id; within a taste, the most popular comes first."""
    names = {}
    for taste, (beginnings, endings) in _TASTES.items():
        first, second = beginnings.split("/"), endings.split("/")
        for place in range(ITEMS_PER_TASTE):
            name = f"{first[place % len(first)]} {second[place % len(second)]}"
            names[f"{taste}-{place + 1:02}"] = name
    return names


def _interactions() -> pl.DataFrame:
    rng = np.random.Generator(np.random.PCG64(_SEED))
    items = list(_item_names())
    first_names = _FIRST_NAMES.split("/")
    # Popularity within a taste falls like 1 / rank; whole numbers keep it exact.
    mass = list(accumulate(1_000_000 // (rank + 1) for rank in range(ITEMS_PER_TASTE)))

    def below(limit: int) -> int:
        return int(rng.random() * limit)

    rows: list[tuple[str, str, int]] = []
    for number in range(NUM_USERS):
        user = f"{first_names[number % len(first_names)]}-{number:03}"
        tastes = [below(len(_TASTES))]
        if rng.random() < _TWO_TASTES:
            tastes.append((tastes[0] + 1 + below(len(_TASTES) - 1)) % len(_TASTES))
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
