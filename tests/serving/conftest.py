"""A trained recommender, and the service for it."""

from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from mgformer.recommend.recommender import Recommender
from mgformer.serving.app import create_app


@pytest.fixture(scope="session", params=["ials", "ease"])
def run(request, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp(request.param) / "run"
    Recommender.fit("demo", request.param).save(folder)
    return folder


@pytest.fixture(scope="session")
def recommender(run: Path) -> Recommender:
    return Recommender.load(run)


@pytest.fixture(scope="module")
def client(run: Path):
    with TestClient(create_app(run, watch_seconds=None)) as client:
        yield client
