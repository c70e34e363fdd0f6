"""Feedback: what is accepted is in the log, whatever happens, and training reads it."""

import asyncio
import errno
import json
import os
import signal
import socket
import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from http.client import HTTPException as BrokenAnswer
from pathlib import Path

import polars as pl
import pytest
from fastapi.testclient import TestClient
from starlette.exceptions import HTTPException

from mgformer.data.dataset import open_dataset
from mgformer.data.formats.feedback import (
    entries_of,
    files_of,
    forget_in,
    line_of,
    read_feedback,
)
from mgformer.data.options import DataConfig
from mgformer.recommend.recommender import Recommender
from mgformer.serving.app import create_app
from mgformer.serving.engine import Overloaded
from mgformer.serving.journal import Journal
from tests.serving.running import LOCAL, PATIENCE, samples
from tests.serving.test_workers import started


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("feedback") / "run"
    Recommender.fit("demo", "itemknn").save(folder)
    return folder


@pytest.fixture
def client(folder: Path, tmp_path: Path) -> Iterator[TestClient]:
    app = create_app(folder, watch_seconds=None, feedback=tmp_path / "log")
    with TestClient(app, client=LOCAL) as client:
        yield client


def logged(log: Path, prefix: str = "feedback") -> list[dict]:
    """Return all entries; every line is whole."""
    found = []
    for path in sorted(log.glob(f"{prefix}-*.jsonl")):
        for _, entry in entries_of(path):
            assert entry is not None
            found.append(entry)
    return found


def test_accepted_feedback_is_on_the_disk(client: TestClient, tmp_path: Path) -> None:
    one = {"user": "u1", "item": "i\u2028\n1", "time": 5, "weight": 2.5}
    answered = client.post("/feedback", json=one)
    assert (answered.status_code, answered.json()) == (202, {"accepted": 1})
    assert logged(tmp_path / "log") == [one]
    many = {"interactions": [{"user": "u2", "item": f"i{n}"} for n in range(1_000)]}
    assert client.post("/feedback", json=many).json() == {"accepted": 1_000}
    _, *rest = logged(tmp_path / "log")
    assert [entry["item"] for entry in rest] == [f"i{n}" for n in range(1_000)]
    assert all(set(entry) == {"user", "item", "time"} for entry in rest)
    (total,) = [
        one.value
        for one in samples(client.get("/metrics").text)
        if one.name == "mgformer_feedback_total"
    ]
    assert total == 1_001


@pytest.mark.parametrize(
    "body",
    [
        {},
        [],
        {"user": "u1"},
        {"user": "", "item": "i"},
        {"user": "u", "item": "i" * 600},
        {"user": "u", "item": "i", "time": "now"},
        {"user": "u", "item": "i", "weight": 0},
        {"user": "u", "item": "i", "weight": 5e-324},
        {"user": "u", "item": "i", "rating": 5},
        {"user": "u", "item": "i", "interactions": []},
        {"interactions": []},
        {"interactions": [{"user": "u", "item": "i"}] * 1_001},
        {"interactions": [{"user": "u", "item": "i"}, {"user": "u"}]},
    ],
)
def test_wrong_feedback_is_refused_whole(body: object, client: TestClient, tmp_path: Path) -> None:
    answered = client.post("/feedback", json=body)
    assert answered.status_code == 422
    assert len(answered.json()["error"].splitlines()) == 1
    assert logged(tmp_path / "log") == []


@pytest.mark.parametrize("text", ['{"user": "\\ud800", "item": "i"}', '{"user": 1e999, "item": 1}'])
def test_text_that_cannot_be_stored_is_refused(text: str, client: TestClient) -> None:
    headers = {"content-type": "application/json"}
    assert client.post("/feedback", content=text, headers=headers).status_code in (400, 422)


def test_who_may_send_feedback(folder: Path, tmp_path: Path) -> None:
    body = {"user": "u", "item": "i"}
    app = create_app(folder, watch_seconds=None, feedback=tmp_path)
    with TestClient(app, client=("10.0.0.9", 50_000)) as remote:
        assert remote.post("/feedback", json=body).status_code == 403
    app = create_app(folder, watch_seconds=None, feedback=tmp_path, api_key="secret")
    with TestClient(app, client=LOCAL) as client:
        assert client.post("/feedback", json=body).status_code == 401
        keyed = {"X-API-Key": "secret"}
        foreign = {**keyed, "Origin": "http://evil.example"}
        assert client.post("/feedback", json=body, headers=foreign).status_code == 403
        assert client.post("/feedback", json=body, headers=keyed).status_code == 202
    with TestClient(create_app(folder, watch_seconds=None), client=LOCAL) as client:
        answered = client.post("/feedback", json=body)
        assert answered.status_code == 403
        assert "start it with --feedback FOLDER" in answered.json()["error"]
        assert "/feedback" not in client.get("/openapi.json").text


