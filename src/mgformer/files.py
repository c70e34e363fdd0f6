"""Write files whole or not at all, and check what is read: the only place that does it.

A file is written as a draft in a folder of its own beside the target. Then it is synced, renamed,
and the folder is synced: after a crash or a power cut there is the old file or the new one. A draft
folder names its process. A failed write removes it; after a kill, the next write into the same
folder does. Drafts have the permissions that the umask leaves.
"""

import errno
import hashlib
import itertools
import os
import re
import shutil
import socket
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from mgformer.checksums import checksum_of_file
from mgformer.errors import MgformerError

CHUNK = 1 << 20
HOST = f"{zlib.crc32(socket.gethostname().encode()):08x}"
"""Processes of other computers and containers may write into the same folder."""
DRAFTS = re.compile(r"\.drafts-(?P<host>[0-9a-f]{8})-(?P<pid>\d+)-\d+")
DAY = 86_400
"""Seconds after which files of writers that cannot be seen are taken to be left behind."""
SHOWN = 12
"""Hexadecimal digits of a checksum in the name of a file."""
_numbers = itertools.count()
_being_written: set[str] = set()


class Kept(NamedTuple):
    """A file whose name contains its checksum."""

    path: Path
    size: int
    checksum: str


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a draft to write to; it takes the place of `path` when the block ends.

    A crash leaves the old file or the new one, never half of one. When the block returns, the new
    file survives a power cut. If the system fails, an OSError names `path`.
    """
    with _drafting(path) as (draft, mode):
        yield draft
        _settle(draft, mode, path)


def write_text(path: Path, text: str) -> None:
    """Write a text file in one step."""
    with replacing(path) as draft:
        draft.write_text(text, encoding="utf-8", newline="\n")


def write_by_checksum(
    folder: Path, name: str, suffix: str, write: Callable[[Path], object]
) -> Kept:
    """Write a file in one step; return it as `name-CHECKSUM.suffix`."""
    with _drafting(folder / f"{name}.{suffix}") as (draft, mode):
        write(draft)
        checksum, size = checksum_of_file(draft), draft.stat().st_size
        kept = folder / f"{name}-{checksum[:SHOWN]}.{suffix}"
        _settle(draft, mode, kept)
        return Kept(kept, size, checksum)


def append_line(path: Path, line: str) -> None:
    """Add a line to a text file. A crash may lose it or leave a part of it, but no earlier line."""
    with path.open("a", encoding="utf-8", newline="\n") as stream:
        stream.write(line + "\n")


def make_folder(folder: Path) -> None:
    """Make a folder that survives a power cut, with those above it."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    with suppress(FileExistsError):
        os.mkdir(folder)
    sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder survive a power cut."""
    if os.name == "nt":  # Windows cannot open folders
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some network file systems do not sync folders
            raise OSError(error.errno, os.strerror(error.errno or 0), str(folder)) from None
    finally:
        os.close(descriptor)


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def folder_name(name: str) -> str:
    """Return a name that every file system takes."""
    return re.sub(r"[^\w.]+", "-", name, flags=re.ASCII).strip("-")


def collect_drafts(folder: Path) -> None:
    """Remove the drafts that killed processes left in a folder."""
    with os.scandir(folder) as entries:
        left = [entry for entry in entries if _is_left_behind(entry)]
    for entry in left:
        shutil.rmtree(entry.path, ignore_errors=True)


@contextmanager
def _drafting(path: Path) -> Iterator[tuple[Path, int]]:
    """Yield a draft of `path` and the permissions that it gets; remove what is left of it.

    It has a folder of its own, because some libraries write drafts of theirs beside their target.
    """
    drafts = path.parent / f".drafts-{HOST}-{os.getpid()}-{next(_numbers)}"
    _being_written.add(drafts.name)
    try:
        collect_drafts(path.parent)
        os.mkdir(drafts)
        # The mode of a new folder tells the umask. Asking for the umask would change it for all
        # threads, and safetensors writes for the owner only.
        yield drafts / path.name, drafts.stat().st_mode & 0o666
    except Exception as error:
        raise _about(error, path, drafts) from error
    finally:
        shutil.rmtree(drafts, ignore_errors=True)
        _being_written.discard(drafts.name)


def _settle(draft: Path, mode: int, path: Path) -> None:
    """Let a written draft take the place of `path`, for good."""
    descriptor = os.open(draft, os.O_RDWR)
    try:
        if os.name != "nt":
            os.fchmod(descriptor, mode)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.replace(draft, path)
    sync_folder(path.parent)


def _is_left_behind(entry: os.DirEntry[str]) -> bool:
    """Whether this is a draft of a process that has ended."""
    draft = DRAFTS.fullmatch(entry.name)
    if draft is None or entry.name in _being_written:
        return False
    if draft["host"] == HOST and os.name != "nt":  # where a signal would end the process
        # An own number that is not being written was left by an earlier process.
        return int(draft["pid"]) == os.getpid() or not _is_alive(int(draft["pid"]))
    with suppress(FileNotFoundError):
        return time.time() - entry.stat(follow_symlinks=False).st_mtime > DAY
    return False


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):  # the process of another user; no process at all
        return pid < 1 << 31
    return True


def _about(error: Exception, path: Path, drafts: Path) -> Exception:
    """Return an OSError about `path` if this is a failure of the system, otherwise the error.

    Libraries report failed writes in their own ways: in Rust as "(os error 28)", in C++ by name.
    """
    if isinstance(error, MgformerError):
        return error
    code = error.errno if isinstance(error, OSError) else None
    if isinstance(error, OSError) and error.filename is not None:
        about = Path(os.fsdecode(error.filename))
        if about not in (path, path.parent) and not about.is_relative_to(drafts):
            return error  # about another file, which the writer reads
    if code is None:
        text = str(error)
        found = re.search(r"\(os error (\d+)\)", text)
        named = (number for number in errno.errorcode if f"({os.strerror(number)})" in text)
        code = int(found[1]) if found else next(named, None)
    return error if code is None else OSError(code, os.strerror(code), str(path))
