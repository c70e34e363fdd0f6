"""mgformer similar: items similar to an item, users similar to a user."""

from typing import TYPE_CHECKING

from typer import Option

from mgformer.cli.console import out, print_json, print_table, working
from mgformer.cli.options import AsJson, RunFolder, Signed, key_in
from mgformer.errors import ConfigError

if TYPE_CHECKING:
    from mgformer.recommend.recommender import Recommender


def command(
    run: RunFolder,
    item: str | None = Option(None, help="Id of an item."),
    user: str | None = Option(None, help="Id of a user."),
    k: int = Option(20, "-k", help="Number of items or users."),
    signed: Signed = None,
    as_json: AsJson = False,
) -> None:
    """Show the items most similar to an item, or similar users.

    Only those with a similarity above zero are shown, which may be fewer than k.
    """
    if (item is None) == (user is None):
        raise ConfigError("give either --item ID or --user ID")
    from mgformer.recommend.recommender import Recommender  # here, so that --help is instant

    with working():
        recommender = Recommender.load(run, key_in(signed))
        if item is not None:
            found = recommender.similar_items(item, k)
        else:
            found = recommender.similar_users(user or "", k)
    if as_json:
        print_json({"item": item, "user": user, "k": k, "similar": found.to_dicts()})
        return
    title = f"similar to {user if item is None else _described(recommender, item)}"
    if found.is_empty():
        out.print(f"nothing is {title}")
        return
    rows = [
        [*("" if value is None else str(value) for value in row[:-1]), f"{row[-1]:.4f}"]
        for row in found.rows()
    ]
    print_table(found.columns, rows, title, num_text=len(found.columns) - 1)


def _described(recommender: "Recommender", item: str) -> str:
    """Return the name of an item with its id, or the id if it has no name."""
    bundle = recommender.bundle
    name = bundle.name_of(int(bundle.items.encode([item])[0]))
    return item if name is None else f"{name} ({item})"
