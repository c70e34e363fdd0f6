"""The errors that the library raises.

    MgformerError(ValueError)   the user's input is wrong; the command line exits with 2
      DataError                 a file, table, id or split
        UnknownIdError          a user or an item that is not in the training data
      ConfigError               an option: unknown, of the wrong type, or impossible
      BundleError               a trained recommender on disk that cannot be used
      BusyError                 another process writes there

A message is one line. It says what was got, what was expected, where, and what to do. It names an
option as the command line does, `--set data.user=NAME`. An error that passes through the Python
interface says the same in Python: `user="NAME"` (`python_words`).

An OSError or a MemoryError means that the system failed: disk, permissions, memory. The command
line exits with 3 (`system_failure`). Any other exception is a bug of ours (exit code 1).
"""

import difflib
import errno
import json
import os
import re
from ast import literal_eval
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

COLUMN_OPTIONS = ("user", "item", "time", "rating", "weight")
"""Options of the section [data] that are keywords of their own in Python."""
# A value ends before the punctuation of the sentence; in quotes it may have any.
_SETTING = re.compile(r"--set (\w+)\.(\w+)(?:=('[^']*'|[^\s,;)]*[^\s,;).]))?")

_COMMAND = re.compile(r", or see: mgformer [\w ]+")
_NEIGHBORS = re.compile(r"(--set \S+) (?=--set )")


class MgformerError(ValueError):
    """The user's input is wrong."""

    in_python = False
    """Whether the message names options as Python does."""

    def __str__(self) -> str:
        text = super().__str__()
        return in_python_words(text) if self.in_python else text


class DataError(MgformerError):
    """A file, table, id or split cannot be used."""


class UnknownIdError(DataError):
    """A user or an item is not in the training data.

    The search for similar ids takes longer than many a request, and a batch of errors shows only
    one message. So it runs when the message is read.
    """

    def __init__(self, message: str, closest: Callable[[], Sequence[str]] = tuple) -> None:
        super().__init__(message)
        self._closest = closest

    def __str__(self) -> str:
        close = self._closest()
        hint = f"; did you mean {', '.join(close)}?" if close else ""
        return f"{super().__str__()}{hint}"


class ConfigError(MgformerError):
    """An option is unknown, of the wrong type, or impossible."""


class BundleError(MgformerError):
    """A trained recommender on disk cannot be used."""


class BusyError(MgformerError):
    """Another process writes into the same folder, or to the same file."""


@contextmanager
def python_words() -> Iterator[None]:
    """Let errors that leave the block name options as Python does."""
    try:
        yield
    except MgformerError as error:
        error.in_python = True
        raise


def in_python_words(text: str) -> str:
    """Return a message with keywords of Python in place of options of the command line."""
    text = _COMMAND.sub("", text).replace("another --out", "another folder")
    text = _NEIGHBORS.sub(r"\1, ", text)
    return _SETTING.sub(_as_keyword, text)


def _as_keyword(setting: re.Match[str]) -> str:
    section, option, text = setting.groups()
    try:
        value = literal_eval(text or "…")
    except (ValueError, SyntaxError):  # not a number, list or quoted text
        value = {"true": True, "false": False}.get(text, text or "…")
    shown = json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)
    if section == "data" and option in COLUMN_OPTIONS:
        return f"{option}={shown}"
    return f'{section}={{"{option}": {shown}}}'


REMEDIES = {
    errno.ENOSPC: "free some space, or choose another --out",
    errno.EDQUOT: "free some space, or choose another --out",
    errno.EACCES: "check the permissions, or choose another --out",
    errno.EPERM: "check the permissions, or choose another --out",
    errno.EROFS: "choose another --out",
    errno.EIO: "check the disk, or choose another --out",
    errno.EMFILE: "close other programs, or raise the limit with: ulimit -n",
}
"""Number of an error of the system → what the user can do."""


def system_failure(error: BaseException) -> str | None:
    """Return one line about a failure of the system; None if the error is something else."""
    if isinstance(error, OSError):
        reason = error.strerror or str(error) or type(error).__name__
        place = f"{os.fsdecode(error.filename)}: " if error.filename else ""
        remedy = REMEDIES.get(error.errno or 0)
        return f"{place}{reason}" + (f"; {remedy}" if remedy else "")
    # torch raises a RuntimeError when memory runs out.
    no_memory = isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
    if isinstance(error, MemoryError) or no_memory:
        return "out of memory; use less data, a smaller model, or a computer with more memory"
    return None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return "; did you mean …?" with the known word closest to `word`, or "" if none is close."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f"; did you mean {close[0]}?" if close else ""
