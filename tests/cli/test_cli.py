"""The command line as people use it: real files, what is printed where, exit codes."""

import json
import shutil
import subprocess
import sys
from functools import partialmethod
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from mgformer.recommend import lists
from mgformer.recommend.recommender import Recommender
from mgformer.runs.bundle_files import load_bundle
from tests.command import Done, assert_one_line, mgformer, succeed
from tests.demo_users import SHOWCASE

RATIO = "--set", "split.kind=ratio"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli")
    succeed("train", "demo", "--model", "ease", *RATIO, "--out", folder / "run")
    return folder / "run"


def test_train_prints_one_json_object_and_beats_popularity(tmp_path: Path) -> None:
    to = "--out", tmp_path / "run", "--json"
    done = mgformer("train", "--model", "ease", "--seed", 1, *RATIO, *to)
    result = json.loads(done.stdout)
    assert result["model"] == "ease"
    assert result["dataset"] == "demo"
    assert result["seed"] == 1
    assert result["protocol"].startswith("ratio: ")
    assert result["run"] == str(tmp_path / "run")
    assert set(result["seconds"]) == {"prepare", "train", "evaluate"}
    assert {"epochs", "fingerprint", "valid", "groups"} <= set(result)
    assert result["test"]["recall@20"] > 3 * result["popularity"]["recall@20"] > 0
    again = json.loads(succeed("evaluate", tmp_path / "run", "--json"))
    assert again["test"] == result["test"]
    assert again["valid"] == result["valid"]


def test_train_for_people_names_protocol_and_popularity(run: Path) -> None:
    shown = succeed("evaluate", run)
    assert "ease on demo" in shown
    assert "protocol: ratio" in shown
    assert "popularity" in shown
    assert "ndcg@20" in shown


def test_the_default_place_is_named_after_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.csv").write_text(
        "user,item\n" + "\n".join(f"u{n % 7},i{n % 11}" for n in range(77))
    )
    succeed("train", "mine.csv", "--model", "itemknn")
    assert load_bundle(tmp_path / "runs" / "mine-itemknn").record.dataset == "mine"


def test_recommend_shows_names_and_what_was_liked(run: Path) -> None:
    user = SHOWCASE["two tastes"]
    shown = succeed("recommend", run, "--user", user, "-k", 3)
    assert f"{user} already has: " in shown
    assert "1. " in shown
    assert "4. " not in shown


def test_every_way_of_asking_gives_the_same_lists(run: Path, tmp_path: Path) -> None:
    users = list(SHOWCASE.values())
    flags = [part for user in users for part in ("--user", user)]
    answer = json.loads(succeed("recommend", run, *flags, "-k", 7, "--json"))
    assert answer["k"] == 7
    assert [u["user"] for u in answer["users"]] == users
    assert {u["source"] for u in answer["users"]} == {"model"}
    (tmp_path / "users.txt").write_text("\n".join(users))
    for suffix, read in {
        "parquet": pl.read_parquet, "csv": pl.read_csv, "jsonl": pl.read_ndjson,
    }.items():  # fmt: skip
        target = tmp_path / f"recs.{suffix}"
        succeed("recommend", run, "--users", tmp_path / "users.txt", "-k", 7, "--out", target)
        table = read(target)
        assert table.columns == ["user", "rank", "item", "name", "score"]
        for entry in answer["users"]:
            rows = table.filter(pl.col("user") == entry["user"]).sort("rank")
            assert rows["item"].to_list() == [i["item"] for i in entry["items"]]
            np.testing.assert_allclose(
                rows["score"], [i["score"] for i in entry["items"]], rtol=1e-6
            )
    succeed("recommend", run, "--all", "-k", 7, "--out", tmp_path / "all.parquet")
    everyone = pl.read_parquet(tmp_path / "all.parquet")
    assert everyone["user"].n_unique() == len(load_bundle(run).users)
    assert (
        everyone.filter(pl.col("user").is_in(users))
        .sort("user", "rank")
        .equals(pl.read_parquet(tmp_path / "recs.parquet").sort("user", "rank"))
    )


def test_recommend_to_a_new_user(run: Path) -> None:
    answer = json.loads(
        succeed("recommend", run, "--history", "jazz-03, jazz-04", "-k", 5, "--json")
    )
    (entry,) = answer["users"]
    assert (entry["user"], entry["source"]) == (None, "history")
    assert all(i["item"].startswith("jazz") for i in entry["items"])
    assert not {"jazz-03", "jazz-04"} & {i["item"] for i in entry["items"]}
    done = mgformer("recommend", run, "--history", "jazz-03,jaz-04", "--json")
    assert "not in the training data, ignored: jaz-04 (did you mean jazz-04" in done.stderr
    assert json.loads(done.stdout)["users"][0]["unknown"] == ["jaz-04"]
    nobody = json.loads(succeed("recommend", run, "--history", "unheard-of", "-k", 2, "--json"))
    assert nobody["users"][0]["source"] == "popularity"
    degrees = load_bundle(run).item_degrees
    most = load_bundle(run).items.values[int(degrees.argmax())]
    assert nobody["users"][0]["items"][0]["item"] == most


