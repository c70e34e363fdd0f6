"""A log loses nothing that was added, also while another process rewrites it."""

import threading
from pathlib import Path

import pytest

from mgformer.data.formats.feedback import entries_of, forget_in, line_of, logs_in, users_in
from mgformer.logs import Appending, rewrite


def test_a_rewritten_file_takes_no_more_lines(tmp_path: Path) -> None:
    log = Appending(tmp_path / "log")
    assert log.add(b"gone\n")
    assert log.add(b"kept\n")
    assert rewrite(log.path, lambda line: line != b"other\n") == 0
    assert log.add(b"more\n")  # nothing was left out, so the file is the same
    assert rewrite(log.path, lambda line: line != b"gone\n") == 1
    assert not log.add(b"late\n")
    log.close()
    assert log.path.read_bytes() == b"kept\nmore\n"
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


def test_a_removed_file_takes_no_more_lines(tmp_path: Path) -> None:
    log = Appending(tmp_path / "log")
    assert log.add(b"one\n")
    log.path.unlink()
    assert not log.add(b"two\n")
    log.close()


def test_a_failed_rewrite_leaves_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Appending(tmp_path / "log")
    log.add(b"gone\nkept\n")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("mgformer.files.os.replace", full)
        with pytest.raises(OSError, match="No space left"):
            rewrite(log.path, lambda line: line != b"gone\n")
    assert log.add(b"more\n")
    log.close()
    assert log.path.read_bytes() == b"gone\nkept\nmore\n"


def test_lines_added_while_logs_are_rewritten_stay(tmp_path: Path) -> None:
    """One thread adds lines as a service does; another forgets a user again and again."""
    num_lines, done = 400, threading.Event()

    def serve() -> None:
        files = iter(range(num_lines))
        log = Appending(tmp_path / f"feedback-{next(files):03d}.jsonl")
        for number in range(num_lines):
            line = line_of({"user": "gone" if number % 3 == 0 else "stays", "item": number})
            while not log.add(line):
                log.close()
                log = Appending(tmp_path / f"feedback-{next(files):03d}.jsonl")
        log.close()
        done.set()

    writer = threading.Thread(target=serve)
    writer.start()
    while not done.is_set():
        for path in logs_in(tmp_path):
            forget_in(path, {"gone"})
    writer.join()
    for path in logs_in(tmp_path):
        forget_in(path, {"gone"})
    entries = [entry for path in logs_in(tmp_path) for _, entry in entries_of(path)]
    assert [entry and entry["item"] for entry in entries] == [
        number for number in range(num_lines) if number % 3
    ]
    assert users_in(logs_in(tmp_path)) == {"stays"}
    assert len(logs_in(tmp_path)) > 1  # files were rewritten while lines were added


def test_two_rewrites_of_a_file_wait_for_each_other(tmp_path: Path) -> None:
    path, started, may_end = tmp_path / "log", threading.Event(), threading.Event()
    path.write_bytes(b"a\nb\nc\n")

    def slow(line: bytes) -> bool:
        started.set()
        assert may_end.wait(60)
        return line != b"a\n"

    first = threading.Thread(target=rewrite, args=(path, slow))
    first.start()
    assert started.wait(60)
    second = threading.Thread(target=rewrite, args=(path, lambda line: line != b"b\n"))
    second.start()
    may_end.set()
    first.join()
    second.join()
    assert path.read_bytes() == b"c\n"


def test_lines_that_are_not_whole_go_with_a_user(tmp_path: Path) -> None:
    path = tmp_path / "exposures-1.jsonl"
    whole = [line_of({"time": 1.5, "user": user, "items": ["i"]}) for user in ("a", "b", 7)]
    path.write_bytes(b"".join(whole) + line_of({"user": "a"})[:-4])
    assert forget_in(path, {"a", "7"}) == 3
    assert path.read_bytes() == whole[1]
