"""HTTP, Python, the command line and files give the same lists."""

import json
from pathlib import Path

import polars as pl
from fastapi.testclient import TestClient
from hypothesis import given, settings
from hypothesis import strategies as st

from mgformer.data.where import read_where
from mgformer.recommend.query import Query
from mgformer.recommend.recommender import Recommender
from mgformer.serving.app import create_app
from mgformer.serving.limits import Limits
from mgformer.serving.schemas import request_bodies
from tests.command import succeed


def listed(answer) -> list[tuple[str, float]]:
    return [(item["item"], item["score"]) for item in answer["items"]]


def expected_of(answer) -> list[tuple[str, float]]:
    return [(item.item, item.score) for item in answer.items]


TASTES = st.lists(st.sampled_from(["jazz", "rock", "sailing", "none"]), min_size=1, unique=True)
CONDITIONS = TASTES.flatmap(
    lambda tastes: st.sampled_from(
        [
            (f"taste in [{', '.join(tastes)}]", {"taste": tastes}),
            (f"not taste = {tastes[0]}", {"not": {"taste": {"=": tastes[0]}}}),
            (
                f"taste = {tastes[0]} or name has [jazz, the]",
                {"or": [{"taste": tastes[0]}, {"name": {"has": ["jazz", "the"]}}]},
            ),
        ]
    )
)
"""The same condition as text and as JSON."""


def found_by(recommender: Recommender, where) -> list[str]:
    """The items for which a condition holds."""
    bundle = recommender.bundle
    return bundle.items.values.filter(pl.Series(bundle.filters.mask(read_where(where)))).to_list()


@settings(max_examples=40)
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
    where = data.draw(st.none() | CONDITIONS)
    options = {"exclude_seen": not with_seen, "candidates": choice, "exclude": never}
    options["where"] = None if where is None else data.draw(st.sampled_from(where))
    flags = ["-k", k, *(["--with-seen"] if with_seen else [])]
    if where is not None:
        written = data.draw(st.sampled_from(where))
        flags += ["--where", written if isinstance(written, str) else json.dumps(written)]
    for flag, ids_in_file in (("--candidates", choice), ("--exclude", never)):
        if ids_in_file:
            (folder / flag).write_text("\n".join(ids_in_file))
            flags += [flag, folder / flag]
    if data.draw(st.booleans(), label="known by items"):
        history = some("item", 6)
        user = some("user", 1)[0] if data.draw(st.booleans(), label="and a user") else None
        query = Query(history=history, user=user, k=k, **options)
        expected = [expected_of(recommender.answer(query))]
        by_python = recommender.recommend_for(history, k, user=user, **options)
        flags += ["--history", ",".join(history), *([] if user is None else ["--user", user])]
        bodies = [{"history": history, "user": user}]
    else:
        users = some("user", 5)
        expected = [expected_of(answer) for answer in recommender.answers(users, k, **options)]
        by_python = recommender.recommend(users, k, **options)
        flags += [flag for user in users for flag in ("--user", user)]
        bodies = [{"user": user} for user in users]
        if choice is None:
            body = {"users": users, "k": k, "exclude_seen": not with_seen, "exclude": never}
            body["where"] = where and where[1]
            by_batch = client.post("/recommend/batch", json=body).json()
            assert [listed(answer) for answer in by_batch] == expected
    if where is not None:  # ranking everything, and dropping what does not match
        whole = {**options, "where": None}
        matching = set(found_by(recommender, options["where"]))
        queries = [Query(**body, k=len(ids["item"]), **whole) for body in bodies]
        for query, own in zip(queries, expected, strict=True):
            kept = [pair for pair in expected_of(recommender.answer(query)) if pair[0] in matching]
            assert own == kept[:k]
    for body, own in zip(bodies, expected, strict=True):
        asked = {**body, "k": k, **options, "where": where and where[1]}
        assert listed(client.post("/recommend", json=asked).json()) == own
    by_command = json.loads(succeed("recommend", run, *flags, "--json"))["users"]
    assert [listed(answer) for answer in by_command] == expected
    succeed("recommend", run, *flags, "--out", folder / "lists.parquet")
    by_file = pl.read_parquet(folder / "lists.parquet")
    rows = [pair for own in expected for pair in own]
    for table in (by_file, by_python):
        assert list(zip(table["item"], table["score"], strict=True)) == rows
        assert table["rank"].to_list() == [n for own in expected for n in range(1, len(own) + 1)]


