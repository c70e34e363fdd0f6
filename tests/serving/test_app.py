"""The HTTP service: the same lists as everywhere else, and no request that can do harm."""

import asyncio
import json
import threading
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path

import httpx2
import polars as pl
import pytest
from fastapi.testclient import TestClient
from hypothesis import given, settings
from hypothesis import strategies as st

from mgformer.errors import BundleError
from mgformer.recommender import Recommender
from mgformer.serving import engine as engine_module
from mgformer.serving import search
from mgformer.serving.app import create_app
from mgformer.serving.engine import Engine, Overloaded
from mgformer.serving.limits import Limits
from mgformer.serving.questions import Question, answer_all
from mgformer.serving.schemas import ANSWER
from tests.test_cli import succeed


@pytest.fixture(scope="module", params=["ials", "ease"])
def run(request, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp(request.param) / "run"
    Recommender.fit("demo", request.param).save(folder)
    return folder


@pytest.fixture(scope="module")
def recommender(run: Path) -> Recommender:
    return Recommender.load(run)


@pytest.fixture(scope="module")
def client(run: Path):
    with TestClient(create_app(run, watch=False), raise_server_exceptions=False) as client:
        yield client


def listed(answer) -> list[tuple[str, float]]:
    return [(item["item"], item["score"]) for item in answer["items"]]


def expected_of(answer) -> list[tuple[str, float]]:
    return [(item.item, item.score) for item in answer.items]


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_python_command_line_http_and_files_give_the_same_list(
    run: Path, recommender: Recommender, client: TestClient, tmp_path_factory, data
):
    folder = tmp_path_factory.mktemp("ways")
    ids = {"user": recommender.bundle.users.values, "item": recommender.bundle.items.values}

    def some(kind: str, most: int):
        numbers = st.lists(st.integers(0, len(ids[kind]) - 1), min_size=1, max_size=most)
        return data.draw(numbers.map(lambda drawn: [ids[kind][n] for n in drawn]))

    k, with_seen = data.draw(st.integers(1, 30)), data.draw(st.booleans())
    choice = some("item", 40) if data.draw(st.booleans()) else None
    never = some("item", 40) if data.draw(st.booleans()) else []
    options = {"exclude_seen": not with_seen, "candidates": choice, "exclude": never}
    flags = ["-k", k, *(["--with-seen"] if with_seen else [])]
    for flag, ids_in_file in (("--candidates", choice), ("--exclude", never)):
        if ids_in_file:
            (folder / flag).write_text("\n".join(ids_in_file))
            flags += [flag, folder / flag]
    if data.draw(st.booleans(), label="known by items"):
        history = some("item", 6)
        user = some("user", 1)[0] if data.draw(st.booleans(), label="and a user") else None
        expected = [expected_of(recommender.recommend_for(history, k, user=user, **options))]
        flags += ["--history", ",".join(history), *([] if user is None else ["--user", user])]
        bodies = [{"history": history, "user": user}]
    else:
        users = some("user", 5)
        expected = [expected_of(answer) for answer in recommender.answers(users, k, **options)]
        flags += [flag for user in users for flag in ("--user", user)]
        bodies = [{"user": user} for user in users]
        if choice is None:
            body = {"users": users, "k": k, "exclude_seen": not with_seen, "exclude": never}
            by_batch = client.post("/recommend/batch", json=body).json()
            assert [listed(answer) for answer in by_batch] == expected
    for body, own in zip(bodies, expected, strict=True):
        assert listed(client.post("/recommend", json={**body, "k": k, **options}).json()) == own
    by_command = json.loads(succeed("recommend", run, *flags, "--json"))["users"]
    assert [listed(answer) for answer in by_command] == expected
    succeed("recommend", run, *flags, "--out", folder / "lists.parquet")
    by_file = pl.read_parquet(folder / "lists.parquet")
    rows = [pair for own in expected for pair in own]
    assert list(zip(by_file["item"], by_file["score"], strict=True)) == rows
    assert by_file["rank"].to_list() == [n for own in expected for n in range(1, len(own) + 1)]


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_questions_asked_together_are_answered_as_if_alone(recommender: Recommender, data):
    items = recommender.bundle.items.values
    users = recommender.bundle.users.values

    def draw() -> Question:
        some = st.lists(st.integers(0, len(items) - 1), max_size=6).map(
            lambda numbers: tuple(items[n] for n in numbers)
        )
        return Question(
            k=data.draw(st.integers(1, 30)),
            user=data.draw(st.none() | st.integers(0, 799).map(lambda n: users[n])),
            history=data.draw(some),
            exclude_seen=data.draw(st.booleans()),
            candidates=data.draw(st.none() | some.filter(bool)),
            exclude=data.draw(st.just(()) | some),
        )

    questions = [draw() for _ in range(data.draw(st.integers(1, 6)))]
    for question, answer in zip(questions, answer_all(recommender, questions), strict=True):
        alone = recommender.recommend_for(
            question.history,
            question.k,
            user=question.user,
            exclude_seen=question.exclude_seen,
            candidates=question.candidates,
            exclude=question.exclude,
        )
        assert [i.item for i in answer.items] == [i.item for i in alone.items]
        assert [i.score for i in answer.items] == pytest.approx([i.score for i in alone.items])
        assert (answer.source, answer.unknown, answer.user) == (
            alone.source,
            alone.unknown,
            alone.user,
        )


def test_a_history_over_http(recommender: Recommender, client: TestClient):
    body = {"history": ["jazz-03", "jazz-04", "unheard of"], "k": 5}
    answer = client.post("/recommend", json=body).json()
    same = recommender.recommend_for(body["history"], 5)
    assert [item for item, _ in listed(answer)] == [i.item for i in same.items]
    assert answer["unknown"] == ["unheard of"]
    assert answer["source"] == "history"
    assert client.post("/recommend", json={"history": []}).json()["source"] == "popularity"


def test_items_nobody_is_to_get_are_left_out_over_http(
    recommender: Recommender, client: TestClient
):
    users = recommender.bundle.users.values[:2].to_list()
    exclude = recommender.recommend(users, 4)["item"].to_list()
    expected = [expected_of(a) for a in recommender.answers(users, 5, exclude=exclude)]
    body = {"k": 5, "exclude": [*exclude, "unheard of"]}
    for user, own in zip(users, expected, strict=True):
        answer = client.post("/recommend", json={"user": user, **body}).json()
        assert listed(answer) == own
        assert not set(exclude) & {item for item, _ in own}
    together = client.post("/recommend/batch", json={"users": users, **body}).json()
    assert [listed(answer) for answer in together] == expected
    assert client.post("/recommend", json={"user": users[0], "exclude": "x"}).status_code == 422


def test_items_without_training_pairs_are_passed_over_by_the_service_too(recommender: Recommender):
    train, item = recommender.bundle.train, recommender.bundle.items.values[4]
    kept = train.indices != 4
    bundle = replace(recommender.bundle, train=train.subset(kept), history=train.subset(~kept))
    without = Recommender(bundle)
    histories = [(item,), ("jazz-03", item), ()]
    answers = answer_all(without, [Question(9, history=history) for history in histories])
    assert [answer.source for answer in answers] == ["popularity", "history", "popularity"]
    assert [answer.unknown for answer in answers] == [(item,), (item,), ()]
    for history, answer in zip(histories, answers, strict=True):
        alone = without.recommend_for(history, 9)
        assert [i.item for i in answer.items] == [i.item for i in alone.items]
        assert not set(history) & {i.item for i in answer.items}


def test_reasons_are_items_of_the_history(client: TestClient):
    body = {"history": ["jazz-03", "jazz-04", "rock-01"], "k": 3, "explain": True}
    for item in client.post("/recommend", json=body).json()["items"]:
        assert {reason["item"] for reason in item["because"]} <= set(body["history"])
        weights = [reason["weight"] for reason in item["because"]]
        assert weights == sorted(weights, reverse=True)
        assert weights[0] > 0


def test_similar_items_and_users(recommender: Recommender, client: TestClient):
    found = client.post("/similar", json={"item": "jazz-03", "k": 4}).json()
    assert [row["item"] for row in found] == recommender.similar_items("jazz-03", 4)[
        "item"
    ].to_list()
    user = recommender.bundle.users.values[5]
    found = client.post("/similar", json={"user": user, "k": 4}).json()
    assert [row["user"] for row in found] == recommender.similar_users(user, 4)["user"].to_list()


def test_items_and_users_are_found(recommender: Recommender, client: TestClient):
    found = client.get("/items", params={"q": "JAZZ-0", "limit": 3}).json()
    assert len(found) == 3
    assert all("jazz-0" in row["item"] for row in found)
    popular = client.get("/items", params={"limit": 1}).json()[0]["item"]
    degrees = recommender.bundle.item_degrees
    assert degrees[recommender.bundle.items.encode([popular])[0]] == degrees.max()
    assert client.get("/items", params={"q": "jazz-12", "limit": 1}).json()[0]["item"] == "jazz-12"
    user = recommender.bundle.users.values[5]
    assert user in client.get("/users", params={"q": user[:4].upper(), "limit": 200}).json()
    assert client.get("/users", params={"q": user, "limit": 1}).json() == [user]
    own = client.get(f"/users/{user}").json()
    assert [row["item"] for row in own["items"]] == recommender.items_of(5)["item"].to_list()


def test_the_model_says_what_it_is(recommender: Recommender, client: TestClient):
    card = client.get("/model").json()
    assert card["fingerprint"] == recommender.bundle.record["fingerprint"]
    assert (card["num_users"], card["num_items"]) == (800, 400)


def test_health_metrics_and_request_ids(client: TestClient):
    assert client.get("/healthz").text == "ok"
    assert client.get("/readyz").text == "ready"
    answered = client.get("/items", headers={"X-Request-ID": "abc"})
    assert answered.headers["x-request-id"] == "abc"
    assert len(client.get("/items").headers["x-request-id"]) == 32
    text = client.get("/metrics").text
    assert 'mgformer_requests_total{method="GET",path="/items",status="200"}' in text
    assert 'mgformer_request_seconds_bucket{path="/items",le="+Inf"}' in text


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (b'{"user": ', 400, "not valid JSON"),
        (b"[]", 422, "expected a JSON object"),
        (b'{"k": 5}', 422, "say for whom"),
        (b'{"user": "x", "k": 0}', 422, "k: Input should be greater than or equal to 1"),
        (b'{"user": "x", "k": 1000000000}', 422, "k: Input should be less than or equal to 1000"),
        (b'{"user": "x", "k": "many"}', 422, "k: Input should be a valid integer"),
        (b'{"user": {"id": 1}}', 422, "user"),
        (b'{"user": "x", "limit": 3}', 422, "limit: Extra inputs are not permitted"),
        (b'{"user": "amir-18"}', 404, "unknown user 'amir-18'"),
        (b'{"history": ["jazz-03"], "candidates": ["nope"]}', 404, "unknown item 'nope'"),
        (b'{"history": [' + b'"x",' * 1000 + b'"x"]}', 422, "history"),
        (b'{"user": "' + b"x" * 600 + b'"}', 422, "user"),
        (b'{"user": "\\ud800"}', 422, ""),
        (b"\xff\xfe", 400, ""),
        (b'{"user": "' + b"x" * 1_100_000 + b'"}', 413, "larger than 1,000,000 bytes"),
        (b"[" * 100_000, 400, ""),
    ],
)
def test_bad_requests_are_told_what_is_wrong(body, status, message, client: TestClient):
    answered = client.post("/recommend", content=body, headers={"content-type": "application/json"})
    assert answered.status_code == status, answered.text
    assert message in answered.json()["error"]
    assert client.get("/healthz").status_code == 200


