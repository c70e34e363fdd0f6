"""Several processes behind one port."""

import json
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path

import pytest

from mgformer.recommend.recommender import Recommender
from mgformer.serving import worker
from tests.serving.running import PATIENCE, eventually


@contextmanager
def started(folder: Path, log: Path, *options: str) -> Iterator[int]:
    """Run `mgformer serve` as a process and yield its port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "mgformer", "serve", str(folder), "--port", str(port)]
    with log.open("w") as stderr, subprocess.Popen([*command, *options], stderr=stderr) as process:
        try:

            def is_up() -> bool:
                assert process.poll() is None, log.read_text()
                with socket.socket() as probe:
                    return probe.connect_ex(("127.0.0.1", port)) == 0

            eventually(is_up)
            yield port
        finally:
            process.terminate()


def look(port: int) -> tuple[str, str]:
    """Return which worker answers a new connection, and which model it serves."""
    with closing(HTTPConnection("127.0.0.1", port, timeout=PATIENCE)) as connection:

        def get(path: str) -> str:
            connection.request("GET", path)
            return connection.getresponse().read().decode()

        found = re.search(r'worker="(\d+)"', get("/metrics"))
        assert found
        return found[1], json.loads(get("/model"))["model"]


@pytest.mark.slow
def test_two_workers_answer_and_both_load_a_new_bundle(tmp_path: Path) -> None:
    folder, log = tmp_path / "run", tmp_path / "log"
    Recommender.fit("demo", "itemknn").save(folder)
    with started(folder, log, "--workers", "2") as port:
        models: dict[str, str] = {}

        def both_have(model: str) -> bool:
            models.update([look(port)])
            return list(models.values()) == [model, model]

        eventually(lambda: both_have("itemknn"))
        Recommender.fit("demo", "ease").save(folder)
        eventually(lambda: log.read_text().count('"loaded"') == 2)
        eventually(lambda: both_have("ease"))
    first, *lines = log.read_text().splitlines()
    assert first.startswith("serving ")
    messages = [json.loads(line)["message"] for line in lines]
    assert messages.count("loaded") == 2
    assert set(messages) == {"loaded", "request"}


def test_a_worker_without_a_usable_bundle_leaves_the_others_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(worker.RUNS, json.dumps({"default": str(tmp_path)}))
    monkeypatch.setenv(worker.OPTIONS, '{"limits": {"k": 5}}')
    with pytest.raises(SystemExit) as stop:
        worker.app(pause_seconds=0)
    assert stop.value.code == worker.UNUSABLE != 3  # at 3 uvicorn stops all workers
    assert "a worker cannot start" in caplog.text
    assert "no trained recommender here" in caplog.text
