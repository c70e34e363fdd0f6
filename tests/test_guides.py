"""The commands, programs and requests in the documents work.

Each page is read from top to bottom by a reader who types what it shows, in a folder with small
files of the names that the pages use. A block that is not run here is in one of the lists below,
with the reason. A new block that is in none of them is run, or fails.
"""

import functools
import importlib
import importlib.util
import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import numpy as np
import pytest
import uvicorn
from fastapi import FastAPI
from fastapi.testclient import TestClient

from mgformer.cli import module_of
from mgformer.data.formats.feedback import line_of
from mgformer.recommend.recommender import Recommender
from mgformer.runs.config import build_config
from mgformer.runs.rules import read_rules
from mgformer.serving import worker
from mgformer.serving.app import create_app
from tests.command import mgformer

ROOT = Path(__file__).parent.parent
EXAMPLE = ROOT / "examples/own_model"
PAGES = {
    str(path.relative_to(ROOT)): path.read_text()
    for path in [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *sorted((ROOT / "docs").rglob("*.md")),
    ]
}

NOT_CODE = {
    "text": "what a command printed",
    "nginx": "settings of another program",
    "bash": "a script of a cluster",
    "yaml": "settings of a cluster",
}
"""Languages of blocks that nobody types into mgformer, a shell or Python."""
ELSEWHERE = {
    ("README.md", "console\n$ "): "tests/test_docs.py",
    ("README.md", "python\n"): "tests/test_docs.py",
    ("docs/guide/export.md", "console\n"): "tests/test_docs.py",
    ("docs/guide/export.md", "python\n"): "tests/test_docs.py",
    ("docs/guide/python.md", "pycon\n"): "tests/test_docs.py",
    ("docs/guide/own-model.md", "console\n"): "tests/test_own_model.py",
    ("docs/guide/own-model.md", "python\nclass "): "tests/test_own_model.py",
    ("docs/guide/own-model.md", "python\ndef "): "tests/test_own_model.py",
}
"""Page and begin of its blocks → the tests that run them."""
ONLY_PARSED = {
    r"^datasets fetch ": "needs the network",
    r"^reproduce ": "trains for hours",
    r"--device cuda\b": "needs a graphics card",
    r"\b(ml-100k|ml-latest-small|yelp2018|gowalla)\b": "needs a dataset that must be downloaded",
}
"""Commands of mgformer whose names and options are checked, but that are not run."""
NOT_RUN = {
    "pip": "needs the network; the names of the extras are checked below",
    "make": "installs everything; tests/test_docs.py checks the targets",
    "python": "the tools have tests of their own; here their names are checked",
    "cd": "names a folder of the reader",
    "docker": "needs docker and the network",
    "torchrun": "starts processes; tests/test_world.py and tests/runs/test_killed_rank.py do",
    "useradd": "changes the machine",
    "python3": "makes an environment outside the repository",
    "/opt/mgformer/bin/pip": "needs the network",
    "install": "changes the machine; tests/test_deploy.py checks the files",
    "systemctl": "changes the machine; tests/test_deploy.py checks the units",
}
"""First words of other commands that are not run."""
SHELL = {"chmod", "cp", "mv", "openssl"}
"""First words of other commands that are run as they stand."""
INSTEAD = {
    "--seeds 3": "--seeds 1",
    "--tune 20": "--tune 1",
    "--trials 20": "--trials 1",
    "--trials 30": "--trials 1",
    "--cuts 4": "--cuts 2",
    "--tolerance 0.01": "--tolerance 1",  # by chance, the new model is a little worse
}
"""What is typed in place of options that take long, or that make the result a matter of luck."""
TRAINS = {"train", "compare", "backtest", "tune"}
"""Commands that get one epoch instead of many."""
CHOSEN = {"--model", "--config", "--from"}
"""Options of `train` without which it tries several models, here for a second."""
RUNS = {
    "README.md": ["mine", "final"],
    "docs/guide/attributes.md": ["movies", "mine"],
    "docs/guide/report.md": ["mine"],
    "docs/guide/serving.md": ["mine", "next", "final"],
    "docs/security.md": ["mine"],
}
"""Trained recommenders that a page takes for granted. All others must be made by the page."""
ON_THIS_MACHINE: dict[str, Any] = {
    "base_url": "http://localhost:8000",
    "client": ("127.0.0.1", 50_000),
}
ABSOLUTE = re.compile(r"(?<![\w.])/(?=(?:data|mnt)/)")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A fenced block of a page."""

    page: str
    language: str
    code: str

    @property
    def elsewhere(self) -> set[tuple[str, str]]:
        """The entries of the list that say which tests run the block."""
        text = f"{self.language}\n{self.code}"
        return {key for key in ELSEWHERE if key[0] == self.page and text.startswith(key[1])}

    @property
    def is_run_here(self) -> bool:
        return self.language not in NOT_CODE and not self.elsewhere


BLOCKS = [Block(page, *found) for page, text in PAGES.items() for found in FENCE.findall(text)]


def commands(block: Block) -> list[str]:
    """Return the lines that a reader types: those behind `$`, or all if no line has it."""
    lines = block.code.replace("\\\n", " ").splitlines()
    typed = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")] or lines
    return [part for line in typed for part in line.split(" && ")]


def first_word(command: str) -> str:
    return next(word for word in command.split() if not re.match(r"\w+=", word))


HERE = [block for block in BLOCKS if block.is_run_here]
COMMANDS = [line for block in HERE if block.language == "console" for line in commands(block)]


class Reader:
    """Somebody who types what a page shows."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.monkeypatch = folder, monkeypatch
        self.names: dict[str, Any] = {}
        """Variables of the Python blocks."""
        self.service: FastAPI | None = None
        """What the last `mgformer serve` serves."""

    def console(self, code: str) -> None:
        for line in commands(Block("", "console", code)):
            self.command(ABSOLUTE.sub(f"{self.folder}/", line))

    def command(self, line: str) -> None:
        words = shlex.split(line, comments=True)
        with self.monkeypatch.context() as patch:
            while re.match(r"\w+=", words[0]):
                patch.setenv(*words.pop(0).split("=", 1))
            self.call(line, *words)

    def call(self, line: str, name: str, *arguments: str) -> None:
        if name == "mgformer":
            self.mgformer(list(arguments))
        elif name == "curl":
            self.curl(list(arguments))
        elif name in SHELL:
            subprocess.run(["sh", "-ec", line], check=True, stderr=subprocess.DEVNULL)
        elif name == "python":
            assert arguments[0] == "-m", line
            assert importlib.util.find_spec(arguments[1]), line
        else:
            assert name in NOT_RUN, f"{line}: run it, or say above why not"

    def mgformer(self, arguments: list[str]) -> None:
        line = shlex.join(arguments)
        with self.monkeypatch.context() as patch:
            if any(re.search(pattern, line) for pattern in ONLY_PARSED):
                do_nothing(arguments[0], patch)
            else:
                arguments = quicker(line)
            patch.setattr(uvicorn, "run", self.serve)
            done = mgformer(*arguments)
        assert done.returncode == 0, f"{line}: {done.stderr}"

    def serve(self, *_: Any, **__: Any) -> None:
        """Make the service as a worker does, and do not listen."""
        self.service = worker.app()

    def curl(self, arguments: list[str]) -> None:
        address = next(word for word in arguments if "localhost:8000" in word)
        body = arguments[arguments.index("-d") + 1]
        assert self.service is not None
        with TestClient(self.service, **ON_THIS_MACHINE) as client:
            path = urlsplit(address if "//" in address else f"//{address}").path
            answer = client.post(path, json=json.loads(body))
        assert answer.is_success, answer.text

    def python(self, code: str) -> None:
        exec(code, self.names)

    def toml(self, code: str) -> None:
        raw = tomllib.loads(code)
        if "project" in raw:
            assert code in (EXAMPLE / "pyproject.toml").read_text()
        elif {"hide", "pin", "boost", "at_most"} & {*raw}:
            read_rules(raw)
        else:
            build_config(raw)