def test_a_body_without_a_length_is_bounded_too(client: TestClient):
    def parts():
        yield b'{"user": "'
        for _ in range(2_000):
            yield b"x" * 1_000

    answered = client.post("/recommend", content=parts())
    assert answered.status_code == 413


def test_other_paths_and_methods(client: TestClient):
    assert client.get("/nothing").json() == {"error": "Not Found"}
    assert client.get("/recommend").status_code == 405
    assert client.get("/users/nobody at all").status_code == 404
    assert client.get("/items", params={"limit": 10_000}).status_code == 422


def test_a_key_is_wanted_where_one_is_set(run: Path):
    with TestClient(create_app(run, api_key="secret", watch=False)) as client:
        assert client.get("/items").status_code == 401
        assert client.get("/items", headers={"X-API-Key": "wrong"}).status_code == 401
        assert "error" in client.post("/admin/reload").json()
        assert client.get("/items", headers={"X-API-Key": "secret"}).status_code == 200
        assert client.get("/healthz").status_code == 200
        assert client.get("/").status_code == 200


def test_limits_are_those_given(run: Path):
    limits = Limits(body_bytes=200, k=3, batch_users=2)
    with TestClient(create_app(run, limits=limits, watch=False)) as client:
        assert client.post("/recommend", json={"history": [], "k": 4}).status_code == 422
        assert client.post("/recommend", json={"history": [], "k": 3}).status_code == 200
        assert client.post("/recommend/batch", json={"users": ["a"] * 3}).status_code == 422
        assert client.post("/recommend", json={"history": ["x" * 100] * 3}).status_code == 413


