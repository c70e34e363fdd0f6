import hashlib
import json
import socket
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mgformer.data import download as module
from mgformer.data.download import extract_members
from mgformer.errors import DataError
from mgformer.progress import Advance, reporting
from tests.data.file_server import FileServer, file_server

# Several blocks, not a power of two; every position has different bytes.
CONTENT = b"".join(i.to_bytes(4, "big") for i in range(250_001))
SHA256 = hashlib.sha256(CONTENT).hexdigest()
PAUSES = (0, 0, 0)


def download(url: str, target: Path, sha256: str | None) -> None:
    module.download(url, target, sha256, PAUSES)


@pytest.fixture
def server() -> Iterator[FileServer]:
    with file_server() as served:
        served.files["data.bin"] = CONTENT
        yield served


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "data.bin"


def left_behind(target: Path) -> list[str]:
    return sorted(path.name for path in target.parent.iterdir())


def interrupted(server: FileServer, target: Path, after: int = 300_000) -> None:
    """Leave a partial download, as a killed process does."""
    server.cuts = [after] + [0] * len(PAUSES)
    with pytest.raises(DataError):
        download(server.url("data.bin"), target, SHA256)
    assert left_behind(target) == ["data.bin.part", "data.bin.part.json"]
    server.requests.clear()


def test_complete_download(server: FileServer, target: Path) -> None:
    download(server.url("data.bin"), target, SHA256)
    assert target.read_bytes() == CONTENT
    assert left_behind(target) == ["data.bin"]
    assert server.requests == [("/data.bin", None)]


def test_checksum_and_identity_are_optional(server: FileServer, target: Path) -> None:
    server.tag = ""
    download(server.url("data.bin"), target, None)
    assert target.read_bytes() == CONTENT


def test_progress_counts_every_byte_once(server: FileServer, target: Path) -> None:
    interrupted(server, target)
    phases: list[tuple[str, float | None, list[float]]] = []

    @contextmanager
    def record(name: str, total: float | None) -> Iterator[Advance]:
        phases.append((name, total, []))
        yield phases[-1][2].append

    with reporting(record):
        download(server.url("data.bin"), target, SHA256)
    [(name, total, steps)] = phases
    assert (name, total) == ("downloading data.bin", len(CONTENT))
    assert (steps[0], sum(steps)) == (300_000, len(CONTENT))


@pytest.mark.parametrize("tag", ["strong", "date"])
def test_cut_connection_resumes(server: FileServer, target: Path, tag: str) -> None:
    server.tag = tag
    server.cuts = [300_000, 1]
    download(server.url("data.bin"), target, SHA256)
    assert target.read_bytes() == CONTENT
    asked = [asked for _, asked in server.requests]
    assert asked == [None, "bytes=300000-", "bytes=300001-"]


def test_later_call_resumes(server: FileServer, target: Path) -> None:
    interrupted(server, target)
    download(server.url("data.bin"), target, SHA256)
    assert target.read_bytes() == CONTENT
    assert server.requests == [("/data.bin", "bytes=300000-")]


def test_complete_part_is_not_requested_again(server: FileServer, target: Path) -> None:
    interrupted(server, target)
    target.with_name("data.bin.part").write_bytes(CONTENT)
    download(server.url("data.bin"), target, SHA256)
    assert target.read_bytes() == CONTENT
    assert server.requests == []


def test_part_longer_than_the_file_starts_over(server: FileServer, target: Path) -> None:
    interrupted(server, target)
    target.with_name("data.bin.part").write_bytes(CONTENT + b"more")
    download(server.url("data.bin"), target, SHA256)
    assert target.read_bytes() == CONTENT


def test_server_without_ranges_starts_over(server: FileServer, target: Path) -> None:
    interrupted(server, target)
    server.knows_ranges = False
    download(server.url("data.bin"), target, SHA256)
    assert target.read_bytes() == CONTENT


def test_changed_file_starts_over(server: FileServer, target: Path) -> None:
    interrupted(server, target)
    changed = CONTENT[::-1]
    server.files["data.bin"] = changed
    download(server.url("data.bin"), target, None)
    assert target.read_bytes() == changed
    assert server.requests == [("/data.bin", "bytes=300000-")]


@pytest.mark.parametrize("told", ["", "bytes 7-9/10"])
def test_wrong_range_starts_over(server: FileServer, target: Path, told: str) -> None:
    interrupted(server, target)
    server.told_range = told
    download(server.url("data.bin"), target, SHA256)
    assert target.read_bytes() == CONTENT
    assert [asked for _, asked in server.requests] == ["bytes=300000-", None]


def test_incomplete_file_of_unknown_length_is_retried(server: FileServer, target: Path) -> None:
    server.chunked = True
    server.cuts = [300_000]
    download(server.url("data.bin"), target, None)
    assert target.read_bytes() == CONTENT
    assert len(server.requests) == 2


