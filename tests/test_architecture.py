"""The path of a CSV line to a metric is the one that docs/architecture.md shows."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCUMENT = (ROOT / "docs" / "architecture.md").read_text()
PATH = re.findall(r"^\| \d+ \| `([\w/.]+)` \| `([\w.]+)` \|", DOCUMENT, flags=re.MULTILINE)
LAYERS = (
    ("cli",), ("experiments", "serving"), ("recommend",), ("runs",), ("training",), ("models",),
    ("ranking",), ("nn",), ("graph",), ("data",),
    ("bars", "locks", "logs", "signatures", "files", "checksums", "memory", "outside", "device",
     "progress", "world", "errors"),
)  # fmt: skip
TRACED = """
import json, sys, threading
from pathlib import Path
import mgformer
from mgformer.cli import main

package = str(Path(mgformer.__file__).parent) + "/"
order, calls = [], {}

def note(frame, event, argument):
    code, caller = frame.f_code, frame.f_back
    if event != "call" or not code.co_filename.startswith(package) or code.co_name == "<module>":
        return
    while caller is not None and not caller.f_code.co_filename.startswith(package):
        caller = caller.f_back
    if caller is not None and caller.f_code.co_name == "<module>":
        return  # a class body
    called = code.co_filename.removeprefix(package), code.co_qualname
    if called not in calls:
        order.append(called)
    before = caller and (caller.f_code.co_filename.removeprefix(package), caller.f_code.co_qualname)
    calls.setdefault(called, set()).add(before)

threading.setprofile(note)
sys.setprofile(note)
try:
    main()
except SystemExit as stop:
    assert not stop.code
sys.setprofile(None)
edges = [[before, called] for called, callers in calls.items() for before in callers if before]
Path(sys.argv[-1], "trace.json").write_text(json.dumps({"order": order, "edges": edges}))
"""


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list]:
    folder = tmp_path_factory.mktemp("path")
    pairs = [f"u{user},i{item}" for user in range(30) for item in range(12) if (user + item) % 3]
    (folder / "ratings.csv").write_text("user,item\n" + "\n".join(pairs))
    arguments = ["train", str(folder / "ratings.csv"), "--model", "ease", "--out", str(folder)]
    done = subprocess.run(
        [sys.executable, "-c", TRACED, *arguments], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "trace.json").read_text())


def test_the_path_is_short() -> None:
    assert 10 <= len(PATH) <= 15
    assert len({file for file, _ in PATH}) == len(PATH)


def test_the_path_is_the_one_that_a_run_takes(trace: dict[str, list]) -> None:
    steps = [tuple(step) for step in trace["order"]]
    places = [steps.index(step) for step in PATH]
    assert places == sorted(places)


def test_calls_never_go_back_up(trace: dict[str, list]) -> None:
    def layer(file: str) -> int:
        package = re.split(r"[/.]", file)[0]
        return next(number for number, names in enumerate(LAYERS) if package in names)

    upward = {
        (caller, called)
        for (caller, _), (called, function) in trace["edges"]
        # Progress and log lines go to the reporter that the command line installed.
        if layer(caller) > layer(called) and called != "cli/console.py"
    }
    assert upward == set()


def test_the_picture_shows_the_same_files() -> None:
    picture = (ROOT / "docs" / "figures" / "path.svg").read_text()
    assert re.findall(r'class="file">([\w/.]+)<', picture) == [file for file, _ in PATH]
