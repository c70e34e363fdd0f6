"""A model, a metric and a split from a folder outside the package, as the guide shows them."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parent.parent
EXAMPLE = ROOT / "examples" / "own_model"
GUIDE = (ROOT / "docs" / "guide" / "own-model.md").read_text()
MANY = """
import shlex, sys
from mgformer.cli import main
for line in sys.stdin:
    sys.argv = shlex.split(line)
    try:
        main()
    except SystemExit as stop:
        assert not stop.code, (line, stop.code)
"""
SERVED = """
import sys
from pathlib import Path
from fastapi.testclient import TestClient
from mgformer.serving.app import create_app
with TestClient(create_app(Path(sys.argv[1]), watch_seconds=None)) as client:
    answer = client.post("/recommend", json={"user": "bella-787", "k": 3})
    assert answer.status_code == 200, answer.text
assert "own_model" not in sys.modules
"""


def python(folder: Path, *arguments: str, **options: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a folder; only the package is on its path."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONSAFEPATH": "1"}
    environment |= options.pop("environment", {})  # type: ignore[arg-type]
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True,
        timeout=1200, **options,
    )  # fmt: skip


def mgformer(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return python(folder, "-m", "mgformer", *arguments)


def record_of(folder: Path) -> dict[str, object]:
    return json.loads((folder / "bundle.json").read_text())["record"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the example, in which all commands of the guide have been run."""
    copy = tmp_path_factory.mktemp("outside") / "own_model"
    shutil.copytree(EXAMPLE, copy)
    commands = re.findall(r"^\$ (mgformer .*)$", GUIDE, flags=re.MULTILINE)
    assert len(commands) == 14
    done = python(copy, "-c", MANY, input="\n".join(commands))
    assert done.returncode == 0, done.stderr
    return copy


def test_the_guide_shows_the_example() -> None:
    source = (EXAMPLE / "own_model.py").read_text()
    for block in re.findall(r"```python\n((?:class|def) .*?)```", GUIDE, flags=re.DOTALL):
        assert block in source


def test_records_name_the_model_and_its_figures_beat_popularity(folder: Path) -> None:
    for run, name in {"cosine": "Cosine", "factors": "Factors", "final": "Cosine"}.items():
        record = record_of(folder / "runs" / run)
        assert record["model"] == f"own_model:{name}"
        assert record["test"]["ndcg@20"] > record["popularity"]["ndcg@20"]
    assert record_of(folder / "runs/cosine")["config"]["model"]["shrink"] == 5
    compared = {path.name for path in (folder / "runs/compare").iterdir() if path.is_dir()}
    assert compared == {"own_model-Cosine", "ease", "popularity"}
    assert "own_model:Cosine" in (folder / "runs/compare/compare.md").read_text()
    assert (folder / "runs/factors/report.html").stat().st_size > 10_000


def test_a_metric_of_ones_own_is_in_the_record(folder: Path) -> None:
    test = record_of(folder / "runs/rbp")["test"]
    assert 0 < test["rank_biased@10"] <= test["rank_biased@50"] < 1


def test_a_split_of_ones_own_is_in_the_protocol(folder: Path) -> None:
    assert record_of(folder / "runs/split")["protocol"].startswith("own_model:every_tenth: ")


def test_a_trained_recommender_does_not_need_the_class(folder: Path, tmp_path: Path) -> None:
    for run in ("cosine", "rbp"):
        shutil.copytree(folder / "runs" / run, tmp_path / run)
    lists = mgformer(tmp_path, "recommend", "cosine", "--user", "bella-787", "--json")
    assert len(json.loads(lists.stdout)["users"][0]["items"]) == 20, lists.stderr
    served = python(tmp_path, "-c", SERVED, "cosine")
    assert served.returncode == 0, served.stderr
    measured = mgformer(tmp_path, "evaluate", "cosine", "--json")
    assert json.loads(measured.stdout)["test"] == record_of(tmp_path / "cosine")["test"]
    without = mgformer(tmp_path, "evaluate", "rbp", "--json")
    assert "left out the metric own_model:rank_biased" in without.stderr
    assert "rank_biased@10" not in json.loads(without.stdout)["test"]
    refused = mgformer(tmp_path, "refit", "cosine")
    assert refused.returncode == 2
    assert "add --model own_model:Cosine" in refused.stderr


def test_a_bundle_imports_nothing_even_where_the_module_can_be_found(folder: Path) -> None:
    for arguments in (["refit", "runs/cosine"], ["train", "--from", "runs/cosine"]):
        refused = mgformer(folder, *arguments)
        assert refused.returncode == 2, arguments
        assert "add --model own_model:Cosine" in refused.stderr


def test_an_entry_point_offers_the_model_by_a_short_name(tmp_path: Path) -> None:
    shutil.copy(EXAMPLE / "own_model.py", tmp_path)
    described = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    points = described["entry-points"]["mgformer.models"]
    info = tmp_path / "own_model-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: own-model\nVersion: 1.0\n")
    lines = [f"{name} = {value}" for name, value in points.items()]
    (info / "entry_points.txt").write_text("\n".join(["[mgformer.models]", *lines, ""]))
    path = os.pathsep.join([str(ROOT / "src"), str(tmp_path)])
    commands = "mgformer models\nmgformer train --model cosine --out run\n"
    done = python(tmp_path, "-c", MANY, input=commands, environment={"PYTHONPATH": path})
    assert done.returncode == 0, done.stderr
    assert "From own-model (own_model:Cosine)." in done.stdout
    assert record_of(tmp_path / "run")["model"] == "cosine"
