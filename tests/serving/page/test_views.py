"""The item and model views, errors, the API key, layout and accessibility."""

import json
from pathlib import Path
from urllib.request import urlopen

import polars as pl
import pytest

from mgformer.recommend.recommender import Recommender
from mgformer.serving.app import PAGE
from tests.command import succeed
from tests.serving.page.browser import USER, Browser, Keys, refused
from tests.serving.running import serving

SECRET = "schlüssel"
MARKUP = "<img src=x onerror=document.title='owned'>/?#&,\"' "
LARGE = 2**62 + 1
"""An id that does not fit into a JavaScript number."""


def test_a_late_item_does_not_change_the_title_of_another_view(
    browser: Browser, service: str
) -> None:
    browser.open(f"{service}#model")
    browser.sees("#model-title", "ease")
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
    browser.until(lambda: browser.run("return document.querySelector('#item .ranked li') !== null"))
    assert browser.driver.title == "Model · mgformer"
    browser.driver.back()
    browser.until(lambda: browser.driver.title == "Regatta Sea Chart · mgformer")


def test_similar_items_and_back(browser: Browser, service: str) -> None:
    browser.open(f"{service}#users?user={USER}")
    browser.click("#users .why .name", "Offshore Sailing Jacket")
    browser.sees("#item-title", "Offshore Sailing Jacket")
    assert browser.text("#item-line .id") == "sailing-01"
    similar = browser.ranked("item")
    assert len(similar) == 20
    assert browser.run("return document.activeElement.id") == "item-title"
    browser.click("#item .ranked li:first-child .name")
    browser.sees("#item-title", similar[0])
    browser.until(lambda: browser.ranked("item")[:1] not in ([], similar[:1]))
    browser.click("#item-line .like")
    browser.sees("#item .pick.like", similar[0])
    assert "&like=" in browser.hash  # it came from a user, so it adds to the user's items
    for title in (similar[0], "Offshore Sailing Jacket"):
        browser.driver.back()
        browser.sees("#item-title", title)
    assert "&like=" not in browser.hash
    browser.driver.back()
    browser.sees("#user-name", USER)
    browser.driver.forward()
    browser.sees("#item-title", "Offshore Sailing Jacket")
    assert refused(browser.driver) == []


def test_back_removes_an_added_item_and_links_can_be_opened(browser: Browser, service: str) -> None:
    browser.open(f"{service}#history")
    popular = browser.ranked("history")
    browser.pick("#item-search", "Regatta Sea Chart")
    browser.until(lambda: browser.ranked("history") != popular)
    browser.driver.back()
    browser.until(lambda: browser.ranked("history") == popular)
    browser.open(f"{service}#item?item=sailing-02")  # the name is not in the address
    browser.sees("#item-title", "Regatta Sea Chart")
    browser.until(lambda: browser.driver.title == "Regatta Sea Chart · mgformer")


def test_the_model_tab_shows_figures_and_facts(
    browser: Browser, service: str, tmp_path: Path
) -> None:
    with urlopen(f"{service}model") as answer:
        card = json.load(answer)
    browser.open(f"{service}#model")
    browser.sees("#model-title", "ease")
    assert browser.text("#model-about") == card["about"]
    tiles = [tile.split("\n") for tile in browser.texts("#tiles li")]
    assert tiles[:3] == [["800", "people"], ["400", "items"], ["12,260", "choices"]]
    bars = browser.texts("#quality-chart .row:first-child .value")
    assert bars == [f"{card[part]['recall@20']:.3f}" for part in ("test", "popularity")]
    lengths = browser.run(
        "return [...document.querySelectorAll('#quality-chart .row:first-child .line')]"
        ".map((e) => e.clientWidth)"
    )
    wanted = card["popularity"]["recall@20"] / card["test"]["recall@20"]
    assert lengths[1] / lengths[0] == pytest.approx(wanted, abs=0.02)
    hits = {name: figures["recall@20"] for name, figures in card["groups"].items()}
    shares = [hits[name] / sum(hits.values()) for name in ("popular", "normal", "unpopular")]
    assert browser.texts("#groups-chart b") == [f"{100 * share:.0f}%" for share in shares]
    assert browser.texts("#training") == []  # ease has no epochs
    facts = dict(zip(browser.texts("#facts dt"), browser.texts("#facts dd"), strict=True))
    assert facts["Protocol"] == card["protocol"]
    assert facts["Bundle"] == card["bundle"][:8]
    assert card["bundle"] not in browser.text("#model")
    assert card["fingerprint"] not in browser.text("#model")
    browser.click("#more-figures summary")
    assert browser.texts("#more-figures thead th") == ["Metric", "Test", "Validation", "Popularity"]
    row = [f"{card[part]['recall@20']:.4f}" for part in ("test", "valid", "popularity")]
    assert ["Recall@20", *row] in [
        line.split("\t") for line in browser.texts("#more-figures tbody tr")
    ]
    browser.click("#config summary")
    assert "model.l2\t250" in browser.texts("#config tr")