def test_a_fault_of_ours_is_logged_and_not_shown(run: Path, monkeypatch, caplog):
    def broken(*arguments):
        raise ZeroDivisionError("inner workings")

    monkeypatch.setattr(search, "find_items", broken)
    app = create_app(run, watch=False)
    with TestClient(app, raise_server_exceptions=False) as client:
        answered = client.get("/items")
        assert answered.status_code == 500
        assert answered.json() == {"error": "a fault of the service; it has been logged"}
        assert client.get("/healthz").status_code == 200
    assert "inner workings" in caplog.text


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


def test_a_new_bundle_is_taken_up_and_a_broken_one_is_not(tmp_path: Path):
    folder = tmp_path / "run"
    Recommender.fit("demo", "itemknn").save(folder)
    with TestClient(create_app(folder, watch=False)) as client:
        assert client.post("/admin/reload").json()["changed"] is False
        Recommender.fit("demo", "ease").save(folder)
        assert client.get("/model").json()["model"] == "itemknn"
        assert client.post("/admin/reload").json()["changed"] is True
        assert client.get("/model").json()["model"] == "ease"
        (folder / "bundle.json").write_text("{")
        assert "damaged" in client.post("/admin/reload").json()["error"]
        assert client.post("/recommend", json={"history": ["jazz-03"]}).status_code == 200
        text = client.get("/metrics").text
        for result in ("loaded", "unchanged", "failed"):
            assert f'mgformer_reloads_total{{result="{result}"}} 1' in text


