"""mgformer add-users: users that a trained recommender does not know yet."""

from pathlib import Path

from typer import Argument

from mgformer.cli.adding import add_and_save
from mgformer.cli.options import AsJson, RunFolder, Sign, Signed, place, settings_option


def command(
    run: RunFolder,
    file: Path = Argument(help="CSV, Parquet or JSON lines: ids and attributes of users."),
    settings: list[str] = settings_option("Set an option of the data"),
    target: Path | None = place("Folder of the new recommender.", "RUN"),
    sign: Sign = None,
    signed: Signed = None,
    as_json: AsJson = False,
) -> None:
    """Add new users by their attributes, without training.

    FILE has a column of ids and columns that the recommender knows from data.users. A new user gets
    the vector, or the history, that a regression on attributes predicts. A known user gets the
    attributes of the file; empty fields change nothing. By default the recommender in RUN is
    replaced in one step.
    """
    add_and_save("user", run, file, settings, target, sign, signed, as_json)
