"""Find items and users by a part of their name or id."""

import polars as pl

from mgformer.runs.bundle import Bundle


def find_items(bundle: Bundle, text: str, limit: int) -> pl.DataFrame:
    """Return the items whose name or id contains a text: item, name.

    An item with exactly this id comes first; the others follow by popularity.
    """
    table = pl.DataFrame({"item": bundle.items.values, "popularity": bundle.item_degrees})
    if bundle.item_names is not None:
        table = table.with_columns(bundle.item_names.rename("name"))
    shown = [name for name in ("item", "name") if name in table.columns]
    if text:
        table = table.filter(pl.any_horizontal(_contains(name, text) for name in shown))
    exact = pl.col("item").cast(pl.String) == text
    table = table.sort(exact, "popularity", descending=True, maintain_order=True)
    return table.head(limit).select(shown)


def find_users(bundle: Bundle, text: str, limit: int) -> pl.Series:
    """Return the users whose id contains a text; a user with exactly this id comes first."""
    table = pl.DataFrame({"user": bundle.users.values})
    if text:
        table = table.filter(_contains("user", text))
        exact = pl.col("user").cast(pl.String) == text
        table = table.sort(exact, descending=True, maintain_order=True)
    return table["user"].head(limit)


def _contains(column: str, text: str) -> pl.Expr:
    lower = pl.col(column).cast(pl.String).str.to_lowercase()
    return lower.str.contains(text.lower(), literal=True)
