"""The page as people use it: the real service, a real browser, what stands on the screen."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import polars as pl
import pytest

from mgformer.recommender import Recommender
from mgformer.serving.app import PAGE
from mgformer.serving.limits import Limits
from tests.serving.running import serving

webdriver = pytest.importorskip("selenium.webdriver")
from selenium.common.exceptions import TimeoutException  # noqa: E402
from selenium.webdriver import ActionChains  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.ui import WebDriverWait  # noqa: E402

PATIENCE = 30
USER = "bella-787"
SECRET = "schlüssel"
MARKUP = "<img src=x onerror=document.title='owned'>/?#&,\"' "
LARGE = 2**62 + 1
"""An id that the numbers of JavaScript cannot hold."""


class Browser:
    """A page in Chromium, and short words for looking at it."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, address: str) -> None:
        self.driver.get("about:blank")  # else a change after # alone would not load anew
        self.driver.get(address)

    def all(self, selector: str) -> list[Any]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def texts(self, selector: str) -> list[str]:
        """What is written in all elements, read at once: the page may change in between."""
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
        """Wait for it, and say what is on the page if it does not come."""
        try:
            return WebDriverWait(self.driver, PATIENCE, 0.05).until(lambda _: condition())
        except TimeoutException:
            said = self.run("return document.body.innerText")
        raise AssertionError(f"it did not come; the page says:\n{said}")

    def sees(self, selector: str, text: str = "") -> None:
        self.until(lambda: any(text in shown for shown in self.texts(selector)))

    def click(self, selector: str, text: str = "") -> None:
        self.sees(selector, text)
        next(e for e in self.all(selector) if e.is_displayed() and text in e.text).click()

    def type(self, selector: str, *keys: str) -> None:
        self.until(lambda: self.all(selector) and self.all(selector)[0].is_displayed())
        self.all(selector)[0].send_keys(*keys)

    def pick(self, search: str, text: str) -> None:
        """Type into a search, wait for what is found, and take the first by keyboard."""
        self.type(search, text)
        self.sees("[role=option][aria-selected=true]", text)
        self.type(search, Keys.ENTER)

    def ranked(self, view: str) -> list[str]:
        """The items of a view's list, once it has come to rest."""
        self.until(
            lambda: self.run(f"return document.querySelector('#{view}').ariaBusy") == "false"
        )
        return self.texts(f"#{view} .ranked .title .name")

    @property
    def hash(self) -> str:
        return self.run("return decodeURIComponent(location.hash)")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page") / "run"
    recommender = Recommender.fit("demo", "ease")
    recommender.bundle.record["popularity"] = {"recall@20": 0.0123}
    recommender.save(folder)
    return folder


@pytest.fixture(scope="module")
def service(bundle: Path) -> Iterator[str]:
    with serving(bundle) as address:
        yield address


@pytest.fixture
def browser(driver: Any) -> Iterator[Browser]:
    """A clean page; whatever a test does, no script fails and no request leaves the host."""
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


def refused(driver: Any) -> list[str]:
    return [entry["message"] for entry in driver.get_log("browser")]


def test_a_user_is_found_by_keyboard_and_recommendations_come_with_reasons(
    browser: Browser, service: str
) -> None:
    browser.open(service)
    browser.sees("#some-users a")  # somewhere to begin
    browser.pick("#user-search", USER)
    browser.sees("#user-name", USER)
    assert browser.hash == f"#users?user={USER}"
    assert browser.text("#has-title") == "has 5 items"
    own = browser.texts("#has .name")
    assert "Offshore Sailing Jacket" in own
    assert "sailing-01" in browser.texts("#has .id")
    recommended = browser.ranked("users")
    assert len(recommended) == 20
    assert not set(own) & set(recommended)
    reasons = browser.texts("#users .ranked li:first-child .why .name")
    assert reasons
    assert set(reasons) <= set(own)
    assert browser.text("#users .ranked li:first-child .why").startswith("because of ")
    assert browser.text("#brief") == "ease on demo"
    assert refused(browser.driver) == []