def rounded(value):
    """The last bits of what is solved for depend on the thread that computes it."""
    if isinstance(value, dict):
        return {name: rounded(part) for name, part in value.items()}
    if isinstance(value, list):
        return [rounded(part) for part in value]
    return round(value, 5) if isinstance(value, float) else value


def test_reloading_under_load_loses_no_request_and_mixes_no_bundles(tmp_path: Path):
    folder = tmp_path / "run"
    bundles = Recommender.fit("demo", "ials"), Recommender.fit("demo", "ials", seed=1)
    bundles[0].save(folder)
    app = create_app(folder, watch=False)
    questions = [
        Question(5, user="bella-787"),
        Question(5, history=("jazz-03", "jazz-04")),
        Question(5, user="amir-186", history=("jazz-03",), explain=True),
    ]
    allowed = [
        [rounded(json.loads(ANSWER.dump_json(answer))) for answer in answers]
        for answers in zip(*(answer_all(one, questions) for one in bundles), strict=True)
    ]
    assert all(old["items"] != new["items"] for old, new in allowed)

    async def work() -> Counter:
        transport = httpx2.ASGITransport(app)
        answered: Counter = Counter()
        async with httpx2.AsyncClient(transport=transport, base_url="http://test") as client:
            for wave in range(20):
                asked = [
                    client.post("/recommend", json=asdict(questions[n % 3])) for n in range(102)
                ]
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


def test_a_folder_without_a_bundle_is_refused(tmp_path: Path):
    with pytest.raises(BundleError, match="no trained recommender here"):
        create_app(tmp_path)
