"""mgformer forget: a trained recommender without some users."""

from pathlib import Path

from typer import Option

from mgformer.cli.console import out, print_json, print_table, working
from mgformer.cli.options import AsJson, IdKey, RunFolder, hashed, ids_in
from mgformer.errors import ConfigError

FEEDBACK = "Forget them in the logs of `mgformer serve --feedback FOLDER` too. It may be running."


def command(
    run: RunFolder,
    user: list[str] = Option([], "--user", help="Id of a user; may be repeated."),
    users: Path | None = Option(None, help="File with one user id per line."),
    feedback: Path | None = Option(None, metavar="FOLDER", help=FEEDBACK),
    key: IdKey = None,
    as_json: AsJson = False,
) -> None:
    """Remove users from a trained recommender, with all their data.

    These are their ids, pairs and vectors. RUN may also hold several runs. Lists, exported user
    vectors and figures per user in the folder are rewritten; checkpoints and reports are removed.
    Popularity and trend are counted again.

    What the model learned from these users stays in the vectors of items and of other users, and in
    item-item weights: mgformer refit trains it again without them. Copies elsewhere, backups and
    the data file are not touched.
    """
    from mgformer.locks import locked
    from mgformer.recommend.forgetting import forget_users

    if bool(user) == (users is not None):
        raise ConfigError("give --user ID, or --users FILE")
    wanted = user if users is None else ids_in(users, "user")
    with working(), locked(run):
        done = forget_users(run, hashed(wanted, key), feedback)
    if as_json:
        changes = [change._asdict() for change in done.changes]
        print_json({"users": done.users, "pairs": done.pairs, "files": changes})
        return
    out.print(f"forgot users: {done.users:,}, pairs: {done.pairs:,}")
    print_table(["file", "what was done"], done.changes, num_text=2)
    if any(change.action == "not ours" for change in done.changes):
        out.print("files that are not ours are left alone: check them yourself")
    out.print(f"what the model learned from these users stays until: mgformer refit {run}")
