"""Items and users found by a part of their name or id."""

import polars as pl

from mgformer.recommend.recommender import Recommender


def find_items(recommender: Recommender, text: str, limit: int) -> pl.DataFrame:
    """Return items whose name or id contains a text: item, name.

    The item of that very id comes first, then the most popular.
    """
    bundle = recommender.bundle
    table = pl.DataFrame({"item": bundle.items.values, "popularity": bundle.item_degrees})
    if bundle.item_names is not None:
        table = table.with_columns(bundle.item_names.rename("name"))
    shown = [name for name in ("item", "name") if name in table.columns]
    if text:
        table = table.filter(pl.any_horizontal(_contains(name, text) for name in shown))
    exact = pl.col("item").cast(pl.String) == text
    table = table.sort(exact, "popularity", descending=True, maintain_order=True)
    return table.head(limit).select(shown)


def find_users(recommender: Recommender, text: str, limit: int) -> pl.Series:
    """Return users whose id contains a text, the one of that very id first."""
    table = pl.DataFrame({"user": recommender.bundle.users.values})
    if text:
        table = table.filter(_contains("user", text))
        exact = pl.col("user").cast(pl.String) == text
        table = table.sort(exact, descending=True, maintain_order=True)
    return table["user"].head(limit)


def _contains(column: str, text: str) -> pl.Expr:
    lower = pl.col(column).cast(pl.String).str.to_lowercase()
    return lower.str.contains(text.lower(), literal=True)
