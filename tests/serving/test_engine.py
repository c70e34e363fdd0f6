"""The engine: batches, the queue, the computing thread."""

import asyncio
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from mgformer.recommend.query import Query
from mgformer.recommend.recommender import Recommender
from mgformer.serving import schemas
from mgformer.serving.engine import Engine, Overloaded
from mgformer.serving.schemas import answers_as_json


def test_a_full_queue_refuses_queries(run: Path):
    async def ask_many() -> int:
        engine = Engine(run, batch_limit=1, queue_limit=3)
        query = Query(k=1, history=("jazz-03",))
        done = await asyncio.gather(*(engine.ask(query) for _ in range(10)), return_exceptions=True)
        engine.close()
        return sum(isinstance(result, Overloaded) for result in done)

    assert asyncio.run(ask_many()) == 7


def test_a_full_queue_refuses_other_work(run: Path):
    async def run_many() -> int:
        engine = Engine(run, queue_limit=3)
        done = await asyncio.gather(
            *(engine.run(sorted, [2, 1]) for _ in range(10)), return_exceptions=True
        )
        assert engine.waiting == 0
        engine.close()
        assert done[:3] == [[1, 2]] * 3
        return sum(isinstance(result, Overloaded) for result in done)

    assert asyncio.run(run_many()) == 7


def test_batches_of_a_thousand_users_do_not_fill_the_queue(run: Path, recommender: Recommender):
    users = recommender.bundle.users.values.to_list()

    async def ask_many() -> list:
        engine = Engine(run)
        queries = [Query(k=3, user=user) for user in (users * 2)[:1_000]]
        done = await asyncio.gather(*(engine.ask_all(queries) for _ in range(3)))
        engine.close()
        return done

    for answers in asyncio.run(ask_many()):
        assert [answer.user for answer in answers] == (users * 2)[:1_000]


def test_the_event_loop_and_the_thread_give_the_same_answer(client, monkeypatch):
    body = {"user": "bella-787", "k": 7.0}  # JSON does not tell 7.0 from 7
    expected = client.post("/recommend", json=body).json()
    assert len(expected["items"]) == 7
    monkeypatch.setattr(client.app.state.engine, "quick_products", 0)
    assert client.post("/recommend", json=body).json() == expected


def test_batches_are_encoded_off_the_event_loop(client: TestClient, monkeypatch):
    def encode(answers) -> bytes:
        with pytest.raises(RuntimeError, match="no running event loop"):
            asyncio.get_running_loop()
        return answers_as_json(answers)

    monkeypatch.setattr(schemas, "answers_as_json", encode)
    answered = client.post("/recommend/batch", json={"users": ["bella-787"] * 2, "k": 3})
    assert [len(answer["items"]) for answer in answered.json()] == [3, 3]
