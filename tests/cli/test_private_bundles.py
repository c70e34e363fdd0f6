"""Bundles that leave the house: without histories, and with hashed ids."""

import hashlib
import hmac
import json
import stat
from pathlib import Path

import polars as pl
import pytest

from mgformer.data.formats.feedback import line_of
from mgformer.data.hashed_ids import hash_id, read_key
from mgformer.ranking.scorers import HistoryScorer
from mgformer.recommend.query import Query
from mgformer.recommend.recommender import Recommender
from mgformer.runs.bundle_files import load_bundle
from tests.command import assert_one_line, mgformer, succeed

EPOCHS = ["--set", "train.epochs=2"]


def items_of(text: str) -> list[str]:
    return [item["item"] for item in json.loads(text)["users"][0]["items"]]


def test_vectors_serve_known_users_without_histories(table: Path, tmp_path: Path) -> None:
    for name, more in (("whole", []), ("private", ["--no-histories"])):
        succeed("train", table, "--model", "bprmf", *EPOCHS, "--out", tmp_path / name, *more)
    bundle = load_bundle(tmp_path / "private")
    assert not len(bundle.all_pairs)
    assert bundle.per_user is None
    whole = load_bundle(tmp_path / "whole")
    assert (bundle.item_degrees == whole.item_degrees).all()
    asked = ["--user", "u3", "-k", 10, "--json"]
    done = mgformer("recommend", tmp_path / "private", *asked)
    assert "may contain items that the user already has" in done.stderr
    expected = succeed("recommend", tmp_path / "whole", *asked, "--with-seen")
    assert items_of(done.stdout) == items_of(expected)
    new = Query(history=["i1", "i2"], k=5)
    answers = [Recommender.load(tmp_path / name).answer(new) for name in ("private", "whole")]
    assert answers[0] == answers[1]
    new_pairs = tmp_path / "new.csv"
    new_pairs.write_text("user,item\nu1,i1\n")
    for command in (["refresh", tmp_path / "private", "--with", new_pairs],
                    ["refit", tmp_path / "private"],
                    ["train", new_pairs, "--from", tmp_path / "private"]):  # fmt: skip
        assert_one_line(mgformer(*command), "saved without histories")
    succeed("report", tmp_path / "private")
    done = succeed("forget", tmp_path / "private", "--user", "u3")
    assert "not ours" not in done
    assert "u3" not in load_bundle(tmp_path / "private").users.values


def test_models_of_histories_ask_for_one(table: Path, tmp_path: Path) -> None:
    succeed("train", table, "--model", "ease", "--out", tmp_path / "run", "--no-histories")
    scorer = load_bundle(tmp_path / "run").scorer
    assert isinstance(scorer, HistoryScorer)
    assert scorer.histories.nnz == 0
    done = mgformer("recommend", tmp_path / "run", "--user", "u3", "--with-seen")
    assert_one_line(done, "give the items of the user as a history")
    assert succeed("recommend", tmp_path / "run", "--history", "i1,i2")
    done = mgformer("train", table, "--model", "gfcf", "--out", tmp_path / "b", "--no-histories")
    assert_one_line(done, "gfcf keeps the pairs of users inside the model")
    assert not (tmp_path / "b" / "bundle.json").exists()


def test_cold_users_keep_their_vectors_without_histories(table: Path, tmp_path: Path) -> None:
    succeed("train", table, "--model", "bprmf", *EPOCHS, "--set", "split.kind=users",
            "--out", tmp_path / "run", "--no-histories")  # fmt: skip
    recommender = Recommender.load(tmp_path / "run")
    for user in recommender.bundle.users.values[:20]:
        assert len(recommender.recommend(user, 5)) == 5


def test_hashed_ids(table: Path, tmp_path: Path) -> None:
    key, run = tmp_path / "ids.key", tmp_path / "run"
    succeed("train", table, "--model", "itemknn", "--out", run, "--hash-ids", key)
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    secret = key.read_bytes().strip()
    bundle = load_bundle(run)
    expected = {
        hmac.new(secret, user.encode(), hashlib.sha256).hexdigest()[:32]
        for user in pl.read_csv(table)["user"].unique()
    }
    assert set(bundle.users.values) == expected
    assert secret not in b"".join(path.read_bytes() for path in run.iterdir())
    hashed = hmac.new(secret, b"u3", hashlib.sha256).hexdigest()[:32]
    shown = succeed("recommend", run, "--user", "u3", "--id-key", key, "--json")
    assert json.loads(shown)["users"][0]["user"] == hashed
    assert shown == succeed("recommend", run, "--user", hashed, "--json")
    (tmp_path / "users.txt").write_text("u3\n")
    listed = ["recommend", run, "--users", tmp_path / "users.txt", "--id-key", key, "--json"]
    assert succeed(*listed) == shown
    own = set(pl.read_csv(table).filter(pl.col("user") == "u3")["item"])
    assert not own & set(items_of(shown))
    assert_one_line(mgformer("recommend", run, "--user", "u3"), "unknown user 'u3'")