def test_many_items_of_a_user_unfold(browser: Browser, service: str) -> None:
    browser.open(f"{service}#users?user=amir-026")
    browser.sees("#user-name", "amir-026")
    count = int(browser.text("#has-title").split()[1])
    assert count > len(browser.texts("#has li")) == 12
    browser.click("#has-more")
    assert len(browser.texts("#has li")) == count
    assert browser.run("return document.activeElement.closest('li').matches(':nth-child(13)')")


def test_of_very_many_items_the_first_are_shown(browser: Browser, tmp_path: Path) -> None:
    pairs = [("all", item) for item in range(1_010)] + [("some", item) for item in range(20)]
    table = pl.DataFrame(pairs, schema=["user", "item"], orient="row")
    Recommender.fit(table, "popularity").save(tmp_path / "run")
    with serving(tmp_path / "run") as address:
        browser.open(f"{address}#users?user=all")
        browser.sees("#has-title", "has 1,010 items")
        browser.click("#has-more", "Show the first 1,000")
        assert len(browser.texts("#has li")) == 1_000


def test_a_history_is_built_and_taken_apart_and_the_list_follows(
    browser: Browser, service: str
) -> None:
    browser.open(service)
    browser.click("nav a", "History")
    popular = browser.ranked("history")
    assert "that most people have" in browser.text("#history .status")
    browser.pick("#item-search", "Regatta Sea Chart")
    browser.sees("#have li", "sailing-02")
    browser.until(lambda: "Offshore Sailing Jacket" in browser.ranked("history")[:3])
    assert browser.ranked("history") != popular
    assert "by the items in the history" in browser.text("#history .status")
    assert set(browser.texts("#history .why .name")) == {"Regatta Sea Chart"}
    browser.click("#history .ranked li:first-child .add")
    browser.until(lambda: len(browser.texts("#have li")) == 2)
    assert browser.text("#count") == "2"
    assert browser.hash.startswith("#history?have=sailing-02&have=")
    browser.click("#have li:first-child .remove")
    browser.until(lambda: len(browser.texts("#have li")) == 1)
    assert browser.run("return document.activeElement.matches('#have .remove')")
    browser.click("#have .remove")
    browser.until(lambda: browser.ranked("history") == popular)
    assert browser.run("return document.activeElement.id") == "item-search"
    assert browser.text("#nothing").startswith("Nothing yet")
    assert refused(browser.driver) == []


def test_an_item_in_the_history_is_not_offered_again(browser: Browser, service: str) -> None:
    browser.open(f"{service}#history?have=sailing-02")
    browser.type("#item-search", "Regatta Sea Chart")
    browser.sees("#history .note", "No other item")
    browser.type("#item-search", Keys.ESCAPE)
    browser.until(lambda: browser.text("#history .popup") == "")


def hold_answers(browser: Browser, count: int) -> None:
    """Hold back the answer about a history of so many items, even if it is called off."""
    browser.run(
        """
        const [count, real] = [arguments[0], window.fetch];
        window.fetch = async (path, options) => {
          const body = options.body ? JSON.parse(options.body) : {};
          if (body.history?.length !== count) return real(path, options);
          const answer = await real(path, { ...options, signal: undefined });
          window.held = true;
          await new Promise((resolve) => (window.release = resolve));
          return answer;
        };
        """,
        count,
    )


def test_an_answer_that_comes_too_late_is_dropped(browser: Browser, service: str) -> None:
    browser.open(f"{service}#history")
    popular = browser.ranked("history")
    hold_answers(browser, 1)
    browser.pick("#item-search", "Regatta Sea Chart")
    browser.until(lambda: browser.run("return window.held"))
    browser.click("#have .remove")
    browser.until(lambda: browser.ranked("history") == popular)
    browser.run("window.release()")
    time.sleep(0.3)
    assert browser.ranked("history") == popular
    assert browser.texts("#have li") == []


