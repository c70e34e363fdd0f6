"""Lists of a service with an index."""

import logging

import pytest
from fastapi.testclient import TestClient

from mgformer.errors import ConfigError
from mgformer.recommend.recommender import Recommender
from mgformer.serving import search
from mgformer.serving.app import create_app
from mgformer.serving.monitoring import Metrics
from mgformer.serving.search import Search
from tests.command import assert_one_line, mgformer
from tests.serving.running import LOCAL

pytest.importorskip("faiss")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("index") / "run"
    Recommender.fit("demo", "ials").save(place)
    return place


def test_lists_and_the_recall_of_the_index(folder, caplog):
    caplog.set_level(logging.INFO, "mgformer.serving")
    exact = Recommender.load(folder)
    users = exact.bundle.users.values.head(5).to_list()
    with TestClient(
        create_app(folder, search=Search("ann"), watch_seconds=None), client=LOCAL
    ) as client:
        for user in users:
            found = client.post("/recommend", json={"user": user, "k": 10}).json()
            expected = exact.recommend(user, 10)
            assert [one["item"] for one in found["items"]] == expected["item"].to_list()
        metrics = client.get("/metrics").text
    assert 'mgformer_index_recall{model="default",worker="' in metrics
    (line,) = [text for text in caplog.messages if text.startswith("index of 400 items")]
    assert "recall@20 1.0000" in line


def test_the_recall_goes_with_the_index():
    metrics = Metrics()
    metrics.show_state("one", 0, 1.0, 0.99)
    metrics.show_state("other", 0, 1.0, 0.98)
    metrics.show_state("one", 0, 2.0)  # a bundle without vectors has replaced that with an index
    text = metrics.text().decode()
    assert 'mgformer_index_recall{model="other"' in text
    assert 'mgformer_index_recall{model="one"' not in text


def test_auto_follows_the_size_of_the_catalog(folder):
    recommender = Recommender.load(folder)
    assert Search("auto", 400).prepared(recommender) is recommender
    assert Search("auto", 399).prepared(recommender).bundle.index is not None
    assert Search("exact", 0).prepared(recommender) is recommender
    assert Search("auto").exact_up_to == 1_000_000


def test_without_vectors_or_without_faiss(folder, tmp_path, monkeypatch, caplog):
    recommender, ease = Recommender.load(folder), Recommender.fit("demo", "ease")
    assert Search("auto", 0).prepared(ease) is ease
    with pytest.raises(ConfigError, match="ease has no vectors to search among"):
        Search("ann").prepared(ease)
    ease.save(tmp_path)
    assert_one_line(mgformer("serve", tmp_path, "--index", "ann"), "no vectors to search among")
    monkeypatch.setattr(search, "find_spec", lambda name: None)
    assert Search("auto", 0).prepared(recommender) is recommender
    assert "for an index" in caplog.text
    assert_one_line(mgformer("serve", folder, "--index", "ann"), "mgformer[ann]")
    assert_one_line(mgformer("serve", folder, "--index", "near"), "expected exact, ann or auto")
