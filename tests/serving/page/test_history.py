"""The history view: add and remove items, and the list updates."""

import time
from pathlib import Path

import polars as pl

from mgformer.recommend.recommender import Recommender
from mgformer.serving.limits import Limits
from tests.serving.page.browser import Browser, Keys, refused
from tests.serving.running import serving


def test_items_are_added_and_removed_and_the_list_updates(browser: Browser, service: str) -> None:
    browser.open(service)
    browser.click("nav a", "Your list")
    popular = browser.ranked("history")
    assert "that are most popular" in browser.text("#history .said")
    browser.pick("#item-search", "Regatta Sea Chart")
    browser.sees("#history .pick", "Regatta Sea Chart")
    browser.until(lambda: "Offshore Sailing Jacket" in browser.ranked("history")[:3])
    assert browser.ranked("history") != popular
    assert "based on the items in the history" in browser.text("#history .said")
    assert set(browser.texts("#history .why .name")) == {"Regatta Sea Chart"}
    browser.click("#history .ranked li:first-child .like")
    browser.until(lambda: len(browser.texts("#history .pick")) == 2)
    assert browser.text("#count") == "2"
    assert browser.hash.startswith("#history?have=sailing-02&have=")
    browser.click("#history .pick:first-child .remove")
    browser.until(lambda: len(browser.texts("#history .pick")) == 1)
    assert browser.run("return document.activeElement.matches('#history .pick .remove')")
    browser.click("#history .pick .remove")
    browser.until(lambda: browser.ranked("history") == popular)
    assert browser.run("return document.activeElement.matches('#history .filter')")
    assert refused(browser.driver) == []


def test_an_item_in_the_history_is_not_offered_again(browser: Browser, service: str) -> None:
    browser.open(f"{service}#history?have=sailing-02")
    browser.type("#item-search", "Regatta Sea Chart")
    browser.sees("#history .note", "No other item matches")
    browser.type("#item-search", Keys.ESCAPE)
    browser.until(lambda: browser.text("#history .popup") == "")


def hold_answers(browser: Browser, count: int) -> None:
    """Delay the answer for a history of `count` items, even if the request is aborted."""
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


def test_a_late_answer_is_dropped(browser: Browser, service: str) -> None:
    browser.open(f"{service}#history")
    popular = browser.ranked("history")
    hold_answers(browser, 1)
    browser.pick("#item-search", "Regatta Sea Chart")
    browser.until(lambda: browser.run("return window.held"))
    browser.click("#history .pick .remove")
    browser.until(lambda: browser.ranked("history") == popular)
    browser.run("window.release()")
    time.sleep(0.3)
    assert browser.ranked("history") == popular
    assert browser.texts("#history .pick") == []


def test_a_late_answer_does_not_restore_a_removed_item(browser: Browser, service: str) -> None:
    browser.open(f"{service}#history")
    browser.ranked("history")
    hold_answers(browser, 1)
    browser.pick("#item-search", "Regatta Sea Chart")
    browser.until(lambda: browser.run("return window.held"))
    # The answer arrives while the page waits for further changes before its next request.
    rows = browser.driver.execute_async_script(
        """
        document.querySelector("#history .pick .remove").click();
        window.release();
        const rows = () => document.querySelectorAll("#history .pick").length;
        setTimeout(() => arguments[0](rows()), 75);
        """
    )
    assert rows == 0


def test_an_answer_does_not_replace_a_pressed_button(browser: Browser, service: str) -> None:
    browser.open(f"{service}#history?have=alpine-01")
    browser.sees("#history .pick .name", "Summit Ice Axe")
    hold_answers(browser, 2)
    browser.pick("#item-search", "Regatta Sea Chart")
    browser.until(lambda: browser.run("return window.held"))
    hand = browser.hand()
    hand.click_and_hold(browser.all("#history .pick .remove")[0]).perform()
    browser.run("window.release()")
    browser.ranked("history")
    hand.reset_actions()
    hand.release().perform()
    browser.until(lambda: browser.texts("#history .pick .name") == ["Regatta Sea Chart"])


def test_a_link_shows_names_and_says_which_items_are_unknown(
    browser: Browser, service: str
) -> None:
    browser.open(f"{service}#history?have=alpine-01&have=gone-1")
    browser.sees("#history .pick .name", "Summit Ice Axe")
    browser.sees("#unknown", "The model does not know, and ignores: gone-1.")
    assert browser.texts("#history .pick:has(.tag) .name") == ["gone-1"]
    browser.open(f"{service}#history?have=gone-1")
    browser.sees("#history .said", "The model knows none of these items, so these are")
    assert len(browser.ranked("history")) == 20


def test_names_are_loaded_even_if_lists_are_short(browser: Browser, bundle: Path) -> None:
    items = [f"{kind}-{number:02}" for kind in ("jazz", "sailing") for number in range(1, 13)]
    with serving(bundle, limits=Limits(k=5)) as address:
        browser.open(f"{address}#history?{'&'.join(f'have={item}' for item in items)}")
        browser.until(lambda: len(set(browser.texts("#history .pick .name")) - set(items)) == 24)
        assert len(browser.ranked("history")) == 5


def test_ids_that_the_service_writes_differently_do_not_loop(
    browser: Browser, tmp_path: Path
) -> None:
    pairs = [(user, (user + step) % 6) for user in range(12) for step in range(4)]
    table = pl.DataFrame(pairs, schema=["user", "item"], orient="row")
    Recommender.fit(table, "ease").save(tmp_path / "run")
    with serving(tmp_path / "run") as address:
        browser.open(f"{address}#history?have=03")
        browser.sees("#history .said", "based on the items in the history")
        browser.ranked("history")
        assert browser.texts("#history .pick .name") == ["03"]
