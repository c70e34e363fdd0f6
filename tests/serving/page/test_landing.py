"""The landing: five people with their lists, or popular items if users are not listed."""

import json
from pathlib import Path
from urllib.request import urlopen

from tests.serving.page.browser import USER, Browser, refused
from tests.serving.running import serving


def test_the_landing_shows_five_people_with_their_lists(browser: Browser, service: str) -> None:
    browser.open(service)
    browser.sees(".person")
    assert len(browser.texts(".person")) == 5
    with urlopen(f"{service}examples") as answer:
        examples = json.load(answer)
    assert browser.texts(".person .who") == [one["user"] for one in examples]
    for kind, key in ((".next", "recommended"), (".had", "items")):
        shown = [item["name"] for one in examples for item in one[key]]
        assert browser.texts(f".person {kind} .name") == shown
        assert len(shown) == 20
    assert "12,260 choices of 800 people among 400 items (demo)" in browser.text(".sentence")
    assert browser.text("#brief") == "ease on demo"
    assert refused(browser.driver) == []
    browser.click(".person .who", examples[2]["user"])
    browser.sees("#user-name", examples[2]["user"])
    assert browser.ranked("users")[:4] == [item["name"] for item in examples[2]["recommended"]]


def test_a_user_is_found_by_keyboard_and_recommendations_come_with_reasons(
    browser: Browser, service: str
) -> None:
    browser.open(service)
    browser.pick("#user-search", USER)
    browser.sees("#user-name", USER)
    assert browser.hash == f"#users?user={USER}"
    browser.sees("#has-title", "Has 5 items")
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
    assert refused(browser.driver) == []


def test_all_items_of_a_user_can_be_shown(browser: Browser, service: str) -> None:
    browser.open(f"{service}#users?user=amir-026")
    browser.sees("#has-title", "Has")
    count = int(browser.text("#has-title").split()[1])
    assert count > len(browser.texts("#has li")) == 12
    browser.click("#has-more")
    assert len(browser.texts("#has li")) == count
    assert browser.run("return document.activeElement.closest('li').matches(':nth-child(13)')")


def test_without_users_the_page_starts_with_popular_items(browser: Browser, bundle: Path) -> None:
    with serving(bundle, list_users=False) as address:
        with urlopen(f"{address}items?limit=20") as answer:
            popular = [item["name"] for item in json.load(answer)]
        browser.open(address)
        browser.sees("#history h1", "Build a list of your own")
        assert browser.hash == "#history"
        assert browser.texts("nav a") == ["Your list", "Model"]
        assert set(browser.ranked("history")) == set(popular)
        assert "people among 400 items" in browser.text("#history .sentence")
        assert refused(browser.driver) == []


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
