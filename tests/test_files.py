import hashlib
from pathlib import Path

import pytest

from mgformer.files import replacing, sha256_of, write_text


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
