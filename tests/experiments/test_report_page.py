"""Reports in a real browser: on a desktop, on a phone, on paper."""

import json
from pathlib import Path
from typing import Any

import pytest

from mgformer.experiments.report import write_report
from tests.experiments.test_report import OWNED, run, table

webdriver = pytest.importorskip("selenium.webdriver")
from selenium.webdriver.support.ui import WebDriverWait  # noqa: E402

__all__ = ["run", "table"]  # fixtures

PATIENCE = 300
DRAWN = "return [...document.querySelectorAll('.chart')].every((c) => c.querySelector('.main-svg'))"
WIDTHS = """return [...document.querySelectorAll('.chart')].map(
    (chart) => [chart.clientWidth, chart.querySelector('.main-svg').clientWidth])"""


@pytest.fixture(scope="module")
def report(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(run, tmp_path_factory.mktemp("page") / "report.html").path


def opened(driver: Any, report: Path, width: int, scheme: str = "light") -> None:
    driver.execute_cdp_cmd(
        "Emulation.setEmulatedMedia",
        {"features": [{"name": "prefers-color-scheme", "value": scheme}]},
    )
    driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500},
    )
    driver.get(report.as_uri())
    WebDriverWait(driver, PATIENCE).until(lambda _: driver.execute_script(DRAWN))


@pytest.mark.parametrize("width", [1280, 390])
def test_a_report_opens_from_a_file_and_fits_the_screen(
    driver: Any, report: Path, width: int
) -> None:
    driver.get_log("performance")
    opened(driver, report, width)
    wide, there = driver.execute_script(
        "const page = document.documentElement; return [page.scrollWidth, page.clientWidth]"
    )
    assert wide == there <= width
    assert all(drawn <= room for room, drawn in driver.execute_script(WIDTHS))
    events = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    asked = [e["params"] for e in events if e["method"] == "Network.requestWillBeSent"]
    assert {a["request"]["url"] for a in asked} == {report.as_uri()}
    assert driver.get_log("browser") == []


def test_names_from_the_data_are_shown_as_text(driver: Any, report: Path) -> None:
    opened(driver, report, 1280)
    said = driver.execute_script(
        """const map = [...document.querySelectorAll('.chart')].at(-1);
        Plotly.Fx.hover(map, [{ curveNumber: 0, pointNumber: 0 }]);
        return map.querySelector('.hovertext').textContent"""
    )
    assert said.startswith(OWNED[:30])  # shortened, as it is long
    assert driver.title.startswith("mgformer on")
    assert driver.execute_script("return document.querySelectorAll('main img').length") == 0


def test_charts_have_the_colors_of_the_page(driver: Any, report: Path) -> None:
    ink = "return document.querySelector('.chart').layout.font.color"
    opened(driver, report, 1280, "dark")
    dark = driver.execute_script(ink)
    opened(driver, report, 1280, "light")
    assert driver.execute_script(ink) != dark


def test_charts_fit_the_sheet_when_printed_and_the_screen_afterwards(
    driver: Any, report: Path
) -> None:
    opened(driver, report, 1280, "dark")
    before = driver.execute_script(WIDTHS)
    driver.execute_script("dispatchEvent(new Event('beforeprint'))")
    printed = driver.execute_script(WIDTHS)
    assert all(room == drawn < 720 for room, drawn in printed)
    ink = driver.execute_script("return document.querySelector('.chart').layout.font.color")
    assert ink == "#1a201e"  # dark on white, even if the screen is dark
    driver.execute_script("dispatchEvent(new Event('afterprint'))")
    WebDriverWait(driver, PATIENCE).until(lambda _: driver.execute_script(WIDTHS) == before)
