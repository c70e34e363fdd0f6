"""Read LightGCN's text files: each line has a user and then the user's items."""

from pathlib import Path

import polars as pl

from mgformer.data.formats.checks import check_columns
from mgformer.data.formats.packed import read_bytes
from mgformer.data.formats.reading import Reading
from mgformer.data.formats.text import (
    HEAD_BYTES,
    NOT_UTF8,
    decode,
    guess_separator,
    head_of,
    is_broken,
    readable,
)
from mgformer.data.options import DataConfig
from mgformer.errors import DataError


def read_lightgcn(path: Path, options: DataConfig) -> tuple[pl.DataFrame, Reading]:
    """Read the pairs of a LightGCN file."""
    if options.min_rating is not None:
        raise DataError(
            f"{path}: got lists of items, which have no ratings, expected ratings because of "
            "data.min_rating; remove that option, or use --set data.format=csv"
        )
    reading = Reading(str(path), skip=options.on_error == "skip")
    content = read_bytes(path, gigabytes=options.max_unpacked)
    lines = decode(content, path, tolerant=reading.skip).split("\n")
    for number, line in enumerate(lines if reading.skip else (), start=1):
        if is_broken(line):
            reading.refuse_line(number, NOT_UTF8, "correct or remove the line")
            lines[number - 1] = ""
    fields = pl.Series("line", lines, dtype=pl.String).str.extract_all(r"\S+").to_frame()
    pairs = (
        fields.with_row_index("number", offset=1)
        .select("number", user=pl.col("line").list.first(), item=pl.col("line").list.slice(1))
        .filter(pl.col("item").list.len() > 0)
    )
    if not pairs.height:
        raise DataError(
            f"{path}:1: got no line of a user and items, expected 'user item item …'; "
            "for another kind of file use --set data.format=csv"
        )
    pairs = pairs.explode("item")
    reading.numbers = pairs["number"].to_numpy()
    ordered = options.model_copy(update={"order": "none" if options.order == "none" else "file"})
    frame = check_columns(pairs.drop("number"), ordered, reading, typed=False)
    if options.order == "auto" and _is_sorted(frame):
        reading.notes.append("the items of every line are sorted, so their order says nothing")
        frame = frame.drop("place")
    return frame, reading


def _is_sorted(frame: pl.DataFrame) -> bool:
    """Return whether the items of every user are in ascending order."""
    same_user = pl.col("user") == pl.col("user").shift()
    falls = same_user & (pl.col("item") < pl.col("item").shift())
    return not frame.select(falls.any()).item()


def looks_like_lightgcn(path: Path, tolerant: bool = False) -> bool:
    """Return whether lines are separated by white space and differ in length."""
    lines = [
        line
        for line in decode(
            head_of(read_bytes(path, HEAD_BYTES + 1)), path, tolerant=tolerant
        ).split("\n")
        if line.strip()
    ]
    lengths = {len(line.split()) for line in lines}
    return len(lengths) > 1 and guess_separator(readable("\n".join(lines)), path) in (
        " ",
        "\t",
        None,
    )
