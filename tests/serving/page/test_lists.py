"""What a list can do: like, hide, length, filter, two models, curl, bars; phones; any script."""

import json
import shlex
from pathlib import Path
from urllib.request import Request, urlopen

import polars as pl
import pytest

from mgformer.recommend.recommender import Recommender
from mgformer.serving.limits import Limits
from tests.command import succeed
from tests.serving.page.browser import USER, Browser, Keys, refused
from tests.serving.running import serving

PERSON = f"#users?user={USER}"


def test_like_and_hide_change_the_list_and_a_link_reproduces_it(
    browser: Browser, service: str
) -> None:
    browser.open(service + PERSON)
    before = browser.ranked("users")
    browser.click("#users .ranked li:first-child .like")
    browser.sees("#users .pick.like .name", before[0])
    browser.until(lambda: before[0] not in browser.ranked("users"))
    liked = browser.ranked("users")
    assert "based on the items this user has" in browser.text("#users .said")
    assert before[0] in browser.texts("#users .why .name")  # it counts as a reason now
    browser.click("#users .ranked li:nth-child(2) .hide")
    browser.sees("#users .pick.hide .name", liked[1])
    browser.until(lambda: len(browser.ranked("users")) == 20)
    both = browser.ranked("users")
    assert liked[1] not in both
    assert both[:1] + both[1:19] == liked[:1] + liked[2:20]
    link = browser.driver.current_url
    browser.open(link)
    assert browser.ranked("users") == both
    browser.sees("#users .pick.like .name", before[0])
    browser.sees("#users .pick.hide .name", liked[1])
    browser.click("#users .pick .remove")
    browser.until(lambda: len(browser.texts("#users .pick")) == 1)
    browser.click("#users .pick .remove")
    browser.until(lambda: browser.ranked("users") == before)
    assert browser.hash == PERSON
    assert refused(browser.driver) == []


def test_a_hidden_row_leaves_before_the_service_answers_and_focus_stays(
    browser: Browser, service: str
) -> None:
    browser.open(service + PERSON)
    first, second = browser.ranked("users")[:2]
    browser.run("window.fetch = () => new Promise(() => {})")
    browser.click("#users .ranked li:first-child .hide")
    assert browser.texts("#users .ranked .title .name")[0] == second
    browser.driver.refresh()
    assert browser.ranked("users")[0] == second
    browser.driver.back()
    browser.until(lambda: browser.ranked("users")[0] == first)
    browser.run("document.querySelector('#users .ranked li:nth-child(3) .like').focus()")
    browser.hand().send_keys(Keys.ENTER).perform()
    browser.until(lambda: len(browser.texts("#users .pick")) == 1)
    browser.until(lambda: "items this user has" in browser.text("#users .said"))
    focused = "return document.activeElement.matches('#users .ranked li:nth-child(3) .like')"
    assert browser.run(focused)


def test_the_length_of_a_list(browser: Browser, service: str, bundle: Path) -> None:
    browser.open(service + PERSON)
    assert len(browser.ranked("users")) == 20
    browser.run(
        "const k = document.querySelector('#users select'); k.value = '50';"
        "k.dispatchEvent(new Event('change'))"
    )
    browser.until(lambda: len(browser.ranked("users")) == 50)
    assert browser.hash.endswith("&k=50")
    with serving(bundle, limits=Limits(k=10)) as address:
        browser.open(f"{address}{PERSON}&k=50")
        assert len(browser.ranked("users")) == 10
        assert browser.run(
            "return [...document.querySelector('#users select').options].map((o) => o.value)"
        ) == ["5", "10"]


def test_the_filter_ignores_case_and_offers_a_longer_list(browser: Browser, service: str) -> None:
    browser.open(service + PERSON)
    names = browser.ranked("users")
    matching = [name for name in names if "spinnaker" in name.lower()]
    assert 0 < len(matching) < 20
    browser.type("#users .filter", "SPÍNNAKER")
    browser.until(lambda: browser.ranked("users") == matching)
    browser.sees("#users .matches", f"{len(matching)} of 20 items match “SPÍNNAKER”.")
    browser.click("#users .matches button", "Look among the best 200")
    browser.until(lambda: len(browser.ranked("users")) > len(matching))
    assert all("spinnaker" in name.lower() for name in browser.ranked("users"))