def test_ids_have_the_kind_that_the_data_have(tmp_path: Path) -> None:
    pairs = [(user, item) for user in range(12) for item in range(9) if (user + item) % 3]
    table = pl.DataFrame(pairs, schema=["user", "item"], orient="row")
    recommender = Recommender.fit(table, "itemknn")
    recommender.save(tmp_path / "run")
    app = create_app(tmp_path / "run", watch_seconds=None, feedback=tmp_path / "log")
    with TestClient(app, client=LOCAL) as client:
        for user in ("77", 77):
            body = {"user": user, "item": "3"}
            assert client.post("/feedback", json=body).status_code == 202
        for wrong in ("u7", "07", str(2**63), " 7"):
            answered = client.post("/feedback", json={"user": wrong, "item": 3})
            assert answered.status_code == 422
            assert "expected a whole number of 64 bits" in answered.json()["error"]
    assert [(one["user"], one["item"]) for one in logged(tmp_path / "log")] == [(77, 3)] * 2
    after = recommender.refresh(tmp_path / "log")
    assert after.items_of(77)["item"].to_list() == [3]


def test_refresh_and_training_read_the_log(folder: Path, tmp_path: Path) -> None:
    app = create_app(folder, watch_seconds=None, feedback=tmp_path / "log")
    history = ["jazz-03", "jazz-04"]
    with TestClient(app, client=LOCAL) as client:
        for item in [*history, "brand new"]:
            client.post("/feedback", json={"user": "newcomer", "item": item, "weight": 2})
    recommender = Recommender.load(folder)
    after = recommender.refresh(tmp_path / "log")
    assert sorted(after.items_of("newcomer")["item"]) == history
    assert len(after.bundle.all_pairs) == len(recommender.bundle.all_pairs) + 2
    dataset = open_dataset(tmp_path / "log")
    assert len(dataset.interactions) == 3
    # Options that name columns of the training data do not apply to the log.
    renamed = DataConfig(user="customer", item=3, sep=";", weight="", time="")
    assert read_feedback(tmp_path / "log", renamed).columns == ["user", "item"]


def test_lines_that_are_not_whole_are_left_out_and_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lines = [line_of({"user": f"u{n}", "item": "i", "time": n}) for n in range(4)]
    whole = b"".join(lines)
    path = tmp_path / "feedback-1.jsonl"
    (tmp_path / "exposures-1.jsonl").write_bytes(line_of({"user": "x", "model": "a"}))
    for end in range(len(whole) + 1):  # a kill may come after every byte
        path.write_bytes(whole[:end])
        entries = [entry for _, entry in entries_of(path)]
        complete = whole[:end].count(b"\n")
        assert [entry["user"] for entry in entries[:complete]] == [f"u{n}" for n in range(complete)]
        assert entries[complete:] in ([], [None])
    damaged = bytearray(whole)
    for place in range(len(whole)):  # one byte of the file is another
        damaged[place] ^= 1
        path.write_bytes(damaged)
        users = {entry["user"] for _, entry in entries_of(path) if entry}
        assert users < {"u0", "u1", "u2", "u3"}
        damaged[place] ^= 1
    path.write_bytes(whole[:-5])
    assert read_feedback(tmp_path, DataConfig())["user"].to_list() == ["u0", "u1", "u2"]
    assert "left out 1 of the lines because they are not whole, the first is line 4" in caplog.text


