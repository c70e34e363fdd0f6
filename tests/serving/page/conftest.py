"""The real service, and a real browser."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mgformer.recommend.recommender import Recommender
from tests.serving.running import serving


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page") / "run"
    recommender = Recommender.fit("demo", "ease")
    recommender.bundle.record.popularity = {"recall@20": 0.0123}
    recommender.save(folder)
    return folder


@pytest.fixture(scope="module")
def service(bundle: Path) -> Iterator[str]:
    with serving(bundle) as address:
        yield address


@pytest.fixture
def browser(driver: Any) -> Iterator[Any]:
    """A clean page; whatever a test does, no script fails and no request leaves the host."""
    from tests.serving.page.browser import Browser  # where there is no selenium, nothing is driven

    driver.get("about:blank")
    driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": 1280, "height": 900, "deviceScaleFactor": 1, "mobile": False},
    )
    driver.get_log("browser")
    driver.get_log("performance")
    yield Browser(driver)
    # A status such as 404 is logged by the browser itself, under "network".
    assert [e for e in driver.get_log("browser") if e["source"] != "network"] == []
    events = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    asked = [e["params"] for e in events if e["method"] == "Network.requestWillBeSent"]
    addresses = {a["request"]["url"] for a in asked} - {"about:blank"}
    assert addresses
    assert all(address.startswith("http://127.0.0.1:") for address in addresses)