def test_new_data_need_the_same_key(table: Path, tmp_path: Path) -> None:
    key, run, new = tmp_path / "ids.key", tmp_path / "run", tmp_path / "new.csv"
    new.write_text("user,item\nu3,i59\nfresh,i1\n")
    succeed("train", table, "--model", "itemknn", "--out", run, "--hash-ids", key)
    refresh = ["refresh", run, "--with", new]
    assert_one_line(mgformer(*refresh), "give the key file")
    other = tmp_path / "other.key"
    other.write_text("0123456789abcdef0123")
    assert_one_line(mgformer(*refresh, "--id-key", other), "another key than the one that hashed")
    succeed(*refresh, "--id-key", key)
    assert len(load_bundle(run).users) == 121
    succeed("forget", run, "--user", "fresh", "--id-key", key)
    assert len(load_bundle(run).users) == 120
    assert_one_line(mgformer("train", new, "--from", run), "user ids there are hashed")
    assert_one_line(
        mgformer("train", new, "--from", run, "--hash-ids", other, "--out", tmp_path / "n"),
        "another key than the one that hashed",
    )


def test_the_log_of_a_service_has_hashes_already(table: Path, tmp_path: Path) -> None:
    key, run, log = tmp_path / "ids.key", tmp_path / "run", tmp_path / "log"
    succeed("train", table, "--model", "itemknn", "--out", run, "--hash-ids", key)
    hashes = [hash_id(user, read_key(key)) for user in ("u3", "fresh")]
    log.mkdir()
    lines = [line_of({"user": user, "item": "i59", "time": 1.7e9}) for user in hashes]
    (log / "feedback-1.jsonl").write_bytes(b"".join(lines))
    again = ["train", log, "--from", run, "--hash-ids", key, "--out", tmp_path / "again"]
    for command in (["refresh", run, "--with", log, "--out", tmp_path / "b"],
                    ["refresh", run, "--with", log, "--id-key", key, "--out", tmp_path / "c"],
                    again):  # fmt: skip
        succeed(*command)
        users = load_bundle(Path(command[-1])).users
        assert len(users) == 121
        assert (users.encode(hashes) >= 0).all()


@pytest.mark.parametrize(
    ("content", "expected"), [("short", "the key has 5 bytes, expected at least 16"), (None, "")]
)
def test_keys_that_cannot_be_used(
    table: Path, tmp_path: Path, content: str | None, expected: str
) -> None:
    key = tmp_path / "run" / "ids.key"
    if content is not None:
        key = tmp_path / "ids.key"
        key.write_text(content)
    done = mgformer("train", table, "--model", "itemknn", "--out", tmp_path / "run",
                    "--hash-ids", key)  # fmt: skip
    assert_one_line(done, expected or "lies in the folder of the run")


def test_given_parts_are_hashed_alike(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "train.csv").write_text(
        "user,item\n" + "".join(f"u{u},i{i}\n" for u in range(9) for i in range(u % 3, 6))
    )
    (data / "test.csv").write_text("user,item\n" + "".join(f"u{u},i7\n" for u in range(9)))
    key = tmp_path / "ids.key"
    for name, more in (("plain", []), ("hashed", ["--hash-ids", key])):
        succeed("train", data, "--model", "itemknn", "--out", tmp_path / name, *more)
    plain, hashed = (load_bundle(tmp_path / name).record for name in ("plain", "hashed"))
    assert plain.test == pytest.approx(hashed.test)


def test_private_names_are_never_shown(tmp_path: Path) -> None:
    (tmp_path / "items.csv").write_text("item,title,kind\ni1,Secret One,a\ni2,Secret Two,b\n")
    (tmp_path / "pairs.csv").write_text("user,item\nu1,i1\nu1,i2\nu2,i1\nu3,i2\n")
    about = ["--set", f"data.items={tmp_path / 'items.csv'}", "--set", 'data.private=["title"]']
    run = tmp_path / "run"
    succeed("train", tmp_path / "pairs.csv", "--model", "ease", "--out", run, *about)
    shown = succeed("recommend", run, "--user", "u2", "--show", "*")
    shown += succeed("similar", run, "--item", "i1") + succeed("search", run, "secret")
    shown += succeed("recommend", run, "--all", "--json")
    succeed("recommend", run, "--all", "--out", tmp_path / "lists.csv")
    shown += (tmp_path / "lists.csv").read_text()
    assert "i2" in shown
    assert "Secret" not in shown
    done = mgformer("recommend", run, "--user", "u2", "--where", "name has secret")
    assert_one_line(done, "got the attribute 'name', expected one of kind")
