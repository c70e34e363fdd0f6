"""Read LightGCN's text files: each line has a user and then the user's items."""

import logging
from pathlib import Path

import polars as pl

from mgformer.data.formats.columns import check_columns, with_integer_ids
from mgformer.data.formats.packed import read_bytes
from mgformer.data.formats.text import HEAD_BYTES, decode, guess_separator, head_of
from mgformer.data.options import DataConfig
from mgformer.errors import DataError

log = logging.getLogger("mgformer")


def read_lightgcn(path: Path, options: DataConfig) -> pl.DataFrame:
    """Read the pairs of a LightGCN file."""
    if options.min_rating is not None:
        raise DataError(
            f"{path}: got lists of items, which have no ratings, expected ratings because of "
            "data.min_rating; remove that option, or use --set data.format=csv"
        )
    lines = pl.Series(
        "line",
        decode(read_bytes(path, gigabytes=options.max_unpacked), path).split("\n"),
        dtype=pl.String,
    )
    fields = lines.str.extract_all(r"\S+").to_frame()
    pairs = fields.select(
        user=pl.col("line").list.first(), item=pl.col("line").list.slice(1)
    ).filter(pl.col("item").list.len() > 0)
    if not pairs.height:
        raise DataError(
            f"{path}:1: got no line of a user and items, expected 'user item item …'; "
            "for another kind of file use --set data.format=csv"
        )
    ordered = options.model_copy(update={"order": "none" if options.order == "none" else "file"})
    checked = check_columns(pairs.explode("item"), ordered, str(path), lambda _: str(path))
    frame = with_integer_ids(checked, path, lambda _: str(path))
    if options.order == "auto" and _is_sorted(frame):
        log.info("%s: the items of every line are sorted, so their order says nothing", path)
        return frame.drop("place")
    return frame


def _is_sorted(frame: pl.DataFrame) -> bool:
    """Return whether the items of every user are in ascending order."""
    same_user = pl.col("user") == pl.col("user").shift()
    falls = same_user & (pl.col("item") < pl.col("item").shift())
    return not frame.select(falls.any()).item()


def looks_like_lightgcn(path: Path) -> bool:
    """Return whether lines are separated by white space and differ in length."""
    lines = [
        line
        for line in decode(head_of(read_bytes(path, HEAD_BYTES + 1)), path).split("\n")
        if line.strip()
    ]
    lengths = {len(line.split()) for line in lines}
    return len(lengths) > 1 and guess_separator("\n".join(lines), path) in (" ", "\t", None)
