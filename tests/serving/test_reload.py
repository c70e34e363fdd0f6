"""The service loads a new bundle, and loses no request."""

import asyncio
import json
import logging
import threading
from collections import Counter
from pathlib import Path

import httpx2
import pytest
from fastapi.testclient import TestClient

from mgformer.errors import BundleError
from mgformer.files import write_text
from mgformer.recommend.lists import answer_all
from mgformer.recommend.query import Query
from mgformer.recommend.recommender import Recommender
from mgformer.serving.app import create_app
from mgformer.serving.engine import Engine
from mgformer.serving.schemas import ANSWER
from tests.crafted import change_tensors
from tests.serving.running import LOCAL, eventually, samples


def reloads(client: TestClient) -> dict[str, float]:
    return {
        sample.labels["result"]: sample.value
        for sample in samples(client.get("/metrics").text)
        if sample.name == "mgformer_reloads_total"
    }


def test_a_new_bundle_is_loaded_and_a_broken_one_is_refused(tmp_path: Path):
    folder = tmp_path / "run"
    Recommender.fit("demo", "itemknn").save(folder)
    with TestClient(create_app(folder, watch_seconds=None), client=LOCAL) as client:
        assert client.post("/admin/reload").json()["changed"] is False
        Recommender.fit("demo", "ease").save(folder)
        assert client.get("/model").json()["model"] == "itemknn"
        assert client.post("/admin/reload").json()["changed"] is True
        assert client.get("/model").json()["model"] == "ease"
        (folder / "bundle.json").write_text("{")
        assert "damaged" in client.post("/admin/reload").json()["error"]
        assert client.post("/recommend", json={"history": ["jazz-03"]}).status_code == 200
        assert reloads(client) == {"loaded": 1, "unchanged": 1, "failed": 1}


def test_the_folder_is_watched_and_a_broken_bundle_is_read_once(
    tmp_path: Path, monkeypatch, caplog
):
    folder = tmp_path / "run"
    Recommender.fit("demo", "itemknn").save(folder)
    looks, has_new_files = Counter(), Engine.has_new_files

    async def counted(engine: Engine) -> bool:
        changed = await has_new_files(engine)
        looks[changed] += 1
        return changed

    monkeypatch.setattr(Engine, "has_new_files", counted)
    with TestClient(create_app(folder, watch_seconds=0.01), client=LOCAL) as client:

        def reported() -> list[str]:
            errors = [record for record in caplog.records if record.levelno >= logging.ERROR]
            return [error.message.partition(":")[0] for error in errors]

        def wait_for_looks() -> None:
            seen = looks[False]
            eventually(lambda: looks[False] >= seen + 5)

        wait_for_looks()
        (folder / "bundle.json").touch()  # the same bundle: nothing to load
        eventually(lambda: looks[True] == 1)
        assert reloads(client) == {}
        write_text(folder / "bundle.json", "{")
        eventually(reported)
        wait_for_looks()
        assert reported() == ["cannot use the new bundle, keeping the old one"]
        assert "damaged" in client.post("/admin/reload").json()["error"]  # a request reads it again
        (folder / "notes.txt").write_text("no part of the bundle")
        wait_for_looks()
        assert reloads(client) == {"failed": 2}
        Recommender.fit("demo", "ease").save(folder)
        eventually(lambda: client.get("/model").json()["model"] == "ease")
        assert reloads(client)["loaded"] == 1
        assert "unchanged" not in reloads(client)


def rounded(value):
    """The last bits of a solution depend on the thread that computes it."""
    if isinstance(value, dict):
        return {name: rounded(part) for name, part in value.items()}
    if isinstance(value, list):
        return [rounded(part) for part in value]
    return round(value, 5) if isinstance(value, float) else value


