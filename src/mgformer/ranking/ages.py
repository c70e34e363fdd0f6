"""How old items are at the end of the training: by the moment of their first training pair.

An item is old if its first pair lies in the first half of the training pairs in order of time, new
if it lies in the last fifth, and in between otherwise. Items without training pairs are apart.

Shapes: I items, E pairs.
"""

import numpy as np
from numpy.typing import NDArray

from mgformer.data.interactions import Interactions

AGES = ("unseen", "new", "middle", "old")
"""No pair in train; the first one in its last fifth; after its half; in its first half."""
BOUNDS = (0.5, 0.8)
"""Shares of the training pairs that are earlier than the first pair of an item."""
UNSEEN, NEW, MIDDLE, OLD = range(4)


def item_ages(train: Interactions) -> NDArray[np.int8] | None:
    """Return the place in `AGES` of each item [I]; None if times are not known or all alike."""
    times = train.times
    if times is None or not len(times) or times.min() == times.max():
        return None
    first = np.full(train.num_items, times.max())
    np.minimum.at(first, train.indices, times)
    num_earlier = np.searchsorted(np.sort(times), first)  # pairs of the same moment do not count
    earlier = num_earlier / len(times)
    ages = np.array([OLD, MIDDLE, NEW], dtype=np.int8)[np.digitize(earlier, BOUNDS)]
    ages[np.bincount(train.indices, minlength=train.num_items) == 0] = UNSEEN
    return ages