def test_ids_with_commas_are_read_as_one_if_they_are_known(tmp_path: Path) -> None:
    rows = [(f"u{u}", ["a,b", "a", "b", "c"][(u + i) % 4]) for u in range(12) for i in range(3)]
    pl.DataFrame(rows, schema=["user", "item"], orient="row").write_csv(tmp_path / "a.csv")
    run = tmp_path / "run"
    succeed(
        "train", tmp_path / "a.csv", "--model", "itemknn", "--set", "split.test=0", "--out", run
    )
    for given, left in (
        (["a,b"], {"a", "b", "c"}),
        (["a, b"], {"a,b", "c"}),
        (["b,c"], {"a,b", "a"}),
        (["c,a,b"], {"a", "b"}),
        (["a", "b,c"], {"a,b"}),
    ):
        flags = [part for one in given for part in ("--history", one)]
        (entry,) = json.loads(succeed("recommend", run, *flags, "--json"))["users"]
        assert {item["item"] for item in entry["items"]} == left
        assert entry["unknown"] == []


def test_search_finds_the_id_of_a_name(run: Path) -> None:
    found = json.loads(succeed("search", run, "SÁILING", "--json", "-k", 2))
    assert found["text"] == "SÁILING"
    assert [set(item) for item in found["items"]] == [{"item", "name"}] * 2
    shown = succeed("search", run, "sailing jacket", "-k", 50).splitlines()
    assert shown[0].split() == ["name", "id"]
    assert len(shown) > 1
    for line in shown[1:]:
        name, item = line.rsplit(maxsplit=1)
        assert "sailing jacket" in name.lower()
        assert item.startswith("sailing-")
    assert succeed("search", run, "sailing-02").splitlines()[1].endswith("sailing-02")
    assert "no item has 'zzz'" in succeed("search", run, "zzz")
    assert_one_line(mgformer("search", run.parent, "x"), "train one with")


def test_similar_items_name_the_item(run: Path) -> None:
    name = Recommender.load(run).find_items("sailing-02")["name"][0]
    assert succeed("similar", run, "--item", "sailing-02").startswith(
        f"similar to {name} (sailing-02)\n"
    )


