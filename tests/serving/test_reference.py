"""/docs lists every request with an example that works, without anything from elsewhere."""

import re
import shlex
from html import unescape
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from mgformer.recommend.recommender import Recommender
from mgformer.serving.app import create_app
from tests.serving.running import LOCAL

KEY = "a key"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reference") / "run"
    Recommender.fit("demo", "itemknn").save(folder)
    return folder


def commands(page: str) -> list[list[str]]:
    return [
        shlex.split(unescape(text)) for text in re.findall(r"<pre>(.*?)</pre>", page, re.DOTALL)
    ]


def run_curl(client: TestClient, words: list[str]) -> int:
    """Send what a curl command would send."""
    program, *words = words
    assert program == "curl"
    method, url, headers, body = None, "", {}, None
    while words:
        word = words.pop(0)
        if word == "-X":
            method = words.pop(0)
        elif word == "-H":
            name, _, value = words.pop(0).partition(": ")
            headers[name] = value.replace("$MGFORMER_API_KEY", KEY)
        elif word == "-d":
            body = words.pop(0)
        else:
            url = word
    method = method or ("GET" if body is None else "POST")
    return client.request(method, url, headers=headers, content=body).status_code


def test_every_request_is_there_and_every_example_works(folder: Path, tmp_path: Path) -> None:
    app = create_app({"a": folder, "b": folder}, watch_seconds=None, feedback=tmp_path)
    with TestClient(app, client=LOCAL) as client:
        page = client.get("/docs").text
        shown = re.findall(r"<h2><b>(\w+)</b> (.*?)</h2>", page)
        paths = client.get("/openapi.json").json()["paths"]
        assert shown == [(m.upper(), path) for path, own in paths.items() for m in own]
        found = commands(page)
        assert len(found) > len(shown)
        for words in found:
            assert run_curl(client, words) in (200, 202), words
        assert "<td>a | b<td>The model that answers" in page


def test_nothing_is_loaded_from_elsewhere_and_nothing_runs(folder: Path) -> None:
    with TestClient(create_app(folder, watch_seconds=None), client=LOCAL) as client:
        answered = client.get("/docs")
        assert answered.headers["content-type"] == "text/html; charset=utf-8"
        assert "default-src 'self'" in answered.headers["content-security-policy"]
        loaded = re.findall(r'<(?:link|script|img)[^>]*(?:href|src)="([^"]*)"', answered.text)
        assert loaded == ["/page/icon.svg", "/page/docs.css"]
        for path in loaded:
            assert client.get(path).status_code == 200
        assert "<script" not in answered.text
        assert " style=" not in answered.text


def test_with_a_key_no_id_of_the_data_is_shown(folder: Path) -> None:
    with TestClient(create_app(folder, api_key=KEY, watch_seconds=None), client=LOCAL) as client:
        page = client.get("/docs")
        assert page.status_code == 200
        bundle = client.app.state.engine.bundle  # type: ignore[attr-defined]
        for ids in (bundle.users, bundle.items):
            assert ids.values[0] not in page.text
        for words in commands(page.text):
            assert run_curl(client, words) in (200, 404), words  # i1 and u1 are unknown


def test_ids_cannot_add_markup_or_commands(tmp_path: Path) -> None:
    import polars as pl

    odd = "</pre><b onclick=x>'; rm -rf ~ #"
    pairs = [
        (f"{odd}{user:02d}", f"{odd}{n}") for user in range(12) for n in range(9) if (user + n) % 3
    ]
    table = pl.DataFrame(pairs, schema=["user", "item"], orient="row")
    Recommender.fit(table, "itemknn").save(tmp_path)
    with TestClient(create_app(tmp_path, watch_seconds=None), client=LOCAL) as client:
        page = client.get("/docs").text
        assert "<b onclick" not in page
        for words in commands(page):
            assert run_curl(client, words) in (200, 403), words
