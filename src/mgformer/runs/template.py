"""A config to start from: what was found in a dataset, with a comment on every option."""

import textwrap
import tomllib
from pathlib import Path

from mgformer.data.dataset import Dataset
from mgformer.data.entries import CATALOG
from mgformer.data.likes import Ratings, ratings_of
from mgformer.data.options import VALID_SHARE, DataConfig
from mgformer.runs.config import build_config, literal

WIDTH = 88
COLUMNS = {
    "user": "Column of the user ids.",
    "item": "Column of the item ids.",
    "time": 'Column of the times. Write "" to ignore them.',
    "rating": "Column of the ratings, which min_rating uses.",
    "weight": 'Column of the weights. Write "" to ignore them.',
}


def template(name: str, options: DataConfig, dataset: Dataset, path: Path) -> str:
    """Return a commented TOML file for a dataset that was read with these options."""
    split = (
        "given" if dataset.parts else "time" if dataset.interactions.times is not None else "ratio"
    )
    sections = [
        [
            f"# A run of mgformer. Start it: mgformer train --config {_plain(str(path))}",
            "# A line that begins with # has no effect. Remove the # to use the option in it.",
        ],
        _option("dataset", name, "What to learn from: a file, a folder, or a catalog name."),
        _option("seed", 0, "Seed of everything that is drawn. The same seed, the same result."),
        _data(name, options, dataset),
        _split(split),
        _model(),
        _score(),
    ]
    text = "\n\n".join("\n".join(lines) for lines in sections) + "\n"
    # What is written can be read: a name that is not UTF-8 ends here, in one line.
    build_config({**tomllib.loads(text), "model": {"name": "popularity"}}, str(path))
    return text


def _option(name: str, value: object, comment: str, used: bool = True) -> list[str]:
    """Return an option below its comment."""
    lines = textwrap.wrap(_plain(comment), WIDTH, initial_indent="# ", subsequent_indent="# ")
    return [*lines, f"{'' if used else '# '}{name} = {literal(value)}"]


def _plain(comment: str) -> str:
    """Return text that may stand in a comment of TOML, which has no control characters."""
    return "".join(one if one.isprintable() else "?" for one in comment)


def _data(name: str, options: DataConfig, dataset: Dataset) -> list[str]:
    given = options.model_dump(mode="json", exclude_unset=True)
    lines = ["# How the file is read.", "[data]"]
    reading = dataset.readings[0] if dataset.readings else None
    # The catalog knows the columns of its own files.
    columns = reading.columns if reading is not None and name not in CATALOG else {}
    for role, comment in COLUMNS.items():
        if role in given:
            lines += _option(role, given.pop(role), comment)
        elif role in columns:
            lines += _option(role, columns[role], comment)
    ratings = None
    if reading is not None and reading.unused_ratings is not None and name not in CATALOG:
        ratings = ratings_of(Path(reading.source), options, reading.unused_ratings)
    lines += _min_rating(given.pop("min_rating", None), ratings)
    skip = given.pop("on_error", "stop")
    lines += _option(
        "on_error", skip, 'Rows that cannot be used: "stop" at the first, or "skip" all of them.'
    )
    fewest = given.pop("k_core", 0)
    lines += _option("k_core", fewest, "Drop users and items with fewer pairs; 0 keeps all.")
    for option, value in given.items():
        lines += _option(option, value, "As it was given with --set.")
    return lines


def _min_rating(given: float | None, ratings: Ratings | None) -> list[str]:
    comment = "Rows with a lower rating are dropped; the others count as likes."
    if given is not None:
        return _option("min_rating", given, comment)
    if ratings is None or ratings.least is None:
        return []
    left = (
        f"Without it, all ratings in {ratings.column} count as likes, also low ones. "
        f"{ratings.least:g} leaves {ratings.pairs_left:,} pairs."
    )
    return _option("min_rating", ratings.least, f"{comment} {left}", used=False)


def _split(kind: str) -> list[str]:
    why = {
        "given": "the parts of the folder",
        "time": "one moment for all users: train on what came before, test on what came after",
        "ratio": "random items of each user",
    }[kind]
    lines = ["# What is held out to choose and to test the model.", "[split]"]
    lines += _option("kind", kind, f"{kind}: {why}. Others: auto, ratio, last, time, users, given.")
    if kind != "given":
        lines += _option("valid", VALID_SHARE, "Share that is held out to choose options.")
        lines += _option("test", 0.1, "Share that is held out to test the model.")
    return lines


def _model() -> list[str]:
    return [
        "# What is trained. `mgformer models` lists the models, `mgformer models ridge` the",
        "# options of one. Without a name, mgformer takes its default.",
        "[model]",
        *_option("name", "ridge", "Name of the model.", used=False),
    ]


def _score() -> list[str]:
    lines = ["# How items are ranked.", "[score]"]
    about = "Whether the trend of items and the recency of histories count: auto, on or off."
    return lines + _option("time", "auto", about)