def test_the_model_tab_shows_how_the_model_learned(browser: Browser, tmp_path: Path) -> None:
    out = str(tmp_path / "run")
    succeed("train", "demo", "--model", "bprmf", "--set", "train.epochs=3", "--out", out)
    with serving(tmp_path / "run") as address:
        with urlopen(f"{address}model") as answer:
            card = json.load(answer)
        assert [entry["epoch"] for entry in card["curve"]] == [1, 2, 3]
        browser.open(f"{address}#model")
        browser.sees("#training", "NDCG@20 on validation")
        said = browser.run("return document.querySelector('#training svg').ariaLabel")
        assert f"epoch {card['epochs']} was chosen" in said
        assert browser.all("#training .best")


def test_unknown_users_and_items_get_a_message(browser: Browser, service: str) -> None:
    browser.open(f"{service}#users?user=nobody")
    browser.sees("#users .error", "There is no user “nobody”.")
    browser.click(".person .who")
    browser.until(lambda: len(browser.ranked("users")) == 20)
    browser.open(f"{service}#item?item=nothing")
    browser.sees("#item .error", "The model does not know this item.")
    browser.open(service)
    browser.type("#user-search", "nobody")
    browser.sees("#users .note", "No user matches.")


def test_a_failed_request_gets_a_message_and_can_be_repeated(
    browser: Browser, service: str
) -> None:
    browser.open(f"{service}#history")
    browser.ranked("history")
    browser.run("window.real = fetch; window.fetch = () => Promise.reject(new TypeError('down'))")
    browser.click("#history .ranked .like")
    browser.sees("#history .error", "The service cannot be reached.")
    browser.run('window.fetch = async () => new Response(\'{"error": "full"}\', {status: 503})')
    browser.click("#history .error button")
    browser.sees("#history .error", "The service is busy.")
    browser.run("window.fetch = window.real")
    browser.click("#history .error button")
    browser.sees("#history .said", "based on the items in the history")


def test_the_api_key_is_asked_once_and_kept_for_the_tab(browser: Browser, bundle: Path) -> None:
    with serving(bundle, api_key=SECRET) as address:
        browser.open(f"{address}#users?user={USER}")
        browser.sees("#key-title", "API key")
        browser.type("#key-value", Keys.ESCAPE)
        browser.sees("#users .error", "The service needs an API key.")
        browser.click("nav a", "Model")
        browser.sees("#model .error", "The service needs an API key.")
        assert (
            browser.texts("#key-title") == []
        )  # after Escape the dialog stays closed until the user tries again
        browser.click("#model .error button")
        browser.type("#key-value", "wrong", Keys.ENTER)
        browser.sees("#key.refused p", "The key was not accepted.")
        browser.type("#key-value", SECRET, Keys.ENTER)
        browser.sees("#model-title", "ease")
        browser.driver.refresh()
        browser.sees("#model-title", "ease")
        browser.open(f"{address}#users?user={USER}")
        browser.until(lambda: len(browser.ranked("users")) == 20)
        assert browser.texts("#key-title") == []
        assert browser.run("return [localStorage.length, document.cookie]") == [0, ""]


def test_markup_and_large_integers_in_ids_are_shown_unchanged(
    browser: Browser, tmp_path: Path
) -> None:
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
        assert browser.texts("#users span.id") == []  # without names, ids are shown once
        browser.click("#users .ranked .title .name")
        browser.sees("#item-title", recommended[0])
        assert browser.ranked("item")
        browser.click("nav a", "Your list")
        browser.click("#history .ranked .like")
        browser.sees("#history .pick.like .name", MARKUP.split("/")[0])
        browser.sees("#history .said", "based on the items in the history")
        assert browser.all("main img, #history script") == []
        assert "owned" not in browser.driver.title


@pytest.mark.parametrize("width", [360, 1280])
def test_nothing_is_wider_than_the_screen(browser: Browser, service: str, width: int) -> None:
    browser.resize(width)
    for view in (
        "users",
        "users?user=nobody",
        f"users?user={USER}",
        "history?have=gone-1",
        "item?item=sailing-02",
    ):
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
