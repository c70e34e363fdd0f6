"""The files for deployment: what they copy exists, what they run parses, and the recipe works."""

import configparser
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mgformer.data.formats.feedback import line_of
from mgformer.recommend.recommender import Recommender
from tests.command import mgformer

ROOT = Path(__file__).parent.parent
DEPLOY = ROOT / "deploy"
DOCKERFILE = (ROOT / "Dockerfile").read_text().replace("\\\n", "")
SERVICES = sorted(DEPLOY.glob("*.service"))
SERVED = ["runs/live", "--feedback"]


def instructions(name: str) -> list[str]:
    return re.findall(rf"^{name} (.*)$", DOCKERFILE, flags=re.MULTILINE)


def unit(path: Path) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(path)
    return parser


def check_serves(arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run `mgformer serve` up to where it looks for the run: all options are known and valid."""
    monkeypatch.chdir(tmp_path)
    done = mgformer(*arguments)
    assert done.returncode == 2
    assert "runs/live: no trained recommender here" in done.stderr
    assert (tmp_path / "feedback").is_dir()


def test_the_image_copies_files_that_exist_and_that_the_context_has() -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert ignored[1] == "*"
    kept = {line.removeprefix("!") for line in ignored if line.startswith("!")}
    sources = [
        source
        for line in instructions("COPY")
        if not line.startswith("--from")
        for source in line.split()[:-1]
    ]
    assert len(sources) >= 8
    for source in sources:
        assert (ROOT / source).exists(), source
        assert source.split("/")[0] in kept, source
    # Everything that the package is built from is among them.
    project = (ROOT / "pyproject.toml").read_text()
    for file in ("README.md", "LICENSE", "configs", "src"):
        assert file in project or file == "src"
        assert file in sources


def test_the_image_runs_as_nobody_in_particular_and_its_command_parses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert instructions("USER") == ["10001"]
    assert instructions("FROM") == ["python:3.11-slim AS build", "python:3.11-slim"]
    assert all(
        "-c constraints.txt" in line for line in instructions("RUN") if "pip install" in line
    )
    assert json.loads(instructions("ENTRYPOINT")[0]) == ["mgformer"]
    check_serves(json.loads(instructions("CMD")[0]), tmp_path, monkeypatch)


def test_the_health_check_asks_the_service(run_served: str) -> None:
    (check,) = re.findall(r"CMD (\[.*\])$", instructions("HEALTHCHECK")[0])
    _, flag, code = json.loads(check)
    asked = code.replace("http://127.0.0.1:8000/", run_served)
    for address, expected in ((asked, 0), (asked.replace("readyz", "nothing"), 1)):
        done = subprocess.run([sys.executable, flag, address], capture_output=True, check=False)
        assert done.returncode == expected


@pytest.fixture
def run_served(tmp_path: Path):
    from tests.serving.running import serving

    Recommender.fit("demo", "popularity").save(tmp_path / "run")
    with serving(tmp_path / "run") as address:
        yield address


def test_the_compose_file_runs_commands_that_exist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (ROOT / "compose.yaml").read_text()
    (command,) = re.findall(r"command: \[(.*)\]", text)
    check_serves([part.strip().strip('"') for part in command.split(",")], tmp_path, monkeypatch)
    for script in re.findall(r"entrypoint: \[(.*)\]", text):
        assert os.access(DEPLOY / script, os.X_OK)
        assert f"deploy/{script}" in DOCKERFILE


def test_the_units_run_commands_that_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(SERVICES) == 3
    for path in SERVICES:
        own = unit(path)["Service"]
        program, *arguments = shlex.split(own["ExecStart"])
        if Path(program).name == "mgformer":
            check_serves(arguments, tmp_path, monkeypatch)
        else:
            assert (DEPLOY / Path(program).name).is_file()
            assert path.with_suffix(".timer").is_file()
        assert own["User"] == "mgformer"
        assert (own["ProtectSystem"], own["NoNewPrivileges"]) == ("strict", "yes")


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd is not installed")
def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    """Programs of the target machine are replaced by one that exists here."""
    for path in DEPLOY.glob("mgformer*.*"):
        text = re.sub(r"/opt/mgformer/bin/\S+", "/bin/true", path.read_text())
        (tmp_path / path.name).write_text(text)
    units = sorted(map(str, tmp_path.iterdir()))
    done = subprocess.run(
        ["systemd-analyze", "verify", *units], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    ours = [line for line in done.stderr.splitlines() if "mgformer" in line]
    assert ours == []


@pytest.mark.slow
def test_the_nightly_recipe_from_feedback_to_a_new_live_model(tmp_path: Path) -> None:
    """Without feedback nothing happens; a good model is taken; a bad one is not."""
    runs = tmp_path / "runs"
    base = Recommender.fit("demo", "itemknn")
    base.save(runs / "base")
    for name in ("final", "live"):
        base.refit().save(runs / name)
    programs = tmp_path / "bin"
    programs.mkdir()
    command = f'#!/bin/sh\nexec "{sys.executable}" -m mgformer "$@"\n'
    (programs / "mgformer").write_text(command)
    (programs / "mgformer").chmod(0o755)
    path = f"{programs}:{os.environ['PATH']}"
    environment = {**os.environ, "MGFORMER_HOME": str(tmp_path), "PATH": path}

    def job(name: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(DEPLOY / name)],
            env={**environment, **more},
            capture_output=True,
            text=True,
            check=False,
        )

    def feedback(number: int, user: str) -> None:
        (tmp_path / "feedback").mkdir(exist_ok=True)
        lines = [
            line_of({"user": f"{user}-{n // 8}", "item": f"jazz-{n % 12 + 1:02d}", "time": 2e9 + n})
            for n in range(160)
        ]
        (tmp_path / "feedback" / f"feedback-{number}.jsonl").write_bytes(b"".join(lines))

    def users() -> dict[str, int]:
        return {
            name: len(Recommender.load(runs / name).bundle.users)
            for name in ("base", "final", "live")
        }

    before = users()
    for script in ("refresh.sh", "retrain.sh"):
        done = job(script)
        assert (done.returncode, done.stdout) == (0, "no feedback yet\n"), done.stderr
    assert users() == before
    feedback(1, "ann")
    done = job("refresh.sh")
    assert done.returncode == 0, done.stderr
    assert users() == {**before, "live": before["live"] + 20}
    done = job("retrain.sh", MGFORMER_TOLERANCE="0.5")
    assert done.returncode == 0, done.stderr
    grown = users()
    assert grown == {name: count + 20 for name, count in before.items()}
    # Somebody has replaced the accepted model by one that cannot be beaten by popularity.
    worse = Recommender.fit("demo", "popularity")
    worse.save(runs / "worse")
    feedback(2, "bob")
    script = (DEPLOY / "retrain.sh").read_text().replace("--from runs/base", "--from runs/worse")
    (programs / "retrain.sh").write_text(script)
    (programs / "retrain.sh").chmod(0o755)
    done = subprocess.run(
        [str(programs / "retrain.sh")], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2, done.stderr
    assert "is worse than runs/base, which stays" in done.stderr
    assert Recommender.load(runs / "base").model == "itemknn"
    # The accepted model got the new feedback all the same.
    assert users() == {**grown, "live": grown["live"] + 20}