def quicker(line: str) -> list[str]:
    for shown, typed in INSTEAD.items():
        line = line.replace(shown, typed)
    arguments = shlex.split(line)
    if arguments[0] == "train" and not CHOSEN & {*arguments}:
        arguments += ["--budget", "1s"]
    return arguments + (["--set", "train.epochs=1"] if arguments[0] in TRAINS else [])


def do_nothing(command: str, patch: pytest.MonkeyPatch) -> None:
    """Let a command parse its arguments, and nothing else."""

    def idle(function: Callable[..., None]) -> Callable[..., None]:
        return functools.wraps(function)(lambda **_: None)

    module = importlib.import_module(module_of(command))
    if hasattr(module, "SUBCOMMANDS"):
        patch.setattr(module, "SUBCOMMANDS", {k: idle(f) for k, f in module.SUBCOMMANDS.items()})
    else:
        patch.setattr(module, "command", idle(module.command))


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that the pages name, and trained recommenders."""
    folder = tmp_path_factory.mktemp("shop")
    rng = np.random.default_rng(3)
    pairs = rng.permutation([(user, item) for user in range(30) for item in range(12)])
    old = [pair for pair in pairs if sum(pair) % 3]
    rated = [(f"u{user}", f"i{item}", 1 + user % 5, n) for n, (user, item) in enumerate(old)]
    write_table(folder / "ratings.csv", "user,item,rating,timestamp", rated)
    write_table(folder / "data/ratings.csv", "user,item,rating,timestamp", rated)
    visits = [(user, "shop", item, "soon") for user, item, *_ in rated]
    write_table(folder / "log.csv", "visitor,page,product,when", visits)
    write_table(folder / "new.csv", "user,item,rating,timestamp", [("u1", "i2", 4, 500)])
    write_table(folder / "gone.txt", "u3", [])
    codes = [(f"i{item}", f"C-{item % 3}", "a note") for item in range(12)]
    write_table(folder / "items.csv", "item,code,note", codes)
    films = [(item, f"Film {item}", "Comedy|Drama", 1990 + item) for item in range(12)]
    write_table(folder / "films/items.csv", "item,name,genres,year", films)
    write_table(folder / "films/ratings.csv", "user,item", old)
    write_table(folder / "films/users.csv", "user,age", [(user, 20 + user) for user in range(30)])
    write_table(folder / "new-items.csv", "item,genres,year", [(12, "Comedy", 2002)])
    write_table(folder / "new-users.csv", "user,age", [(30, 25)])
    (folder / "rules.toml").write_text("[[pin]]\nitems = [3]\n")
    likes = [
        line_of({"user": f"u{user}", "item": f"i{item}", "time": 500.0 + n})
        for n, (user, item) in enumerate(pairs)
        if (user + item) % 3 == 0
    ]
    (folder / "feedback").mkdir()
    (folder / "feedback/feedback-1.jsonl").write_bytes(b"".join(likes))
    recommender = Recommender.fit(folder / "ratings.csv", "ease")
    for run in ("runs/mine", "runs/next", "mnt/trained/run"):
        recommender.save(folder / run)
    recommender.refit().save(folder / "runs/final")
    Recommender.fit(folder / "films", "ease").save(folder / "runs/movies")
    return folder


def write_table(path: Path, header: str, rows: Iterable[Iterable[object]]) -> None:
    path.parent.mkdir(exist_ok=True)
    lines = [header, *(",".join(map(str, row)) for row in rows)]
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture
def reader(
    shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Reader]:
    page = request.node.callspec.params["page"]
    taken = RUNS.get(page, [])
    folder = tmp_path / "shop"
    shutil.copytree(shop, folder, ignore=shutil.ignore_patterns("runs"))
    for run in taken:
        shutil.copytree(shop / "runs" / run, folder / "runs" / run)
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(EXAMPLE)
    for name in (worker.RUNS, worker.OPTIONS, worker.SIGNED):
        monkeypatch.setenv(name, "")  # so that what `serve` sets is forgotten
    interval = sys.getswitchinterval()
    yield Reader(folder, monkeypatch)
    sys.setswitchinterval(interval)
    sys.modules.pop("own_model", None)


@pytest.mark.parametrize("page", sorted({block.page for block in HERE}))
def test_what_a_page_shows_works(page: str, reader: Reader) -> None:
    for block in HERE:
        if block.page == page:
            getattr(reader, block.language)(block.code)


def test_requests_in_the_text_are_answered(shop: Path, tmp_path: Path) -> None:
    form = re.compile(r"`POST (/[\w/]+) (\{[^`…]*\})`")
    requests = [found for text in PAGES.values() for found in form.findall(text)]
    assert len(requests) > 7
    service = create_app(shop / "runs/mine", feedback=tmp_path / "feedback", watch_seconds=None)
    with TestClient(service, **ON_THIS_MACHINE) as client:
        for path, body in requests:
            answer = client.post(path, json=json.loads(body))
            assert answer.is_success, (path, body, answer.text)


def test_the_lists_of_what_is_not_run_have_no_idle_entry() -> None:
    assert {block.language for block in BLOCKS} >= NOT_CODE.keys()
    assert set().union(*(block.elsewhere for block in BLOCKS)) == ELSEWHERE.keys()
    for (page, _), tests in ELSEWHERE.items():
        assert Path(page).name in (ROOT / tests).read_text(), (page, tests)
    assert {*map(first_word, COMMANDS)} >= NOT_RUN.keys() | SHELL
    asked = [line.removeprefix("mgformer ") for line in COMMANDS if line.startswith("mgformer ")]
    for pattern in ONLY_PARSED:
        assert any(re.search(pattern, line) for line in asked), pattern
    for shown in INSTEAD:
        assert any(shown in line for line in asked), shown


def test_extras_named_in_documents_exist() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = {
        extra
        for text in PAGES.values()
        for extras in re.findall(r"(?:mgformer|\.)\[([\w,-]+)\]'", text)
        for extra in extras.split(",")
    }
    assert {"serve", "report"} <= named <= project["optional-dependencies"].keys()
