import errno
import hashlib
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import safetensors.torch
import torch

from mgformer.files import HOST, make_folder, replacing, sha256_of, write_by_checksum, write_text
from tests.faults.injection import operations_of


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    write_text(path, "old")
    write_text(path, "new, with ü")
    assert path.read_text(encoding="utf-8") == "new, with ü"
    assert list(tmp_path.iterdir()) == [path]


def test_an_interrupted_writer_leaves_the_old_file_and_no_draft(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    write_text(path, "old")

    def interrupted() -> None:
        with replacing(path) as draft:
            draft.write_text("half of the")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_writer_that_writes_nothing_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    write_text(path, "old")
    with pytest.raises(FileNotFoundError), replacing(path):
        pass
    assert path.read_text() == "old"


@pytest.mark.parametrize("size", [0, 1, (1 << 20) - 1, (1 << 20) + 7])
def test_checksums_of_files_of_any_size(tmp_path: Path, size: int) -> None:
    content = bytes(range(256)) * (size // 256 + 1)
    path = tmp_path / "data"
    path.write_bytes(content[:size])
    assert sha256_of(path) == hashlib.sha256(content[:size]).hexdigest()


@pytest.mark.skipif(os.name == "nt", reason="Windows has no umask")
@pytest.mark.parametrize(("umask", "mode"), [(0o077, 0o600), (0o027, 0o640), (0o002, 0o664)])
def test_files_have_the_permissions_that_the_umask_leaves(
    umask: int, mode: int, tmp_path: Path
) -> None:
    def write(draft: Path) -> None:
        safetensors.torch.save_file({"w": torch.ones(3)}, draft)

    before = os.umask(umask)
    try:
        write_text(tmp_path / "text", "a")
        kept = write_by_checksum(tmp_path, "tensors", "safetensors", write)
    finally:
        os.umask(before)
    for path in (tmp_path / "text", kept.path):
        assert stat.S_IMODE(path.stat().st_mode) == mode


def test_the_name_of_a_file_has_its_checksum(tmp_path: Path) -> None:
    kept = write_by_checksum(tmp_path, "part", "txt", lambda draft: draft.write_text("abc"))
    digest = hashlib.sha256(hashlib.sha256(b"abc").digest()).hexdigest()  # of one block
    assert kept == (tmp_path / f"part-{digest[:12]}.txt", 3, digest)
    assert kept.path.read_text() == "abc"


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_content_is_synced_before_the_rename_and_the_folder_after_it(tmp_path: Path) -> None:
    found = operations_of(tmp_path, lambda: write_text(tmp_path / "notes", "a"))
    order = [
        (step.kind, Path(step.path).name) for step in found if step.kind in ("fsync", "rename")
    ]
    assert order == [("fsync", "notes"), ("rename", "notes"), ("fsync", tmp_path.name)]


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_new_folders_are_synced_into_the_folders_above(tmp_path: Path) -> None:
    found = operations_of(tmp_path, lambda: make_folder(tmp_path / "a" / "b"))
    order = [(step.kind, Path(step.path).name) for step in found]
    assert order == [("mkdir", "a"), ("fsync", tmp_path.name), ("mkdir", "b"), ("fsync", "a")]


def test_drafts_of_ended_processes_are_removed_by_the_next_write(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    drafts = {
        f".drafts-{HOST}-{ended.pid}-0": False,  # the process has ended
        f".drafts-{HOST}-{os.getpid()}-999999": False,  # an earlier process had our number
        f".drafts-{HOST}-{os.getppid()}-0": True,  # the process is running
        ".drafts-00000000-1-0": True,  # a process of another computer
        ".drafts-mine": True,
    }
    for name in drafts:
        (tmp_path / name).mkdir()
        (tmp_path / name / ".tmpAbCdEf").write_text("half of")
    write_text(tmp_path / "notes", "a")
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"notes", *(name for name, stays in drafts.items() if stays)}
    os.utime(tmp_path / ".drafts-00000000-1-0", (0, 0))
    write_text(tmp_path / "notes", "a")
    assert not (tmp_path / ".drafts-00000000-1-0").exists()


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("Error while serializing: I/O error: No space left on device (os error 28)"),
        RuntimeError("write error in items.faiss: 0 != 8 (No space left on device)"),
        OSError("No space left on device (os error 28)"),
        OSError(errno.ENOSPC, "No space left on device"),
    ],
)
def test_a_full_disk_is_an_error_about_the_file_whatever_library_writes(
    error: Exception, tmp_path: Path
) -> None:
    def write(draft: Path) -> None:
        raise error

    with pytest.raises(OSError, match="No space left") as caught:
        write_by_checksum(tmp_path, "part", "txt", write)
    assert (caught.value.errno, caught.value.filename) == (
        errno.ENOSPC, str(tmp_path / "part.txt"),
    )  # fmt: skip
    assert list(tmp_path.iterdir()) == []


def test_other_errors_of_a_writer_stay_what_they_are(tmp_path: Path) -> None:
    def write(draft: Path) -> None:
        raise KeyError("weights")

    with pytest.raises(KeyError, match="weights"):
        write_by_checksum(tmp_path, "part", "txt", write)
    missing = tmp_path / "elsewhere"
    with pytest.raises(FileNotFoundError) as caught:
        write_by_checksum(tmp_path, "part", "txt", lambda draft: missing.read_bytes())
    assert caught.value.filename == str(missing)