def test_a_full_disk_loses_nothing_and_stores_nothing_half(
    client: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert client.post("/feedback", json={"user": "before", "item": "i"}).status_code == 202
    write, left = os.write, [30]

    def full(descriptor: int, data: bytes) -> int:
        if not left[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        part = bytes(data[: left[0]])
        left[0] -= len(part)
        return write(descriptor, part)

    with monkeypatch.context() as patch:
        patch.setattr("mgformer.logs.os.write", full)
        for _ in range(2):
            answered = client.post("/feedback", json={"user": "during", "item": "i"})
            assert answered.status_code == 503
            assert answered.headers["retry-after"] == "5"
            assert "nothing was stored" in answered.json()["error"]
    assert client.post("/feedback", json={"user": "after", "item": "i"}).status_code == 202
    assert [entry["user"] for entry in logged(tmp_path / "log")] == ["before", "after"]
    assert len(files_of(tmp_path / "log")) == 1


def test_after_a_failed_sync_a_new_file_is_used(
    client: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert client.post("/feedback", json={"user": "before", "item": "i"}).status_code == 202

    def broken(descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr("mgformer.logs.os.fsync", broken)
        assert client.post("/feedback", json={"user": "x", "item": "i"}).status_code == 503
    assert client.post("/feedback", json={"user": "after", "item": "i"}).status_code == 202
    assert [entry["user"] for entry in logged(tmp_path / "log")] == ["before", "after"]
    assert len(files_of(tmp_path / "log")) == 2


def test_requests_that_wait_share_a_sync_and_are_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs, may_go, fsync = [], threading.Event(), os.fsync

    def slow(descriptor: int) -> None:
        may_go.wait(PATIENCE)
        syncs.append(descriptor)
        fsync(descriptor)

    async def send() -> list[BaseException | None]:
        journal = Journal(tmp_path, "feedback", most_waiting=50, file_bytes=100)
        first = asyncio.create_task(journal.add([line_of({"n": 0})]))
        while not list(tmp_path.iterdir()):
            await asyncio.sleep(0.001)
        tasks = [asyncio.create_task(journal.add([line_of({"n": n})])) for n in range(1, 101)]
        await asyncio.sleep(0)
        may_go.set()
        done = await asyncio.gather(first, *tasks, return_exceptions=True)
        await journal.close()
        return done

    monkeypatch.setattr("mgformer.logs.sync_folder", lambda folder: None)
    monkeypatch.setattr("mgformer.logs.os.fsync", slow)
    done = asyncio.run(send())
    assert [isinstance(result, Overloaded) for result in done] == [False] * 50 + [True] * 51
    assert all(result is None or isinstance(result, HTTPException) for result in done)
    assert [entry["n"] for entry in logged(tmp_path)] == list(range(50))
    assert len(syncs) == 2


def test_large_files_are_followed_by_new_ones(tmp_path: Path) -> None:
    async def send() -> None:
        journal = Journal(tmp_path, "feedback", most_waiting=50, file_bytes=100)
        for n in range(10):
            await journal.add([line_of({"n": n, "pad": "x" * 40})])
        await journal.close()

    asyncio.run(send())
    assert [entry["n"] for entry in logged(tmp_path)] == list(range(10))
    assert len(files_of(tmp_path)) == 5


def test_a_service_continues_after_a_user_was_forgotten(client: TestClient, tmp_path: Path) -> None:
    for user in ("gone", "stays"):
        assert client.post("/feedback", json={"user": user, "item": "i"}).status_code == 202
    (file,) = files_of(tmp_path / "log")
    assert forget_in(file, {"gone"}) == 1
    assert client.post("/feedback", json={"user": "late", "item": "i"}).status_code == 202
    assert [entry["user"] for entry in logged(tmp_path / "log")] == ["stays", "late"]
    assert len(files_of(tmp_path / "log")) == 2


def test_exposures_name_the_model_of_each_user(folder: Path, tmp_path: Path) -> None:
    folders, shares = {"a": folder, "b": folder}, {"a": 0.5, "b": 0.5}
    app = create_app(folders, shares=shares, watch_seconds=None, feedback=tmp_path)
    users = [f"user {n}" for n in range(20)]
    with TestClient(app, client=LOCAL) as client:
        seen = {}
        for user in users:
            answered = client.post(
                "/recommend", json={"user": user, "k": 2}, headers={"X-Request-ID": f"{user[5:]}x"}
            )
            items = [item["item"] for item in answered.json()["items"]]
            seen[user] = (answered.headers["x-mgformer-model"], items)
        client.post("/recommend/batch", json={"users": users, "k": 2})
        client.post("/recommend", json={"history": [], "k": 2})  # nobody in particular
    assert {model for model, _ in seen.values()} == {"a", "b"}
    notes = logged(tmp_path, "exposures")
    assert [note["user"] for note in notes] == users * 2
    assert [note["request"] for note in notes[:20]] == [f"{user[5:]}x" for user in users]
    for note in notes:
        assert (note["model"], note["items"]) == seen[note["user"]]


@pytest.mark.slow
def test_every_accepted_line_is_in_the_log_after_kill_9(folder: Path, tmp_path: Path) -> None:
    accepted: list[str] = []

    def work(port: int, name: str) -> None:
        connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        headers = {"content-type": "application/json"}
        try:
            for n in range(1_000_000):
                one = {"user": f"{name}-{n}", "item": "i" * 300}
                connection.request("POST", "/feedback", json.dumps(one).encode(), headers)
                answer = connection.getresponse()
                answer.read()
                assert answer.status == 202
                accepted.append(one["user"])
        except (OSError, BrokenAnswer):
            pass  # the service is gone
        finally:
            connection.close()

    for turn in range(3):
        flags = ("--feedback", str(tmp_path / "log"))
        with started(folder, tmp_path / "stderr", *flags) as port:
            threads = [
                threading.Thread(target=work, args=(port, f"{turn}-{number}"))
                for number in range(6)
            ]
            for thread in threads:
                thread.start()
            already = len(accepted)
            while len(accepted) < already + 200:
                assert any(thread.is_alive() for thread in threads)
            os.kill(pid_at(port), signal.SIGKILL)
            for thread in threads:
                thread.join(PATIENCE)
    assert len(accepted) >= 600
    stored = {
        entry["user"]
        for path in files_of(tmp_path / "log")
        for _, entry in entries_of(path)
        if entry
    }
    assert set(accepted) <= stored
    assert len(files_of(tmp_path / "log")) == 3


def pid_at(port: int) -> int:
    """Return the process that listens on a port."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
        connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        text = b""
        while part := connection.recv(1 << 16):
            text += part
    return int(text.split(b'worker="')[1].split(b'"')[0])
