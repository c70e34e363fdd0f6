"""Read a file of interactions into the columns `user`, `item` and, if present, `time`, `weight`.

There is one module per format. Text formats have no types: there, ids are integers only if all ids
of the column are. Parquet and JSON lines keep the types they have.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import polars as pl

from mgformer.data.formats.delimited import read_delimited
from mgformer.data.formats.jsonl import read_jsonl
from mgformer.data.formats.lightgcn import looks_like_lightgcn, read_lightgcn
from mgformer.data.formats.packed import plain_name, read_bytes
from mgformer.data.formats.parquet import read_parquet
from mgformer.data.formats.reading import Reading, say
from mgformer.data.options import DataConfig, Format
from mgformer.errors import DataError, did_you_mean

_READERS: dict[Format, Callable[[Path, DataConfig], tuple[pl.DataFrame, Reading]]] = {
    "csv": read_delimited,
    "inter": partial(read_delimited, typed_header=True),
    "lightgcn": read_lightgcn,
    "jsonl": read_jsonl,
    "parquet": read_parquet,
}
SUFFIXES: dict[str, Format | None] = {
    **dict.fromkeys((".csv", ".tsv", ".dat", ".data"), "csv"),
    **dict.fromkeys((".parquet", ".pq"), "parquet"),
    **dict.fromkeys((".jsonl", ".ndjson", ".json"), "jsonl"),
    ".inter": "inter",
    ".txt": None,
}
"""Format of each extension; None if it depends on the content."""


def read_file(path: Path, options: DataConfig) -> pl.DataFrame:
    """Read one file into checked columns, and log what was noticed."""
    frame, reading = read_table(path, options)
    say([reading])
    return frame


def read_table(path: Path, options: DataConfig) -> tuple[pl.DataFrame, Reading]:
    """Read one file into checked columns; also return what was noticed."""
    return _READERS[format_of(path, options)](path, options)


def format_of(path: Path, options: DataConfig) -> Format:
    """Return the format of an existing file: from the options, its extension or its content."""
    _check_is_file(path)
    if options.format != "auto":
        return options.format
    if known := SUFFIXES.get(suffix_of(path)):
        return known
    beginning = read_bytes(path, 1024)
    if beginning.startswith(b"PAR1"):
        return "parquet"
    if beginning.lstrip().startswith(b"{"):
        return "jsonl"
    # Options that name a separator or a column only make sense for delimited text.
    tolerant = options.on_error == "skip"
    names_columns = options.sep is not None or options.user is not None
    return "lightgcn" if not names_columns and looks_like_lightgcn(path, tolerant) else "csv"


def suffix_of(path: Path) -> str:
    """Return the extension in lower case; that of a packed file says what is in it."""
    return Path(plain_name(path)).suffix


def _check_is_file(path: Path) -> None:
    if path.is_file():
        return
    if path.is_dir():
        raise DataError(f"{path}: got a folder, expected a file; name a file in it")
    if path.is_symlink():
        raise DataError(f"{path}: got a link to nothing, expected a file; mend or remove the link")
    if path.exists():
        raise DataError(
            f"{path}: got a device or a pipe, expected a file; write it to a file first"
        )
    for parent in path.parents:
        if parent.is_file():
            raise DataError(f"{path}: got {parent}, which is a file, expected a folder")
    beside = [other.name for other in path.parent.iterdir()] if path.parent.is_dir() else []
    raise DataError(f"{path}: got no such file{did_you_mean(path.name, beside)}; check the path")