def test_an_answer_about_the_history_before_does_not_bring_it_back(
    browser: Browser, service: str
) -> None:
    browser.open(f"{service}#history")
    browser.ranked("history")
    hold_answers(browser, 1)
    browser.pick("#item-search", "Regatta Sea Chart")
    browser.until(lambda: browser.run("return window.held"))
    # It comes while the page still waits for further changes before it asks about the new one.
    rows = browser.driver.execute_async_script(
        """
        document.querySelector("#have .remove").click();
        window.release();
        const rows = () => document.querySelectorAll("#have li").length;
        setTimeout(() => arguments[0](rows()), 75);
        """
    )
    assert rows == 0


def test_an_answer_does_not_take_the_button_from_under_a_finger(
    browser: Browser, service: str
) -> None:
    browser.open(f"{service}#history?have=alpine-01")
    browser.sees("#have .name", "Summit Ice Axe")
    hold_answers(browser, 2)
    browser.pick("#item-search", "Regatta Sea Chart")
    browser.until(lambda: browser.run("return window.held"))
    hand = ActionChains(browser.driver)
    hand.click_and_hold(browser.all("#have .remove")[0]).perform()
    browser.run("window.release()")
    browser.ranked("history")
    hand.reset_actions()
    hand.release().perform()
    browser.until(lambda: browser.texts("#have .name") == ["Regatta Sea Chart"])


def test_a_link_shows_names_and_says_which_items_are_unknown(
    browser: Browser, service: str
) -> None:
    browser.open(f"{service}#history?have=alpine-01&have=gone-1")
    browser.sees("#have .name", "Summit Ice Axe")
    browser.sees("#unknown", "Not known to the model, and left out: gone-1.")
    assert "unknown" in browser.text("#have li:last-child")
    browser.open(f"{service}#history?have=gone-1")
    browser.sees("#history .status", "The model knows no item of the history, so these are")
    assert len(browser.ranked("history")) == 20


def test_names_are_learned_however_short_lists_must_be(browser: Browser, bundle: Path) -> None:
    items = [f"{kind}-{number:02}" for kind in ("jazz", "sailing") for number in range(1, 13)]
    with serving(bundle, limits=Limits(k=5)) as address:
        browser.open(f"{address}#history?{'&'.join(f'have={item}' for item in items)}")
        browser.until(lambda: browser.texts("#have .id") == items)  # an id stands beside a name
        assert len(browser.ranked("history")) == 5


def test_names_of_ids_written_in_another_way_are_asked_for_in_vain_but_once(
    browser: Browser, tmp_path: Path
) -> None:
    pairs = [(user, (user + step) % 6) for user in range(12) for step in range(4)]
    table = pl.DataFrame(pairs, schema=["user", "item"], orient="row")
    Recommender.fit(table, "ease").save(tmp_path / "run")
    with serving(tmp_path / "run") as address:
        browser.open(f"{address}#history?have=03")
        browser.sees("#history .status", "by the items in the history")
        browser.ranked("history")
        assert browser.texts("#have .name") == ["03"]


def test_an_item_that_was_left_does_not_take_the_title(browser: Browser, service: str) -> None:
    browser.open(f"{service}#model")
    browser.sees("#facts", "ease")
    browser.run(
        """
        const real = window.fetch;
        window.fetch = async (path, options) => {
          const answer = await real(path, options);
          if (path !== "similar") return answer;
          await new Promise((resolve) => (window.release = resolve));
          return answer;
        };
        location.hash = "#item?item=sailing-02";
        """
    )
    browser.until(lambda: browser.run("return window.release !== undefined"))
    browser.click("nav a", "Model")
    browser.until(lambda: browser.driver.title == "Model · mgformer")
    browser.run("window.release()")
    browser.until(lambda: browser.run("return document.querySelector('#similar li') !== null"))
    assert browser.driver.title == "Model · mgformer"
    browser.driver.back()
    browser.until(lambda: browser.driver.title == "Regatta Sea Chart · mgformer")