@pytest.mark.parametrize("tag", ["weak", ""])
def test_file_without_strong_identity_is_not_resumed(
    server: FileServer, target: Path, tag: str
) -> None:
    server.tag = tag
    server.cuts = [300_000]
    download(server.url("data.bin"), target, SHA256)
    assert target.read_bytes() == CONTENT
    assert [asked for _, asked in server.requests] == [None, None]


@pytest.mark.parametrize("note", ["", "[]", '{"url": "another", "validator": "x"}'])
def test_part_of_unknown_origin_is_not_resumed(server: FileServer, target: Path, note: str) -> None:
    target.parent.mkdir()
    target.with_name("data.bin.part").write_bytes(b"something else")
    target.with_name("data.bin.part.json").write_text(note)
    download(server.url("data.bin"), target, SHA256)
    assert target.read_bytes() == CONTENT
    assert server.requests == [("/data.bin", None)]


def test_wrong_checksum_leaves_nothing(server: FileServer, target: Path) -> None:
    expected = "0" * 64
    with pytest.raises(DataError, match=f"got sha256 {SHA256}, expected {expected}"):
        download(server.url("data.bin"), target, expected)
    assert left_behind(target) == []


def test_failed_download_keeps_the_old_file(server: FileServer, target: Path) -> None:
    target.parent.mkdir()
    target.write_bytes(b"old")
    server.cuts = [10] * 4
    with pytest.raises(DataError, match="ended after"):
        download(server.url("data.bin"), target, None)
    assert target.read_bytes() == b"old"


def test_missing_file_gives_one_line_and_no_retry(server: FileServer, target: Path) -> None:
    url = server.url("other.bin")
    with pytest.raises(DataError) as raised:
        download(url, target, None)
    message = str(raised.value)
    assert url in message
    assert "404" in message
    assert str(target) in message
    assert "\n" not in message
    assert len(server.requests) == 1
    assert left_behind(target) == []


def test_temporary_server_error_is_retried(server: FileServer, target: Path) -> None:
    server.failures = [503, 429, 500]
    download(server.url("data.bin"), target, SHA256)
    assert target.read_bytes() == CONTENT


def test_error_after_all_retries_says_how_to_resume(server: FileServer, target: Path) -> None:
    server.failures = [503] * 4
    with pytest.raises(
        DataError, match=r"503.*fetch again to resume, or put the file at"
    ) as raised:
        download(server.url("data.bin"), target, None)
    assert "\n" not in str(raised.value)


def test_unreachable_server_gives_one_line(target: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/data.bin"
        with pytest.raises(DataError, match="refused") as raised:
            download(url, target, None)
    assert "\n" not in str(raised.value)


def test_redirect_to_ftp_is_refused(server: FileServer, target: Path) -> None:
    server.redirect = "ftp://127.0.0.1:1/file"
    with pytest.raises(DataError, match="the server redirected to FTP"):
        download(server.url("file"), target, None)
    assert not target.exists()


@pytest.mark.parametrize("url", ["file:///etc/hosts", "ftp://host/file", "data.bin"])
def test_other_addresses_are_refused(target: Path, url: str) -> None:
    with pytest.raises(DataError, match="expected an http"):
        download(url, target, None)


def test_folder_that_cannot_be_written(server: FileServer, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        download(server.url("data.bin"), tmp_path / "file" / "data.bin", None)


def archive(path: Path, members: dict[str, str]) -> Path:
    with zipfile.ZipFile(path, "w") as file:
        for name, text in members.items():
            file.writestr(name, text)
    return path


def test_members_are_extracted_by_name_only(tmp_path: Path) -> None:
    source = archive(tmp_path / "a.zip", {"in/one": "1", "../two": "2", "three": "3"})
    extract_members(source, {"in/one": tmp_path / "one.txt", "../two": tmp_path / "two.txt"})
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.zip", "one.txt", "two.txt"]
    assert (tmp_path / "two.txt").read_text() == "2"


def test_missing_member_leaves_nothing(tmp_path: Path) -> None:
    source = archive(tmp_path / "a.zip", {"one": "1"})
    with pytest.raises(DataError, match="has no 'two'"):
        extract_members(source, {"one": tmp_path / "one", "two": tmp_path / "two"})
    assert [p.name for p in tmp_path.iterdir()] == ["a.zip"]


@pytest.mark.parametrize("damage", ["cut", "flipped"])
def test_damaged_archive_leaves_nothing(tmp_path: Path, damage: str) -> None:
    source = archive(tmp_path / "a.zip", {"one": "1" * 1000})
    content = bytearray(source.read_bytes())
    if damage == "cut":
        del content[500:]
    else:
        content[500] ^= 1
    source.write_bytes(content)
    with pytest.raises(DataError, match="not a complete zip file"):
        extract_members(source, {"one": tmp_path / "one"})
    assert [p.name for p in tmp_path.iterdir()] == ["a.zip"]


def test_note_of_a_part_names_its_url(server: FileServer, target: Path) -> None:
    interrupted(server, target)
    note = json.loads(target.with_name("data.bin.part.json").read_text())
    assert note["url"] == server.url("data.bin")
    assert note["length"] == len(CONTENT)
