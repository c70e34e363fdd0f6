"""A service follows the rules of a file, and takes new ones up when it reloads."""

import json
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from mgformer.errors import ConfigError
from mgformer.recommend.recommender import Recommender
from mgformer.serving.app import create_app
from tests.command import succeed

HIDE = "[[hide]]\nwhere = 'taste = jazz'\n"
CAP = "[[at_most]]\nattribute = 'taste'\ncount = 2\n[[pin]]\nitems = ['sailing-01']\n"


def items_of(answer) -> list[str]:
    return [item["item"] for item in answer["items"]]


def test_rules_hold_in_every_way_and_survive_reload(run: Path, tmp_path: Path):
    rules = tmp_path / "rules.toml"
    rules.write_text(HIDE)
    body = {"history": ["jazz-03", "jazz-04"], "k": 6}
    service = create_app(run, rules=rules, watch_seconds=None, api_key="a key")
    with TestClient(service, headers={"X-API-Key": "a key"}) as client:
        first = items_of(client.post("/recommend", json=body).json())
        assert len(first) == 6
        assert not any(item.startswith("jazz") for item in first)
        rules.write_text(CAP)
        assert items_of(client.post("/recommend", json=body).json()) == first
        assert client.post("/admin/reload").json()["changed"]
        capped = items_of(client.post("/recommend", json=body).json())
        assert capped[0] == "sailing-01"
        assert max(sum(i[:-3] == item[:-3] for i in capped) for item in capped) == 2
        rules.write_text("[[hide]]\nwhere = 'tastes = jazz'\n")
        refused = client.post("/admin/reload")
        assert refused.status_code == 422
        assert "did you mean taste?" in refused.json()["error"]
        assert items_of(client.post("/recommend", json=body).json()) == capped
        users = Recommender.load(run).bundle.users.values[:2].to_list()
        batch = client.post("/recommend/batch", json={"users": users, "k": 6}).json()
    rules.write_text(CAP)
    ruled = Recommender.load(run).with_rules(rules)
    assert ruled.recommend_for(body["history"], 6)["item"].to_list() == capped
    for user, answer in zip(users, batch, strict=True):
        assert ruled.recommend(user, 6)["item"].to_list() == items_of(answer)
    flags = ["--history", "jazz-03,jazz-04", "-k", 6, "--rules", rules, "--json"]
    assert items_of(json.loads(succeed("recommend", run, *flags))["users"][0]) == capped
    with pytest.raises(ConfigError, match="cannot be read"):
        create_app(run, rules=tmp_path / "none.toml")


def test_diversity_over_http_and_on_the_command_line(run: Path, client: TestClient):
    wishes = {"diversity": 0.5, "at_most": {"taste": 1}}
    body = {"history": ["jazz-03", "sailing-04"], "k": 4, **wishes}
    found = items_of(client.post("/recommend", json=body).json())
    assert len({item[:-3] for item in found}) == len(found) == 4
    flags = ["--diversity", 0.5, "--at-most", "taste=1", "-k", 4, "--json"]
    told = succeed("recommend", run, "--history", "jazz-03,sailing-04", *flags)
    assert items_of(json.loads(told)["users"][0]) == found
    refused = client.post("/recommend", json={**body, "at_most": {"tastes": 1}})
    assert (refused.status_code, "did you mean taste?" in refused.json()["error"]) == (422, True)