def test_the_command_of_curl_gives_the_list(browser: Browser, tmp_path: Path) -> None:
    users, items = ['o\'neil "x"', "b", "c", "d"], [f"it's {n} \\ $HOME `é`" for n in range(8)]
    pairs = [(user, items[(at + step) % 8]) for at, user in enumerate(users) for step in range(4)]
    table = pl.DataFrame(pairs, schema=["user", "item"], orient="row")
    Recommender.fit(table, "ease").save(tmp_path / "run")
    with serving(tmp_path / "run") as address:
        browser.open(address)
        browser.click(".person .who", users[0])
        browser.click("#users .ranked li:first-child .hide")
        browser.sees("#users .pick.hide")
        shown = browser.ranked("users")
        browser.click("#users .copy")
        browser.sees("#users .curl", "curl ")
        command, url, *options = shlex.split(browser.text("#users .curl").replace("\\\n", ""))
        assert (command, options[0::2]) == ("curl", ["-H", "-d"])
        header, body = options[1::2]
        name, value = header.split(": ")
        request = Request(url, body.encode(), {name: value})
        with urlopen(request) as answer:
            found = json.load(answer)
        assert found["user"] == users[0]
        assert shown
        assert [one["item"] for one in found["items"]] == shown


@pytest.fixture(scope="module")
def pair(bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    other = tmp_path_factory.mktemp("other") / "run"
    Recommender.fit("demo", "popularity").save(other)
    return {"first": bundle, "other": other}


@pytest.mark.parametrize("width", [390, 1280])
def test_two_models_side_by_side(browser: Browser, pair: dict[str, Path], width: int) -> None:
    browser.resize(width)
    with serving(pair) as address:
        browser.open(address + PERSON)
        alone = browser.ranked("users")
        browser.run(
            "const vs = [...document.querySelectorAll('#users select')].findLast("
            "one => [...one.options].some(option => option.value === 'other'));"
            "vs.value = 'other';"
            "vs.dispatchEvent(new Event('change'))"
        )
        browser.sees("#users .list h3", "other")
        assert browser.texts("#users .list h3") == ["first", "other"]
        left = browser.texts("#users .list:first-child .title .name")
        right = browser.texts("#users .list:last-child .title .name")
        assert left == alone
        assert len(right) == 20
        both = set(left) & set(right)
        browser.sees("#users .said", f"first and other agree on {len(both)} of 20 items.")
        places = browser.texts("#users .list:first-child .standing")
        assert places == [
            f"also in other, at {right.index(name) + 1}" if name in both else "not in other"
            for name in left
        ]
        tops = browser.run(
            "return [...document.querySelectorAll('#users .ranked')]"
            ".map((e) => e.getBoundingClientRect().top)"
        )
        assert tops[0] == tops[1]  # side by side, on a phone too
        browser.open(browser.driver.current_url.replace("vs=other", "model=other"))
        browser.until(lambda: browser.ranked("users") == right)
        browser.click("nav a", "Model")
        browser.sees("#model-title", "popularity")


@pytest.mark.parametrize("hash", [f"{PERSON}&like=jazz-01&like=jazz-02&hide=jazz-03", "#history"])
def test_on_a_phone_the_list_is_near_the_top(browser: Browser, service: str, hash: str) -> None:
    browser.resize(390)
    browser.open(service + hash)
    assert browser.ranked(hash[1:].split("?")[0])
    top = "return [...document.querySelectorAll('.ranked')].find((e) => e.checkVisibility())"
    assert browser.run(f"{top}.getBoundingClientRect().top") < 500
    assert browser.run("return document.documentElement.scrollWidth") == 390


def test_names_of_any_script_keep_their_direction_and_ids_stay_whole(
    browser: Browser, tmp_path: Path
) -> None:
    names = ["ألف ليلة وليلة", "千と千尋の神隠し", "Dune", "قصر الشوق", "もののけ姫", "Solaris"]
    long = "7f3a2c91-11aa-4c3e-9b1e-0123456789ab-7f3a2c91-11aa"
    items = [f"{long}-{number}" for number in range(6)]
    users = ["عمر", "さくら", long, *"abcdef"]
    pairs = [(user, items[(at + step) % 6]) for at, user in enumerate(users) for step in range(3)]
    pl.DataFrame(pairs, schema=["user", "item"], orient="row").write_csv(tmp_path / "pairs.csv")
    pl.DataFrame({"item": items, "name": names}).write_csv(tmp_path / "names.csv")
    named = ("--set", f"data.items={tmp_path / 'names.csv'}")
    pairs_file, out = str(tmp_path / "pairs.csv"), str(tmp_path / "run")
    succeed("train", pairs_file, "--model", "ease", *named, "--out", out)
    browser.resize(390)
    with serving(tmp_path / "run") as address:
        for user in (users[0], long):
            browser.open(address)
            browser.pick("#user-search", user)
            browser.sees("#user-name", user)
            assert browser.ranked("users")
            found = browser.run(
                "return [...document.querySelectorAll('#user .name, #user-name')].map((e) =>"
                " [e.innerText, getComputedStyle(e).direction])"
            )
            assert len(found) > 5
            for text, direction in found:
                assert direction == ("rtl" if "\u0600" <= text[0] <= "\u06ff" else "ltr"), text
            heights = browser.run(
                "return [...document.querySelectorAll('#user .id')].map((e) => e.clientHeight)"
            )
            assert max(heights) < 45  # one line each
            assert browser.run("return document.documentElement.scrollWidth") == 390


def test_bars_mean_something_for_negative_scores(browser: Browser, service: str) -> None:
    browser.open(service)
    ends = browser.driver.execute_async_script(
        """
        const done = arguments[0];
        import("/page/bars.js").then(({ scaleOf }) => done(
          [[4, 2, 0], [3, -1], [-1, -2, -3], [0.5]].map((scores) => {
            const { part, zero, words } = scaleOf(scores);
            return [scores.map(part), zero, words];
          })));
        """
    )
    positive, mixed, negative, single = ends
    assert positive[:2] == [[[0, 1], [0, 0.5], [0, 0]], None]
    assert mixed[:2] == [[[0.25, 1], [0, 0.25]], 0.25]
    lengths = [end for _, end in negative[0]]
    assert lengths[0] == 1
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[-1] > 0
    assert "-3" in negative[2]
    assert single[0] == [[0, 1]]


def test_likes_of_a_user_are_feedback_if_the_service_takes_it(
    browser: Browser, bundle: Path, tmp_path: Path
) -> None:
    with serving(bundle, feedback=tmp_path / "log") as address:
        browser.open(address + PERSON)
        browser.ranked("users")
        liked = browser.run("return document.querySelector('#users .ranked li').dataset.id")
        browser.click("#users .ranked li:nth-child(2) .hide")
        browser.sees("#users .pick.hide")
        browser.until(lambda: len(browser.ranked("users")) == 20)
        browser.click(f"#users .ranked li[data-id={liked}] .like")
        browser.sees("#users .pick.like")
        browser.until(lambda: "items this user has" in browser.text("#users .said"))
        browser.open(f"{address}#history")  # a list without a user
        browser.ranked("history")
        browser.click("#history .ranked .like")
        browser.until(lambda: "items in the history" in browser.text("#history .said"))
        assert refused(browser.driver) == []
    logs = list((tmp_path / "log").glob("feedback-*.jsonl"))
    stored = [json.loads(line) for log in logs for line in log.read_text().splitlines()]
    assert [(one["user"], one["item"]) for one in stored] == [(USER, liked)]


def test_filters_are_chips_and_attributes_stand_beside_items(
    browser: Browser, service: str
) -> None:
    browser.open(service + PERSON)
    whole = browser.ranked("users")
    browser.sees("#users .ranked li:first-child .facts")
    assert set(browser.texts("#users .facts")) == {"sailing"}
    browser.sees("#users .attribute")
    browser.all("#users .attribute option[value=jazz]")[0].click()  # not visible by itself
    browser.sees("#users .pick.only .name", "jazz")
    browser.until(lambda: set(browser.texts("#users .facts")) == {"jazz"})
    assert "only=taste:jazz" in browser.hash
    jazz = browser.ranked("users")
    browser.open(browser.driver.current_url)
    assert browser.ranked("users") == jazz
    browser.click("#users .pick.only .remove")
    browser.until(lambda: browser.ranked("users") == whole)
    assert browser.hash == PERSON
