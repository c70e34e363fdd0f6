"""The documentation builds as a site, and the notebook of the guide runs."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
NOTEBOOK = ROOT / "docs/guide/notebook.ipynb"


def test_the_site_builds_without_a_warning_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    output = built.stdout + built.stderr
    assert built.returncode == 0, output
    assert "WARNING" not in output  # with --quiet, --strict would not see warnings
    home = (tmp_path / "index.html").read_text()
    assert "who interacted with what" in home
    assert 'src="http' not in home
    assert 'href="guide/notebook/"' in home  # the page, not the file
    notebook = (tmp_path / "guide/notebook/index.html").read_text()
    shown = json.loads(NOTEBOOK.read_text())["cells"]
    assert notebook.count("<pre>") >= sum(cell["cell_type"] == "code" for cell in shown) > 6
    assert "<strong>guided</strong> on demo" in notebook
    assert "<th>metric</th><th>test</th>" in notebook
    assert (tmp_path / "guide/notebook.ipynb").is_file()
    assert "recommend_for" in (tmp_path / "reference/python/index.html").read_text()


def test_every_page_is_in_the_navigation() -> None:
    _, navigation = (ROOT / "mkdocs.yml").read_text().split("\nnav:\n")
    listed = re.findall(r": (\S+\.md)$", navigation, flags=re.MULTILINE)
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert sorted(listed) == sorted(pages | {"index.md", "guide/notebook.md"})


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_the_notebook_runs(tmp_path: Path) -> None:
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    shown = [cell.source for cell in notebook.cells if cell.cell_type == "code" and cell.outputs]
    assert len(shown) > 6  # readers of the file see the tables without running it
    client = nbclient.NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    )
    client.execute()  # an error in a cell is an error here
    assert (tmp_path / "runs/notebook/bundle.json").is_file()
