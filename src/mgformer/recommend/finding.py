"""Find items and users by a part of their name or id."""

import numpy as np
import polars as pl
from numpy.typing import NDArray

from mgformer.data.ids import Ids
from mgformer.recommend.lists import with_names
from mgformer.runs.bundle import Bundle


def find_items(bundle: Bundle, text: str, most: int) -> pl.DataFrame:
    """Return the items whose id or name contains a text, by popularity: item, name (if any)."""
    order, searchable = bundle.searchable_items
    return with_names(bundle, _found(bundle.items, text, order[searchable.find(text, most)], most))


def find_users(bundle: Bundle, text: str, most: int) -> pl.Series:
    """Return the users whose id contains a text."""
    found = bundle.searchable_users.find(text, most).to_numpy()
    return bundle.users.decode(_found(bundle.users, text, found, most))


def _found(ids: Ids, text: str, numbers: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """Return what was found; whatever has exactly the text as its id comes first."""
    (exact,) = ids.encode([text]) if text else (-1,)
    if exact < 0:
        return numbers
    return np.concatenate([[exact], numbers[numbers != exact]])[:most]
