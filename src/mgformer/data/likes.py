"""Ratings that are treated as likes: how they are spread, and what a threshold would leave."""

from dataclasses import dataclass
from pathlib import Path

import polars as pl

from mgformer.data.formats import read_table
from mgformer.data.options import DataConfig
from mgformer.errors import DataError

MOST_BARS = 10
"""Number of bars of a histogram if there are more different ratings than that."""
LIKED = 0.7
"""A rating counts as a like from this share of the way from the lowest to the highest."""


@dataclass(frozen=True)
class Ratings:
    """The ratings of a file, which may or may not be used."""

    column: str
    histogram: dict[str, int]
    """Rating, or the lowest of a range of ratings → number of rows."""
    lowest: float
    highest: float
    num_rows: int
    """Rows with a rating."""
    least: float | None
    """A value for data.min_rating; None if all ratings are equal."""
    pairs_left: int
    """Different pairs with at least that rating."""


def ratings_of(path: Path, options: DataConfig, column: str) -> Ratings | None:
    """Return the ratings in a column of a file; None if it holds no numbers."""
    role = {"rating": column, "time": "", "weight": ""}
    asked = {"min_rating": None, "on_error": "skip", "order": "none", **role}
    try:
        table, _ = read_table(path, options.model_copy(update=asked))
    except DataError:
        return None
    ratings = table["rating"]
    lowest, highest = float(ratings.min()), float(ratings.max())  # type: ignore[arg-type]
    least = _least(ratings, lowest, highest)
    pairs = table.filter(ratings >= least) if least is not None else table
    return Ratings(
        column,
        _histogram(ratings, lowest, highest),
        lowest,
        highest,
        len(ratings),
        least,
        pairs.select("user", "item").n_unique(),
    )


def _least(ratings: pl.Series, lowest: float, highest: float) -> float | None:
    """Return the smallest rating that is well above the middle of the scale."""
    if lowest == highest:
        return None
    liked = ratings.filter(ratings >= lowest + LIKED * (highest - lowest))
    return float(liked.min())  # type: ignore[arg-type]


def _histogram(ratings: pl.Series, lowest: float, highest: float) -> dict[str, int]:
    """Return how many rows have each rating, or a rating of each range."""
    if ratings.n_unique() <= MOST_BARS or lowest == highest:
        keys = ratings
    else:
        width = (highest - lowest) / MOST_BARS
        bars = ((ratings - lowest) / width).floor().clip(0, MOST_BARS - 1)
        keys = lowest + bars * width
    counts = keys.alias("rating").value_counts(name="rows").sort("rating")
    return {f"{rating:g}": rows for rating, rows in counts.rows()}