def test_a_history_over_http(recommender: Recommender, client: TestClient):
    body = {"history": ["jazz-03", "jazz-04", "unheard of"], "k": 5}
    answer = client.post("/recommend", json=body).json()
    same = recommender.recommend_for(body["history"], 5)
    assert [item for item, _ in listed(answer)] == same["item"].to_list()
    assert answer["unknown"] == ["unheard of"]
    assert answer["source"] == "history"
    assert client.post("/recommend", json={"history": []}).json()["source"] == "popularity"


def test_times_over_http(client: TestClient):
    history = ["jazz-03", "sailing-02", "jazz-04"]
    dated = [{"item": item, "time": time} for time, item in enumerate(history)]
    body = request_bodies(Limits(), "a", "b").recommend(history=dated[::-1], k=5)
    assert body.query() == Query(history=history, k=5, fallback=True)
    answers = [
        client.post("/recommend", json={"history": one, "k": 5}).json()
        for one in (dated[::-1], history)
    ]
    assert answers[0] == answers[1]


def test_excluded_items_are_left_out_over_http(recommender: Recommender, client: TestClient):
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


def test_unknown_users_fall_back_unless_strict(recommender: Recommender, client: TestClient):
    known, history = recommender.bundle.users.values[3], ["jazz-03", "jazz-04"]
    popular, by_history = (
        client.post("/recommend", json={"history": own, "k": 5}).json() for own in ([], history)
    )
    for body, source, like in (
        ({"user": "nobody"}, "popularity", popular),
        ({"user": "nobody", "history": history}, "history", by_history),
        ({"user": "nobody", "history": history, "explain": True}, "history", by_history),
    ):
        answer = client.post("/recommend", json={**body, "k": 5}).json()
        assert (answer["user"], answer["source"], answer["unknown_user"]) == (
            "nobody",
            source,
            True,
        )
        assert listed(answer) == listed(like)
        refused = client.post("/recommend", json={**body, "strict": True})
        assert refused.status_code == 404
        assert "unknown user 'nobody'" in refused.json()["error"]
    users = ["nobody", known, "no one"]
    answers = client.post("/recommend/batch", json={"users": users, "k": 5}).json()
    assert [answer["user"] for answer in answers] == users
    assert [answer["unknown_user"] for answer in answers] == [True, False, True]
    own = client.post("/recommend", json={"user": known, "k": 5, "strict": True}).json()
    assert [listed(answer) for answer in answers] == [listed(popular), listed(own), listed(popular)]
    refused = client.post("/recommend/batch", json={"users": users, "strict": True})
    assert refused.status_code == 404


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


def test_items_and_users_are_found_by_search(recommender: Recommender, client: TestClient):
    found = client.get("/items", params={"q": "JAZZ-0", "limit": 3}).json()
    assert len(found) == 3
    assert all("jazz-0" in row["item"] for row in found)
    assert client.get("/items", params={"q": "JÁZZ-0", "limit": 3}).json() == found
    popular = client.get("/items", params={"limit": 1}).json()[0]["item"]
    degrees = recommender.bundle.item_degrees
    assert degrees[recommender.bundle.items.encode([popular])[0]] == degrees.max()
    assert client.get("/items", params={"q": "jazz-12", "limit": 1}).json()[0]["item"] == "jazz-12"
    user = recommender.bundle.users.values[5]
    assert user in client.get("/users", params={"q": user[:4].upper(), "limit": 200}).json()
    assert client.get("/users", params={"q": user, "limit": 1}).json() == [user]


