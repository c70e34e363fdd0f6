"""mgformer search: the id of an item, by a part of its name."""

from typer import Argument, Option

from mgformer.cli.console import out, print_json, print_table, working
from mgformer.cli.options import AsJson, RunFolder, Signed, key_in


def command(
    run: RunFolder,
    text: str = Argument(help="A part of the name or of the id."),
    k: int = Option(20, "-k", min=1, help="Number of items."),
    signed: Signed = None,
    as_json: AsJson = False,
) -> None:
    """Find the id of an item by a part of its name.

    Case and accents do not matter: amelie finds Amélie. A part of an id is found too. The most
    popular items come first.
    """
    from mgformer.recommend.recommender import Recommender  # here, so that --help is instant

    with working():
        recommender = Recommender.load(run, key_in(signed))
        found = recommender.find_items(text, k)
    if as_json:
        print_json({"text": text, "k": k, "items": found.to_dicts()})
        return
    if found.is_empty():
        out.print(f"no item has {text!r} in its name or id")
        return
    rows = [[row.get("name") or "", str(row["item"])] for row in found.to_dicts()]
    named = "name" in found.columns
    columns = ["name", "id"] if named else ["id"]
    print_table(columns, rows if named else [row[1:] for row in rows], num_text=len(columns))
