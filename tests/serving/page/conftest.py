"""The real service, and a real browser."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mgformer.recommend.recommender import Recommender
from tests.serving.running import serving


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page") / "run"
    bundle = Recommender.fit("demo", "ease").bundle
    record = bundle.record.model_copy(update={"popularity": {"recall@20": 0.0123}})
    Recommender(replace(bundle, record=record)).save(folder)
    return folder


@pytest.fixture(scope="module")
def service(bundle: Path) -> Iterator[str]:
    with serving(bundle) as address:
        yield address


@pytest.fixture
def browser(driver: Any) -> Iterator[Any]:
    """A clean page. After each test: no script failed, and no request left the host."""
    from tests.serving.page.browser import Browser  # needs selenium

    driver.get("about:blank")
    driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": 1280, "height": 900, "deviceScaleFactor": 1, "mobile": False},
    )
    driver.get_log("browser")
    driver.get_log("performance")
    yield Browser(driver)
    # The browser logs a status such as 404 itself, as "network".
    assert [e for e in driver.get_log("browser") if e["source"] != "network"] == []
    events = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    asked = [e["params"] for e in events if e["method"] == "Network.requestWillBeSent"]
    addresses = {a["request"]["url"] for a in asked} - {"about:blank"}
    assert addresses
    assert all(address.startswith("http://127.0.0.1:") for address in addresses)
