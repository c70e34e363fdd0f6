"""The log of a run is read as it was written."""

from pathlib import Path

from mgformer.training.log import NAME, Log, read_log


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
