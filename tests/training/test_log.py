"""The log of a run is read as it was written."""

import logging
from pathlib import Path

import pytest

from mgformer.training import log
from mgformer.training.log import NAME, NEW, Log, keep_log, read_log


def test_complete_lines_of_the_log_are_read_and_an_incomplete_one_is_not(tmp_path: Path) -> None:
    assert read_log(tmp_path) == []
    entries = [{"stage": "select", "epoch": epoch, "seconds": 1 / epoch} for epoch in (1, 2)]
    journal = Log(tmp_path, tensorboard=False, past=entries[:1])
    journal.write(entries[1])
    journal.close()
    assert read_log(tmp_path) == entries
    with (tmp_path / NAME).open("a") as stream:
        stream.write('{"stage": "select", "ep')
    assert read_log(tmp_path) == entries


def entry(epoch: int, **more: object) -> dict[str, object]:
    return {"stage": "select", "epoch": epoch, "seconds": 0.5, **more}


def test_characters_that_end_lines_elsewhere_do_not_end_a_line(tmp_path: Path) -> None:
    entries = [entry(1, note="a\u2028b\x85c\x1dd"), entry(2)]
    journal = Log(tmp_path, tensorboard=False)
    for one in entries:
        journal.write(one)
    assert read_log(tmp_path) == entries
    text = (tmp_path / NAME).read_text(encoding="utf-8")
    assert len(text.splitlines()) == 2
    (tmp_path / NAME).write_text(text.replace("\\u2028", "\u2028"), encoding="utf-8")
    assert read_log(tmp_path) == entries


@pytest.mark.parametrize("text", ["[1]\n", '{"epoch": 1}\n', "\x00\x00\n", "{\n"])
def test_a_damaged_log_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / NAME).write_text(text)
    with pytest.raises(ValueError, match=r"."):
        read_log(tmp_path)


def test_the_log_of_the_run_before_stays_until_the_new_one_is_kept(tmp_path: Path) -> None:
    Log(tmp_path, tensorboard=False, past=[entry(1), entry(2)])
    journal = Log(tmp_path, tensorboard=False, beside=True)
    journal.write(entry(1, loss=3.0))
    assert read_log(tmp_path) == [entry(1), entry(2)]
    keep_log(tmp_path)
    assert read_log(tmp_path) == [entry(1, loss=3.0)]
    assert not (tmp_path / NEW).exists()
    keep_log(tmp_path)
    assert read_log(tmp_path) == [entry(1, loss=3.0)]


def test_a_full_disk_is_reported_once_and_lost_lines_are_written_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(path: Path, line: str) -> None:
        with path.open("a") as stream:
            stream.write(line[:5])
        raise OSError(28, "No space left on device", str(path))

    journal = Log(tmp_path, tensorboard=False)
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING, "mgformer"):
        patch.setattr(log, "append_line", full)
        patch.setattr(log, "write_text", full)
        for epoch in (1, 2):
            journal.write(entry(epoch))
    (record,) = caplog.records
    assert "No space left on device" in record.getMessage()
    for epoch in (3, 4):
        journal.write(entry(epoch))
    assert read_log(tmp_path) == [entry(epoch) for epoch in (1, 2, 3, 4)]
