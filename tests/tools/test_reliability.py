"""The list of mutants is up to date, and rows of results/reliability become tables."""

from pathlib import Path

import pytest
from pydantic import ValidationError
from tools.reliability import FOLDER, NOT_TRIED, Row, promises, read_rows, save_rows, totals

from tools import mutants


def test_every_mutant_still_has_its_text_and_its_tests() -> None:
    listed = mutants.read_list()
    assert len(listed) >= 40
    assert len({mutant.name for mutant in listed}) == len(listed)
    assert mutants.problems(listed) == []


def test_a_text_that_is_gone_is_a_problem() -> None:
    (first, *_) = mutants.read_list()
    (problem,) = mutants.problems([first._replace(text="no such text")])
    assert "stands 0 times in src/mgformer/ranking/metrics.py" in problem
    (problem,) = mutants.problems([first._replace(tests=["tests/test_nothing.py"])])
    assert "there is no tests/test_nothing.py" in problem


def test_survivors_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "halves.py").write_text("def half(x: int) -> int:\n    return x // 2\n")
    (tmp_path / "test_halves.py").write_text(
        "from halves import half\n\n\ndef test_half() -> None:\n    assert half(4) == 2\n"
    )
    wrong = mutants.Mutant("area", "name", "halves.py", "x // 2", "x // 3", ["test_halves.py"])
    assert mutants.killed(wrong, tmp_path)
    same = wrong._replace(into="x // 2 + 0")
    assert not mutants.killed(same, tmp_path)
    assert "x // 2\n" in (tmp_path / "halves.py").read_text()
    assert mutants.row_of("area", [wrong, same], [same]).lost == 1
    assert mutants.row_of("area", [wrong, same], [same]).note == "name"


def test_rows_are_stored_and_shown(tmp_path: Path) -> None:
    row = Row(promise="A kill loses nothing", test="tests/faults", kind="kills", tried=500, lost=0)
    assert promises(tmp_path) == totals(tmp_path) == NOT_TRIED
    save_rows(
        "faults", [row, row.model_copy(update={"tried": 1000, "lost": 2, "note": "why"})], tmp_path
    )
    first, second = read_rows(tmp_path)
    assert first.commit
    assert first.date.startswith("20")
    assert second.lost == 2
    shown = promises(tmp_path)
    assert "| A kill loses nothing | `tests/faults` | 500 kills | 0 |" in shown
    assert "A kill loses nothing (why)" in shown
    assert "| kills | 1,500 | 2 |" in totals(tmp_path)
    with pytest.raises(ValidationError):
        Row(promise="x", test="y", kind="z", tried=-1, lost=0)


def test_nothing_that_was_published_is_broken() -> None:
    assert [row.promise for row in read_rows(FOLDER) if row.lost] == []