def test_the_items_of_a_user_are_counted_and_listed_up_to_a_limit(
    recommender: Recommender, client: TestClient
):
    user = recommender.bundle.users.values[5]
    items = recommender.items_of(user)["item"].to_list()
    assert len(items) > 2
    own = client.get(f"/users/{user}").json()
    assert (own["user"], own["total"]) == (user, len(items))
    assert [row["item"] for row in own["items"]] == items
    own = client.get(f"/users/{user}", params={"limit": 2}).json()
    assert own["total"] == len(items)
    assert [row["item"] for row in own["items"]] == items[:2]
    assert client.get(f"/users/{user}", params={"limit": 1_001}).status_code == 422


def test_the_model_is_described(recommender: Recommender, client: TestClient):
    card = client.get("/model").json()
    assert card["fingerprint"] == recommender.bundle.record.fingerprint
    assert (card["num_users"], card["num_items"]) == (800, 400)


def test_ids_are_answered_as_text(tmp_path: Path):
    pairs = [(10**17 + user, item) for user in range(12) for item in range(9) if (user + item) % 3]
    table = pl.DataFrame(pairs, schema=["user", "item"], orient="row")
    Recommender.fit(table, "popularity", split={"kind": "ratio"}).save(tmp_path)
    with TestClient(create_app(tmp_path)) as client:
        user = str(10**17 + 1)
        for asked in (user, int(user)):
            answer = client.post("/recommend", json={"user": asked, "k": 2}).json()
            assert (answer["user"], answer["k"]) == (user, 2)
            assert {type(item["item"]) for item in answer["items"]} == {str}
        by_items = client.post("/recommend", json={"history": [3, "99"], "k": 4}).json()
        assert (by_items["user"], by_items["k"], by_items["unknown"]) == (None, 4, ["99"])
        assert client.get("/users", params={"q": user}).json() == [user]
        owned = client.get(f"/users/{user}").json()
        assert owned["user"] == user
        assert {type(item["item"]) for item in owned["items"]} == {str}
        assert {type(item["item"]) for item in client.get("/items").json()} == {str}


def test_attributes_of_items_are_given_if_asked_for(recommender: Recommender, client: TestClient):
    body = {"history": ["jazz-03"], "k": 3}
    assert client.post("/recommend", json=body).json()["items"][0]["attributes"] is None
    for asked in (True, ["taste"]):
        answer = client.post("/recommend", json={**body, "attributes": asked}).json()
        for item in answer["items"]:
            assert item["attributes"] == {"taste": item["item"][:-3]}
    users = recommender.bundle.users.values[:2].to_list()
    (one, _) = client.post("/recommend/batch", json={"users": users, "attributes": True}).json()
    assert one["items"][0]["attributes"] == {"taste": one["items"][0]["item"][:-3]}
    wrong = client.post("/recommend", json={**body, "attributes": ["tastes"]})
    assert wrong.status_code == 422
    assert "did you mean taste?" in wrong.json()["error"]
    listed = client.get("/attributes").json()
    assert [(column["name"], column["kind"]) for column in listed] == [
        ("name", "text"),
        ("taste", "category"),
    ]
    assert {"value": "jazz", "count": 40} in listed[1]["values"]


def test_wrong_filters_are_refused_in_one_line(client: TestClient):
    for where, message in (
        ({"tastes": "jazz"}, "did you mean taste?"),
        ({"taste": {">": 1}}, "taste is a category, expected one of: =, in, is missing"),
        ({"taste": {"like": 1}}, "got 'like' for taste"),
        ("taste = jazz", "where: Input should be a valid dictionary"),
        (["taste"], "where"),
    ):
        refused = client.post("/recommend", json={"history": ["jazz-03"], "where": where})
        assert refused.status_code == 422, where
        assert message in refused.json()["error"]
