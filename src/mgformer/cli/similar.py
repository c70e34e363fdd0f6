"""mgformer similar: items like an item, users like a user."""

from pathlib import Path

import polars as pl
import typer

from mgformer.cli.console import out, print_json, print_table, working
from mgformer.errors import ConfigError
from mgformer.recommend.recommender import Recommender


def command(
    run: Path = typer.Argument(help="Folder of a trained recommender."),
    item: str | None = typer.Option(None, help="An item's id."),
    user: str | None = typer.Option(None, help="A user's id."),
    k: int = typer.Option(20, "-k", help="Length of the list."),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object."),
) -> None:
    """Show the items most like an item, or the users most like a user.

    They are fewer than k where nothing else is like it.
    """
    if (item is None) == (user is None):
        raise ConfigError("say like what: either --item ID or --user ID")
    with working():
        recommender = Recommender.load(run)
        if item is not None:
            found = recommender.similar_items(item, k)
        else:
            found = recommender.similar_users(user or "", k)
    if as_json:
        print_json({"item": item, "user": user, "k": k, "similar": found.to_dicts()})
        return
    title = f"like {item if item is not None else user}"
    if found.is_empty():
        out.print(f"nothing is {title}", markup=False)
        return
    rows = [
        [*(str(row[name]) for name in found.columns[:-1]), f"{row['score']:.4f}"]
        for row in found.with_columns(pl.exclude("score").fill_null("")).to_dicts()
    ]
    print_table(found.columns, rows, title, num_text=len(found.columns) - 1)