def test_similar_items_from_anywhere_and_back(browser: Browser, service: str) -> None:
    browser.open(f"{service}#users?user={USER}")
    browser.click("#users .why .name", "Offshore Sailing Jacket")
    browser.sees("#item-title", "Offshore Sailing Jacket")
    assert browser.text("#item-line .id") == "sailing-01"
    similar = browser.ranked("item")
    assert len(similar) == 20
    assert browser.run("return document.activeElement.id") == "item-title"
    browser.click("#similar li:first-child .name")
    browser.sees("#item-title", similar[0])
    browser.until(lambda: browser.ranked("item")[:1] not in ([], similar[:1]))
    browser.click("#item-line .add")
    browser.sees("#item-line .add", "Added to history")
    assert browser.text("#count") == "1"
    for title in (similar[0], "Offshore Sailing Jacket"):
        browser.driver.back()
        browser.sees("#item-title", title)
    assert browser.texts("#count") == []
    browser.driver.back()
    browser.sees("#user-name", USER)
    browser.driver.forward()
    browser.sees("#item-title", "Offshore Sailing Jacket")
    assert refused(browser.driver) == []


def test_back_undoes_a_pick_and_a_link_opens_alone(browser: Browser, service: str) -> None:
    browser.open(f"{service}#history")
    popular = browser.ranked("history")
    browser.pick("#item-search", "Regatta Sea Chart")
    browser.until(lambda: browser.ranked("history") != popular)
    browser.driver.back()
    browser.until(lambda: browser.ranked("history") == popular)
    browser.open(f"{service}#item?item=sailing-02")  # the name is not in the address
    browser.sees("#item-title", "Regatta Sea Chart")
    browser.until(lambda: browser.driver.title == "Regatta Sea Chart · mgformer")


def test_the_model_card(browser: Browser, service: str) -> None:
    with urlopen(f"{service}model") as answer:
        card = json.load(answer)
    browser.open(f"{service}#model")
    browser.sees("#facts", card["fingerprint"])
    facts = dict(zip(browser.texts("#facts dt"), browser.texts("#facts dd"), strict=True))
    assert facts["Model"] == "ease"
    assert facts["Protocol"] == card["protocol"]
    assert (facts["Seed"], facts["Users"], facts["Items"]) == ("0", "800", "400")
    assert browser.texts("#figures thead th") == ["Metric", "Test", "Validation", "Popularity"]
    row = [f"{card[part]['recall@20']:.4f}" for part in ("test", "valid", "popularity")]
    assert ["Recall@20", *row] in [line.split("\t") for line in browser.texts("#figures tbody tr")]
    assert browser.texts("#config td") == []
    browser.click("#config summary")
    assert "model.l2\t250" in browser.texts("#config tr")


def test_who_or_what_is_unknown_is_said_in_words(browser: Browser, service: str) -> None:
    browser.open(f"{service}#users?user=nobody")
    browser.sees("#users .error", "There is no user “nobody”.")
    browser.click("#some-users a")
    browser.until(lambda: len(browser.ranked("users")) == 20)
    browser.open(f"{service}#item?item=nothing")
    browser.sees("#item .error", "The model does not know this item.")
    browser.open(service)
    browser.type("#user-search", "nobody")
    browser.sees("#users .note", "No user has this in the id.")


def test_a_failure_is_said_in_words_and_can_be_tried_again(browser: Browser, service: str) -> None:
    browser.open(f"{service}#history")
    browser.ranked("history")
    browser.run("window.real = fetch; window.fetch = () => Promise.reject(new TypeError('down'))")
    browser.click("#history .ranked .add")
    browser.sees("#history .error", "The service cannot be reached.")
    browser.run('window.fetch = async () => new Response(\'{"error": "full"}\', {status: 503})')
    browser.click("#history .error button")
    browser.sees("#history .error", "The service is busy.")
    browser.run("window.fetch = window.real")
    browser.click("#history .error button")
    browser.sees("#history .status", "by the items in the history")


