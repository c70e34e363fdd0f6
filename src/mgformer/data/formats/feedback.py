"""The feedback log: interactions that a service has accepted, in files that only grow.

A log is a folder of files `feedback-….jsonl`. Each line is one JSON object: first the CRC-32 of the
rest of the line, then user, item, time and, if it was given, weight. A process that is killed, or a
power cut, leaves at most lines that are not whole. The checksum tells them, and they are left out.
"""

import json
import logging
import re
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from mgformer.data.formats.checks import check_columns
from mgformer.data.formats.reading import Reading
from mgformer.data.formats.values import check_values
from mgformer.data.options import DataConfig
from mgformer.errors import DataError
from mgformer.logs import rewrite

PREFIX = "feedback"
"""How the names of the files begin."""
EXPOSURES = "exposures"
"""How the names of the other log begin: who was answered by which model."""
COLUMNS = ("user", "item", "time", "weight")
LINE = re.compile(rb'\{"crc":"([0-9a-f]{8})",(.*\})', re.DOTALL)
START = b'{"crc":"'
"""How a line begins."""

log = logging.getLogger("mgformer")


def line_of(entry: Mapping[str, Any]) -> bytes:
    """Return an entry as a line of a log."""
    # All but ASCII is escaped, so a line ends at the line feed for every reader.
    rest = json.dumps(entry, separators=(",", ":"), allow_nan=False)[1:].encode("ascii")
    return b'{"crc":"%08x",%b\n' % (zlib.crc32(rest), rest)


def entry_of(line: bytes) -> dict[str, Any] | None:
    """Return the entry of a line; None if the line is not whole."""
    found = LINE.fullmatch(line.removesuffix(b"\n"))
    # A last line without its end was never accepted, whatever it holds.
    if found and line.endswith(b"\n") and int(found[1], 16) == zlib.crc32(found[2]):
        entry: dict[str, Any] = json.loads(b"{" + found[2])
        return entry
    return None


def entries_of(path: Path) -> Iterator[tuple[int, dict[str, Any] | None]]:
    """Yield the line numbers and entries of a log file; None for a line that is not whole."""
    with path.open("rb") as stream:
        for number, line in enumerate(stream, start=1):
            yield number, entry_of(line)


def is_log(path: Path) -> bool:
    """Whether this is a file of one of the logs that name users.

    A file of the same name may have lines of another kind. The only line of a log may be cut off.
    """
    if path.suffix != ".jsonl" or not path.name.startswith((f"{PREFIX}-", f"{EXPOSURES}-")):
        return False
    with path.open("rb") as stream:
        return START.startswith(stream.read(len(START)))


def logs_in(folder: Path) -> list[Path]:
    """Return the files of all logs in a folder that name users."""
    return sorted(path for path in folder.glob("*.jsonl") if is_log(path))


def users_in(paths: Iterable[Path]) -> set[str]:
    """Return the users of logs."""
    entries = (entry for path in paths for _, entry in entries_of(path) if entry is not None)
    return {str(entry.get("user")) for entry in entries}


def forget_in(path: Path, users: Collection[str]) -> int:
    """Leave out the lines of users in a log that a service may be writing; return how many.

    Lines that are not whole may hold the id of a user, and go too.
    """

    def stays(line: bytes) -> bool:
        entry = entry_of(line)
        return entry is not None and str(entry.get("user")) not in users

    return rewrite(path, stays)


def is_feedback(path: Path) -> bool:
    """Whether this is a feedback log, or one of its files."""
    return bool(files_of(path))


def files_of(path: Path) -> list[Path]:
    """Return the files of a feedback log, in the order of their names, which is that of time."""
    if path.is_dir():
        return sorted(path.glob(f"{PREFIX}-*.jsonl"))
    is_file = path.name.startswith(f"{PREFIX}-") and path.suffix == ".jsonl" and path.is_file()
    return [path] if is_file else []


def read_feedback(path: Path, options: DataConfig) -> pl.DataFrame:
    """Read a feedback log into checked columns. Options that name columns do not apply."""
    values: dict[str, list[Any]] = {name: [] for name in COLUMNS}
    places: list[tuple[Path, int]] = []
    for file in files_of(path):
        broken = []
        for number, entry in entries_of(file):
            if entry is None:
                broken.append(number)
                continue
            places.append((file, number))
            for name in COLUMNS:
                values[name].append(entry.get(name))
        if broken:
            log.warning(
                "%s: left out %d of the lines because they are not whole, the first is line %d;"
                " the service was stopped while it wrote them",
                file,
                len(broken),
                broken[0],
            )
    if not places:
        raise DataError(f"{path}: got a feedback log without interactions, expected some")

    def place(row: int) -> str:
        file, number = places[row]
        return f"{file}:{number}"

    if options.time == "":
        del values["time"]
    if options.weight == "" or not any(weight is not None for weight in values["weight"]):
        del values["weight"]
    else:
        values["weight"] = [1.0 if weight is None else weight for weight in values["weight"]]
    reading = Reading(str(path), form=place, skip=options.on_error == "skip")
    frame = pl.DataFrame([check_values(column, role, reading) for role, column in values.items()])
    return check_columns(frame, options, reading)