@pytest.mark.slow
def test_reloading_under_load_loses_no_request_and_mixes_no_bundles(tmp_path: Path):
    folder = tmp_path / "run"
    bundles = Recommender.fit("demo", "ials"), Recommender.fit("demo", "ials", seed=1)
    bundles[0].save(folder)
    app = create_app(folder, watch_seconds=None)
    queries = [
        Query(k=5, user="bella-787"),
        Query(k=5, history=("jazz-03", "jazz-04")),
        Query(k=5, user="amir-186", history=("jazz-03",), explain=True),
    ]
    allowed = [
        [rounded(json.loads(ANSWER.dump_json(answer))) for answer in answers]
        for answers in zip(*(answer_all(one.bundle, queries) for one in bundles), strict=True)
    ]
    assert all(old["items"] != new["items"] for old, new in allowed)
    bodies = [
        {"k": one.k, "user": one.user, "history": one.history, "explain": one.explain}
        for one in queries
    ]

    async def work() -> Counter:
        transport = httpx2.ASGITransport(app)
        answered: Counter = Counter()
        async with httpx2.AsyncClient(transport=transport, base_url="http://test") as client:
            for wave in range(20):
                asked = [client.post("/recommend", json=bodies[n % 3]) for n in range(102)]
                bundles[(wave + 1) % 2].save(folder)
                asked.insert(10, client.post("/admin/reload"))
                found = [
                    rounded(answer.raise_for_status().json())
                    for answer in await asyncio.gather(*asked)
                ]
                assert found.pop(10)["changed"]
                answered.update(allowed[n % 3].index(answer) for n, answer in enumerate(found))
        return answered

    answered = asyncio.run(work())
    assert answered.total() == 2_040
    assert min(answered[0], answered[1]) > 200


def test_a_bundle_may_be_replaced_while_it_is_read(tmp_path: Path):
    folder = tmp_path / "run"
    bundles = [Recommender.fit("demo", "itemknn", seed=seed) for seed in (0, 1)]
    bundles[0].save(folder)
    engine, done = Engine(folder), threading.Event()

    def replace() -> None:
        while not done.is_set():
            for bundle in bundles:
                bundle.save(folder)

    async def reload() -> None:
        changes = 0
        while changes < 30:
            changes += await engine.reload()

    writer = threading.Thread(target=replace)
    writer.start()
    try:
        asyncio.run(reload())  # nothing is raised
    finally:
        done.set()
        writer.join()
        engine.close()
    assert engine.loaded.recommender.recommend(["bella-787"], 3).height == 3


def test_a_bundle_that_is_replaced_and_put_back_during_loading_is_read_again(
    tmp_path: Path, monkeypatch
):
    one, other = (Recommender.fit("demo", "itemknn", seed=seed) for seed in (0, 1))
    one.save(tmp_path)
    load, tries = Recommender.load, []

    def interrupted(folder: Path, key: bytes | None) -> Recommender:
        tries.append(folder)
        if len(tries) == 1:
            other.save(folder)
            one.save(folder)
            raise BundleError("a file was not there")
        return load(folder)

    monkeypatch.setattr(Recommender, "load", interrupted)
    Engine(tmp_path).close()
    assert len(tries) == 2


def test_a_folder_without_a_bundle_is_refused(tmp_path: Path):
    with pytest.raises(BundleError, match="no trained recommender here"):
        create_app(tmp_path)


def test_the_watcher_loads_no_crafted_bundle_and_none_with_another_signature(
    tmp_path: Path, caplog
):
    folder, key = tmp_path / "run", b"k" * 32
    Recommender.fit("demo", "itemknn").save(folder, key)
    other = Recommender.fit("demo", "ease")

    def reported() -> list[str]:
        return [record.message for record in caplog.records if record.levelno >= logging.ERROR]

    app = create_app(folder, watch_seconds=0.01, signature_key=key)
    with TestClient(app, client=LOCAL) as client:
        other.save(folder, b"o" * 32)
        eventually(lambda: "its signature was not made with this key" in str(reported()))
        other.save(folder)
        eventually(lambda: "has no signature" in str(reported()))
        assert "has no signature" in client.post("/admin/reload").json()["error"]
        assert client.get("/model").json()["model"] == "itemknn"
        other.save(folder, key)
        eventually(lambda: client.get("/model").json()["model"] == "ease")
    with TestClient(create_app(folder, watch_seconds=0.01)) as client:

        def past_the_end(tensors):
            tensors["train.indices"][-1] = 2**31 - 1

        change_tensors(folder, "pairs", past_the_end)
        eventually(lambda: "train.indices: got 2147483647" in str(reported()))
        assert client.post("/recommend", json={"history": ["jazz-03"]}).status_code == 200
    with pytest.raises(BundleError, match="has no signature"):
        create_app(folder, signature_key=key)
