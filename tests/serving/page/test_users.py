"""The users view: search, the items of a user, recommendations with reasons."""

from pathlib import Path

import polars as pl

from mgformer.recommend.recommender import Recommender
from tests.serving.page.browser import USER, Browser, refused
from tests.serving.running import serving


def test_a_user_is_found_by_keyboard_and_recommendations_come_with_reasons(
    browser: Browser, service: str
) -> None:
    browser.open(service)
    browser.sees("#some-users a")  # examples to start with
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


def test_all_items_of_a_user_can_be_shown(browser: Browser, service: str) -> None:
    browser.open(f"{service}#users?user=amir-026")
    browser.sees("#user-name", "amir-026")
    count = int(browser.text("#has-title").split()[1])
    assert count > len(browser.texts("#has li")) == 12
    browser.click("#has-more")
    assert len(browser.texts("#has li")) == count
    assert browser.run("return document.activeElement.closest('li').matches(':nth-child(13)')")


def test_at_most_a_thousand_items_of_a_user_are_shown(browser: Browser, tmp_path: Path) -> None:
    pairs = [("all", item) for item in range(1_010)] + [("some", item) for item in range(20)]
    table = pl.DataFrame(pairs, schema=["user", "item"], orient="row")
    Recommender.fit(table, "popularity").save(tmp_path / "run")
    with serving(tmp_path / "run") as address:
        browser.open(f"{address}#users?user=all")
        browser.sees("#has-title", "has 1,010 items")
        browser.click("#has-more", "Show the first 1,000")
        assert len(browser.texts("#has li")) == 1_000


def test_without_users_the_page_starts_with_the_history(browser: Browser, bundle: Path) -> None:
    with serving(bundle, list_users=False) as address:
        browser.open(address)
        browser.until(lambda: browser.hash == "#history")
        browser.sees("#history h1", "Recommendations for a history")
        assert browser.texts("nav a") == ["History", "Model"]
        assert len(browser.ranked("history")) > 0


def test_the_page_cannot_be_framed(browser: Browser, service: str) -> None:
    browser.open(service)
    browser.run(
        "const frame = document.createElement('iframe'); frame.src = arguments[0];"
        "frame.onload = () => (window.framed = true); document.body.append(frame)",
        f"{service}page/icon.svg",
    )
    browser.until(lambda: browser.run("return window.framed"))
    # Chromium shows its own page of another origin in place of the refused one.
    assert browser.run("return document.querySelector('iframe').contentDocument") is None
    refused(browser.driver)
    browser.driver.get_log("performance")  # has the address of that page
    browser.open(service)
