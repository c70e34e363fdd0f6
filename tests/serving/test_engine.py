"""What is computed together, in turn, or elsewhere."""

import asyncio
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from mgformer.recommend.recommender import Recommender
from mgformer.serving import app as app_module
from mgformer.serving import engine as engine_module
from mgformer.serving.engine import Engine, Overloaded
from mgformer.serving.questions import Question
from mgformer.serving.schemas import many_as_json


def test_too_many_wait(run: Path):
    async def ask_many() -> int:
        engine = Engine(run, batch_limit=1, queue_limit=3)
        question = Question(k=1, history=("jazz-03",))
        done = await asyncio.gather(
            *(engine.ask(question) for _ in range(10)), return_exceptions=True
        )
        engine.close()
        return sum(isinstance(result, Overloaded) for result in done)

    assert asyncio.run(ask_many()) == 7


def test_whatever_runs_on_the_thread_counts_as_waiting(run: Path):
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
        questions = [Question(3, user=user) for user in (users * 2)[:1_000]]
        done = await asyncio.gather(*(engine.ask_all(questions) for _ in range(3)))
        engine.close()
        return done

    for answers in asyncio.run(ask_many()):
        assert [answer.user for answer in answers] == (users * 2)[:1_000]


def test_with_or_without_the_thread_the_answer_is_the_same(run: Path, client, monkeypatch):
    body = {"user": "bella-787", "k": 7.0}  # JSON has no other way to write a whole number
    expected = client.post("/recommend", json=body).json()
    assert len(expected["items"]) == 7
    monkeypatch.setattr(engine_module, "QUICK_PRODUCTS", 0)
    assert client.post("/recommend", json=body).json() == expected


def test_long_answers_are_encoded_while_others_are_heard(client: TestClient, monkeypatch):
    def encode(answers, k) -> bytes:
        with pytest.raises(RuntimeError, match="no running event loop"):
            asyncio.get_running_loop()
        return many_as_json(answers, k)

    monkeypatch.setattr(app_module, "many_as_json", encode)
    answered = client.post("/recommend/batch", json={"users": ["bella-787"] * 2, "k": 3})
    assert [len(answer["items"]) for answer in answered.json()] == [3, 3]