def test_the_key_is_asked_for_once_and_kept_for_the_tab(browser: Browser, bundle: Path) -> None:
    with serving(bundle, api_key=SECRET) as address:
        browser.open(f"{address}#users?user={USER}")
        browser.sees("#key-title", "API key")
        browser.type("#key-value", Keys.ESCAPE)
        browser.sees("#users .error", "The service answers only with an API key.")
        browser.click("nav a", "Model")
        browser.sees("#model .error", "The service answers only with an API key.")
        assert browser.texts("#key-title") == []  # declined is declined, until asked for
        browser.click("#model .error button")
        browser.type("#key-value", "wrong", Keys.ENTER)
        browser.sees("#key.refused p", "The key was not accepted.")
        browser.type("#key-value", SECRET, Keys.ENTER)
        browser.sees("#facts", "ease")
        browser.driver.refresh()
        browser.sees("#facts", "ease")
        browser.open(f"{address}#users?user={USER}")
        browser.until(lambda: len(browser.ranked("users")) == 20)
        assert browser.texts("#key-title") == []
        assert browser.run("return [localStorage.length, document.cookie]") == [0, ""]


def test_hostile_and_very_large_ids_are_shown_as_they_are(browser: Browser, tmp_path: Path) -> None:
    items = [f"{MARKUP}{number}" for number in range(6)]
    pairs = [(LARGE + user, items[(user + step) % 6]) for user in range(12) for step in range(4)]
    table = pl.DataFrame(pairs, schema=["user", "item"], orient="row")
    Recommender.fit(table, "ease").save(tmp_path / "run")
    with serving(tmp_path / "run") as address:
        browser.open(address)
        browser.pick("#user-search", str(LARGE))
        browser.sees("#user-name", str(LARGE))
        own, recommended = browser.texts("#has .name"), browser.ranked("users")
        assert recommended
        assert set(own) | set(recommended) <= {item.strip() for item in items}
        assert browser.texts("#users .id") == []  # an id that is the name is not said twice
        browser.click("#users .ranked .add")
        browser.click("#users .ranked .title .name")
        browser.sees("#item-title", recommended[0])
        assert browser.ranked("item")
        browser.click("nav a", "History")
        browser.sees("#have .name", recommended[0])
        browser.sees("#history .status", "by the items in the history")
        assert browser.all("main img, #history script") == []
        assert "owned" not in browser.driver.title


@pytest.mark.parametrize("width", [360, 1280])
def test_nothing_is_wider_than_the_screen(browser: Browser, service: str, width: int) -> None:
    browser.driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 740, "deviceScaleFactor": 1, "mobile": width < 600},
    )
    for view in ("users", f"users?user={USER}", "history?have=gone-1", "item?item=sailing-02"):
        browser.open(f"{service}#{view}")
        browser.ranked(view.split("?")[0])
        assert browser.run("return document.documentElement.scrollWidth") <= width
    browser.open(f"{service}#model")
    browser.click("#more-figures summary")
    browser.click("#config summary")
    assert browser.run("return document.documentElement.scrollWidth") <= width


def test_fields_and_buttons_have_names(browser: Browser, service: str) -> None:
    for view in (f"users?user={USER}", "history?have=sailing-02", "item?item=sailing-02", "model"):
        browser.open(f"{service}#{view}")
        browser.ranked(view.split("?")[0])
        shown = [e for e in browser.all("a[href], button, input, summary") if e.is_displayed()]
        assert all(element.accessible_name for element in shown)
        assert len(browser.texts("h1")) == 1
    assert browser.text("nav a[aria-current=page]") == "Model"


def test_no_markup_is_made_from_text() -> None:
    for file in PAGE.glob("*.js"):
        source = file.read_text()
        for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
            assert way not in source, f"{file.name} uses {way}"
