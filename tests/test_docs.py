"""What the documents show is run, and what they name exists."""

import doctest
import re
import shlex
import subprocess
from pathlib import Path

import numpy as np
import pytest

from mgformer.models import BUILTIN
from mgformer.ranking import metrics
from mgformer.recommend.export import export
from mgformer.recommend.recommender import Recommender
from tests.command import mgformer

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


def test_the_readme_works_from_top_to_bottom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [f"u{user},i{item}" for user in range(30) for item in range(12) if (user + item) % 3]
    Path("ratings.csv").write_text("user,item\n" + "\n".join(rows))
    commands = [
        line.removeprefix("$ ")
        for block in blocks(README, "console")
        for line in block.splitlines()
        if line.startswith("$ mgformer ")
    ]
    assert len(commands) == 9
    for command in commands:
        assert mgformer(*shlex.split(command)[1:]).returncode == 0, command
    assert Path("recommendations.parquet").is_file()
    (code,) = blocks(README, "python")
    exec(code, {})
    shown = capsys.readouterr().out
    assert "shape: (8, 4)" in shown  # two users, who each lack four of the twelve items
    assert "shape: (5, 4)" in shown  # a new user, with the items of the history left out
    assert "weight" in shown


def test_the_python_guide_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = ROOT / "docs/guide/python.md"
    sessions = "\n".join(blocks(page.read_text(), "pycon"))
    session = doctest.DocTestParser().get_doctest(sessions, {}, page.name, str(page), 0)
    problems: list[str] = []
    done = doctest.DocTestRunner().run(session, out=problems.append)
    assert not done.failed, "".join(problems)
    assert done.attempted > 20


def test_a_bundle_moves_into_a_folder_in_service_as_documented(tmp_path: Path) -> None:
    for folder, model in (("runs/mine", "itemknn"), ("trained/run", "popularity")):
        Recommender.fit("demo", model).save(tmp_path / folder)
    (commands,) = [
        block
        for block in blocks((ROOT / "docs/guide/serving.md").read_text(), "console")
        if "incoming" in block
    ]
    commands = commands.replace("/mnt/trained", str(tmp_path / "trained"))
    subprocess.run(["sh", "-ec", commands], cwd=tmp_path, check=True)
    assert Recommender.load(tmp_path / "runs/mine").bundle.record.model == "popularity"


EXPORT_GUIDE = (ROOT / "docs/guide/export.md").read_text()


def export_commands() -> list[list[str]]:
    lines = [line for block in blocks(EXPORT_GUIDE, "console") for line in block.splitlines()]
    assert len(lines) == 5
    assert all(line.startswith("mgformer export runs/mine --format ") for line in lines)
    return [shlex.split(line)[1:] for line in lines]


def test_exports_are_used_as_documented(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    recommender = Recommender.fit("demo", "bprmf", train={"epochs": 5})
    recommender.save(Path("runs/mine"))
    for command in export_commands():
        assert mgformer(*command).returncode == 0, command
    *_, new_user, index, _ = blocks(EXPORT_GUIDE, "python")
    exec(new_user, {})
    answer = recommender.recommend_for(["sailing-02", "sailing-03"], 5, exclude_seen=False)
    assert capsys.readouterr().out.strip() == str(answer["item"].to_list())
    exec(index, {})
    found = recommender.recommend(recommender.bundle.users.values[:3], 5, exclude_seen=False)
    lists = found.group_by("user", maintain_order=True).agg("item")["item"]
    assert capsys.readouterr().out.strip() == str(lists.to_list())


def test_exports_of_item_weights_are_used_as_documented(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    recommender = Recommender.fit("demo", "ridge")
    recommender.save(Path("runs/mine"))
    for *command, form in export_commands():
        assert mgformer(*command, form).returncode == (2 if form == "faiss" else 0), form
    answer = recommender.recommend_for(["sailing-02", "sailing-03"], 5, exclude_seen=False)
    for code in blocks(EXPORT_GUIDE, "python")[:2]:
        exec(code, {})
        assert capsys.readouterr().out.strip() == str(answer["item"].to_list())


def test_exports_with_a_guide_are_used_as_documented(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    sections = {"train": {"epochs": 2}, "score": {"delta": 2}, "split": {"kind": "ratio"}}
    recommender = Recommender.fit("demo", "guided", **sections)
    for form in ("npz", "faiss", "onnx", "parquet"):
        export(recommender.bundle, form, Path("runs/mine/export"))
    *_, user, new_user, _, search = blocks(EXPORT_GUIDE, "python")
    lists = recommender.recommend(["bella-787"], 5, exclude_seen=False)
    answer = recommender.recommend_for(["sailing-02", "sailing-03"], 5, exclude_seen=False)
    for code, expected in ((user, lists), (new_user, answer), (search, lists)):
        exec(code, {})
        assert capsys.readouterr().out.strip() == str(expected["item"].to_list())


def test_the_readme_lists_every_model() -> None:
    for name, entry in BUILTIN.items():
        assert f"| `{name}` | {entry.summary} |" in README.splitlines()


def test_links_lead_somewhere() -> None:
    for document in DOCUMENTS:
        for target in re.findall(r"\]\((?!http)([^)#]+)", document.read_text()):
            assert (document.parent / target).exists(), (document.name, target)


def test_make_targets_named_in_documents_exist() -> None:
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    for document in DOCUMENTS:
        named = re.findall(r"(?:^|`)make (\w+)", document.read_text(), flags=re.MULTILINE)
        assert set(named) <= targets, document.name


def test_tests_named_in_documents_exist() -> None:
    named, file = 0, ""
    for document in DOCUMENTS:
        for path, test in re.findall(r"`(tests/[\w/]+\.py)?(?:::(\w+))?`", document.read_text()):
            file = path or file
            if not (path or test):
                continue
            text = (ROOT / file).read_text()
            assert not test or re.search(rf"def {test}\(", text), f"{document}: {file}::{test}"
            named += 1
    assert named > 30


def test_the_worked_example_of_the_metrics() -> None:
    rows = re.findall(
        r"^\| `(\w+)@5` \|.*\| ([\d.]+) \|$", (ROOT / "docs/reference/metrics.md").read_text(), re.M
    )
    hits = np.array([[False, True, False, True, False]])
    assert {name for name, _ in rows} == set(metrics.METRICS)
    for name, value in rows:
        assert float(value) == pytest.approx(
            metrics.METRICS[name](hits, np.array([3]), 5)[0], abs=5e-5
        )