def test_a_user_with_a_history(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    pairs = rng.integers(0, 30, 300), rng.integers(0, 30, 300)
    trained = Recommender.fit(pairs, "itemknn")
    trained.save(tmp_path / "run")
    expected = trained.recommend_for([5, 7], 4, user=2)["item"].to_list()
    assert expected != trained.recommend_for([5, 7], 4)["item"].to_list()
    asked = "recommend", tmp_path / "run", "--user", 2, "--history", "5,7", "-k", 4
    (answer,) = json.loads(succeed(*asked, "--json"))["users"]
    assert (answer["user"], answer["source"]) == (2, "history")
    assert [i["item"] for i in answer["items"]] == expected
    succeed(*asked, "--out", tmp_path / "x.parquet")
    table = pl.read_parquet(tmp_path / "x.parquet")
    assert table["user"].to_list() == [2] * 4
    assert table["item"].to_list() == expected
    assert "recommended for 2" in succeed(*asked)


def test_only_the_users_that_are_shown_are_ranked(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranked: list[int] = []
    rank = lists.rank_users

    def noted(bundle: Any, numbers: Any, options: Any) -> Any:
        ranked.append(len(numbers))
        return rank(bundle, numbers, options)

    monkeypatch.setattr(lists, "rank_users", noted)
    in_blocks = partialmethod(Recommender.answers, block_users=300)
    monkeypatch.setattr(Recommender, "answers", in_blocks)
    shown = succeed("recommend", run, "--all", "-k", 2)
    assert ranked == [20]
    assert shown.count("recommended for") == 20
    assert "… and 780 more users; use --out or --json for all" in shown
    ranked.clear()
    answer = json.loads(succeed("recommend", run, "--all", "-k", 2, "--json"))
    assert ranked == [300, 300, 200]
    assert answer["k"] == 2
    assert [u["user"] for u in answer["users"]] == load_bundle(run).users.values.to_list()


def test_json_with_out_prints_one_object_that_names_the_file(run: Path, tmp_path: Path) -> None:
    target = tmp_path / "x.csv"
    for whom, count in ((["--all"], 800), (["--history", "jazz-03"], 1)):
        done = json.loads(succeed("recommend", run, *whom, "-k", 2, "--out", target, "--json"))
        assert done == {"users": count, "out": str(target)}


def test_held_out_users_are_ranked_by_their_history(tmp_path: Path) -> None:
    settings = ["--set", "split.kind=users", "--out", tmp_path / "run", "--json"]
    result = json.loads(succeed("train", "demo", "--model", "ease", *settings))
    assert result["test"]["recall@20"] > 2 * result["popularity"]["recall@20"]
    bundle = load_bundle(tmp_path / "run")
    cold_user = bundle.users.values[int(np.flatnonzero(np.diff(bundle.test.indptr))[0])]
    answer = json.loads(succeed("recommend", tmp_path / "run", "--user", cold_user, "--json"))
    assert answer["users"][0]["source"] == "history"


def test_refit_keeps_the_honest_validation_figures(tmp_path: Path) -> None:
    ease = "train", "demo", "--model", "ease", *RATIO
    result = json.loads(
        succeed(*ease, "--set", "split.refit=true", "--out", tmp_path / "run", "--json")
    )
    plain = json.loads(succeed(*ease, "--out", tmp_path / "b", "--json"))
    assert result["valid"] == plain["valid"]
    assert result["test"] != plain["test"]
    assert json.loads(succeed("evaluate", tmp_path / "run", "--json"))["valid"] == plain["valid"]


def test_two_runs_are_compared_over_their_users(run: Path, tmp_path: Path) -> None:
    popularity = "train", "demo", "--model", "popularity", *RATIO
    succeed(*popularity, "--out", tmp_path / "pop")
    result = json.loads(succeed("evaluate", run, "--against", tmp_path / "pop", "--json"))
    ndcg = result["against"]["metrics"]["ndcg@20"]
    assert ndcg["difference"] == pytest.approx(
        result["test"]["ndcg@20"] - result["popularity"]["ndcg@20"]
    )
    assert ndcg["p_value"] < 1e-10
    assert "paired t-test" in succeed("evaluate", run, "--against", tmp_path / "pop")
    # Another seed tests the same users by other pairs.
    succeed(*popularity, "--seed", 1, "--out", tmp_path / "other")
    done = mgformer("evaluate", run, "--against", tmp_path / "other")
    assert_one_line(done, "different data or test pairs")
    assert "seeds 0 and 1" in done.stderr


def test_datasets_are_listed_and_shown(tmp_path: Path) -> None:
    listed = json.loads(succeed("datasets", "list", "--json"))["datasets"]
    assert {"demo", "yelp2018", "amazon-beauty", "alibaba"} <= {d["dataset"] for d in listed}
    facts = json.loads(succeed("datasets", "show", "demo", "--json"))
    assert (facts["users"], facts["items"], facts["interactions"]) == (800, 400, 12_260)
    assert facts["fingerprint"].startswith("800x400-12260-")
    (tmp_path / "x.csv").write_text("user,item\na,1\na,1\nb,2\n")
    own = json.loads(succeed("datasets", "show", tmp_path / "x.csv", "--json"))
    assert (own["users"], own["items"], own["interactions"], own["duplicates"]) == (2, 2, 2, 1)
    assert "800" in succeed("datasets", "show", "demo")


@pytest.mark.parametrize(
    "command",
    [
        [],
        ["train"],
        ["evaluate"],
        ["compare"],
        ["tune"],
        ["recommend"],
        ["datasets"],
        ["datasets", "fetch"],
    ],
)
def test_every_command_has_help(command: list[str]) -> None:
    assert "Usage" in succeed(*command, "--help")


BAD_FILES = {
    "missing": (None, "neither a file, a folder, nor one of"),
    "empty": ("", "empty"),
    "separator": ("user;item\na;1\n", "--set data.sep=';'"),
    "column": ("who,item\na,1\n", "who"),
    "malformed": ("user,item\na,1\nb\n", ":3:"),
    "too-long": ("user,item\na,1\nb,2,3\n", ":3:"),
    "null": ("user,item\na,1\n,2\n", ":3:"),
    "rating": ("user,item,rating\na,1,5\nb,2,good\n", ":3:"),
    "mixed": ('{"user": 1, "item": 2}\n{"user": "a", "item": 3}\n', ":2:"),
}
OPTIONS = {
    "separator": ["--set", "data.sep=,"],
    "rating": ["--set", "data.min_rating=3"],
}


@pytest.mark.parametrize("kind", sorted(BAD_FILES))
def test_bad_files_cost_one_line_and_write_nothing(kind: str, tmp_path: Path) -> None:
    content, expected = BAD_FILES[kind]
    path = tmp_path / ("data.jsonl" if kind == "mixed" else "data.csv")
    if content is not None:
        path.write_text(content)
    before = sorted(tmp_path.iterdir())
    done = mgformer("train", path, "--out", tmp_path / "run", *OPTIONS.get(kind, []))
    assert_one_line(done, expected)
    assert path.name in done.stderr
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("test", "expected"),
    [("user,item\na,1\n", "1 pairs that are also in"), ("user,item\nc,1\n", "'c'")],
)
def test_bad_parts(test: str, expected: str, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "train.csv").write_text("user,item\na,1\nb,2\n")
    (tmp_path / "data" / "valid.csv").write_text(test)
    assert_one_line(mgformer("train", tmp_path / "data", "--out", tmp_path / "run"), expected)
    assert not (tmp_path / "run").exists()


def test_bad_questions(run: Path, tmp_path: Path) -> None:
    user = SHOWCASE["one taste"]
    (tmp_path / "folder.csv").mkdir()
    for arguments, expected in {
        ("--user", user.upper()): "unknown user",
        ("--user", user + "x"): f"did you mean {user}",
        ("--user", "nobody-at-all"): "--history",
        ("--user", user, "-k", "0"): "k must be at least 1, got 0",
        (): "exactly one of",
        ("--user", user, "--all"): "exactly one of",
        ("--all", "--history", "jazz-03"): "exactly one of",
        ("--user", user, "--user", user, "--history", "jazz-03"): "exactly one of",
        ("--user", user + "x", "--history", "jazz-03"): f"did you mean {user}",
        ("--history", " , "): "--history is empty",
        ("--users", str(tmp_path / "none.txt")): "cannot be read",
        ("--all", "--out", str(tmp_path / "x.xlsx")): ".parquet, .csv, .jsonl",
        ("--all", "--out", str(tmp_path / "no" / "x.csv")): "make it first",
        ("--all", "--out", str(tmp_path / "folder.csv")): "is a folder; give the name of a file",
    }.items():
        assert_one_line(mgformer("recommend", run, *arguments), expected)
    assert list(tmp_path.iterdir()) == [tmp_path / "folder.csv"]


@pytest.mark.parametrize("damage", ["truncated", "changed", "newer"])
def test_bad_bundles(damage: str, run: Path, tmp_path: Path) -> None:
    broken = tmp_path / "run"
    shutil.copytree(run, broken)
    scorer = next(broken.glob("scorer-*"))
    content = scorer.read_bytes()
    if damage == "truncated":
        scorer.write_bytes(content[:-1])
    elif damage == "changed":
        scorer.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    else:
        manifest = broken / "bundle.json"
        manifest.write_text(manifest.read_text().replace('"format": 3', '"format": 99'))
    expected = {"truncated": "truncated", "changed": "checksum", "newer": "upgrade"}[damage]
    before = {path: path.read_bytes() for path in broken.iterdir()}
    assert_one_line(mgformer("recommend", broken, "--all", "--out", tmp_path / "x.csv"), expected)
    assert_one_line(mgformer("evaluate", broken), expected)
    assert {path: path.read_bytes() for path in broken.iterdir()} == before
    assert not (tmp_path / "x.csv").exists()


def test_bad_names(tmp_path: Path) -> None:
    assert_one_line(mgformer("train", "dmeo"), "did you mean demo?")
    assert_one_line(mgformer("train", "--model", "eease"), "did you mean ease?")
    unknown = mgformer("train", "--model", "gfcf", "--set", "model.rnak=3")
    assert_one_line(unknown, "did you mean rank?")
    assert_one_line(mgformer("train", "--config", tmp_path / "x.toml"), "no such config file")
    assert_one_line(mgformer("evaluate", tmp_path), "no trained recommender here")
    assert_one_line(mgformer("datasets", "show", "yelp2019"), "did you mean yelp2018?")
    (tmp_path / "taken").write_text("")
    assert_one_line(mgformer("train", "--out", tmp_path / "taken"), "is a file")


def test_help_shows_the_defaults() -> None:
    for command, default in (("train", "auto"), ("tune", "demo"), ("refit", "RUN-refit")):
        shown = "".join(succeed(command, "--help").split())  # lines are broken anywhere
        assert f"default:({default})" in shown


def test_the_installed_command_exits_with_2_and_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mgformer", "evaluate", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert_one_line(Done(done.returncode, done.stdout, done.stderr), "no trained recommender here")
    helped = subprocess.run(
        [*command[:3], "--version"], capture_output=True, text=True, timeout=600
    )
    assert helped.stdout.startswith("mgformer ")
