"""A browser with short methods to look at the page."""

from collections.abc import Callable
from typing import Any

import pytest

webdriver = pytest.importorskip("selenium.webdriver")
from selenium.common.exceptions import TimeoutException  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.ui import WebDriverWait  # noqa: E402

PATIENCE = 300
USER = "bella-787"


class Browser:
    """A page in Chromium, with short methods to look at it."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, address: str) -> None:
        self.driver.get("about:blank")  # otherwise a change after # alone does not reload the page
        self.driver.get(address)

    def resize(self, width: int) -> None:
        """Be a phone or a desktop."""
        size = {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def all(self, selector: str) -> list[Any]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def texts(self, selector: str) -> list[str]:
        """Return the visible texts of all elements, in one script: the page may change any time."""
        return self.run(
            "return [...document.querySelectorAll(arguments[0])]"
            ".filter((e) => e.checkVisibility()).map((e) => e.innerText.trim())",
            selector,
        )

    def text(self, selector: str) -> str:
        return "\n".join(self.texts(selector))

    def run(self, script: str, *arguments: object) -> Any:
        return self.driver.execute_script(script, *arguments)

    def until(self, condition: Callable[[], Any]) -> Any:
        """Wait until a condition holds; on a timeout, show the text of the page."""
        try:
            return WebDriverWait(self.driver, PATIENCE, 0.05).until(lambda _: condition())
        except TimeoutException:
            said = self.run("return document.body.innerText")
        raise AssertionError(f"waited {PATIENCE} s; the page shows:\n{said}")

    def sees(self, selector: str, text: str = "") -> None:
        self.until(lambda: any(text in shown for shown in self.texts(selector)))

    def click(self, selector: str, text: str = "") -> None:
        self.sees(selector, text)
        next(e for e in self.all(selector) if e.is_displayed() and text in e.text).click()

    def type(self, selector: str, *keys: str) -> None:
        self.until(lambda: self.all(selector) and self.all(selector)[0].is_displayed())
        self.all(selector)[0].send_keys(*keys)

    def pick(self, search: str, text: str) -> None:
        """Type into a search field, wait for the results, and choose the first by keyboard."""
        self.type(search, text)
        self.sees("[role=option][aria-selected=true]", text)
        self.type(search, Keys.ENTER)

    def ranked(self, view: str) -> list[str]:
        """Return the items in the list of a view, once it is loaded."""
        self.until(
            lambda: self.run(f"return document.querySelector('#{view}').ariaBusy") == "false"
        )
        return self.texts(f"#{view} .ranked .title .name")

    def hand(self) -> Any:
        """Return the actions of the mouse."""
        return webdriver.ActionChains(self.driver)

    @property
    def hash(self) -> str:
        return self.run("return decodeURIComponent(location.hash)")


def refused(driver: Any) -> list[str]:
    return [entry["message"] for entry in driver.get_log("browser")]
