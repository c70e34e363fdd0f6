"""A new recommender takes the place of the old one only if it is not worse."""

import json
import math
from collections import defaultdict
from pathlib import Path

import pytest

from mgformer.data.formats.feedback import line_of
from mgformer.errors import BundleError
from mgformer.experiments.promotion import compare_to, refreshed_for
from mgformer.recommend.recommender import Recommender
from tests.command import assert_one_line, mgformer, succeed


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An old run, a run continued from it with feedback, and a bad run with the same feedback."""
    folder = tmp_path_factory.mktemp("promotion")
    Recommender.fit("demo", "itemknn").save(folder / "old")
    rows = [
        line_of({"user": f"new-{n // 8}", "item": f"jazz-{n % 12 + 1:02d}", "time": 1.7e9 + n})
        for n in range(160)
    ]
    (folder / "feedback").mkdir()
    (folder / "feedback" / "feedback-1.jsonl").write_bytes(b"".join(rows))
    start = ("train", folder / "feedback", "--from", folder / "old", "--out")
    succeed(*start, folder / "new")
    succeed(*start, folder / "bad", "--model", "popularity")
    return folder


def test_a_recommender_is_as_good_as_itself(folder: Path) -> None:
    bundle = Recommender.load(folder / "old").bundle
    found = compare_to(bundle, bundle)
    assert found.new == found.old == pytest.approx(bundle.record.test["ndcg@20"])
    assert found.users == bundle.per_user.height


def test_both_are_measured_on_the_pairs_held_out_from_the_new_one(folder: Path) -> None:
    """Count NDCG@20 of the old recommender from its lists."""
    new, old = (Recommender.load(folder / name) for name in ("new", "old"))
    before = Recommender(refreshed_for(new.bundle, old.bundle))
    test = new.bundle.test
    wanted = defaultdict(set)
    for user, item in zip(
        test.users.decode(test.rows), test.items.decode(test.indices), strict=True
    ):
        wanted[user].add(item)
    gains = []
    for user, items in wanted.items():
        if before.bundle.users.encode([user])[0] < 0 or not len(before.items_of(user)):
            continue  # without known items, a model can only guess
        listed = before.recommend(user, 20)["item"].to_list()
        best = sum(1 / math.log2(rank + 2) for rank in range(min(20, len(items))))
        hits = [item in items for item in listed]
        gains.append(sum(hit / math.log2(rank + 2) for rank, hit in enumerate(hits)) / best)
    found = compare_to(new.bundle, old.bundle)
    assert found.users == len(gains)
    assert found.old == pytest.approx(sum(gains) / len(gains))
    assert found.new == pytest.approx(new.bundle.record.test["ndcg@20"], abs=0.02)


def test_a_worse_one_is_refused_and_a_better_one_is_taken(folder: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert "is now in" in succeed("promote", folder / "bad", run)  # there was none
    before = (run / "bundle.json").read_bytes()
    found = json.loads(succeed("promote", folder / "new", run, "--json"))
    assert found["ndcg@20"]["new"] > found["ndcg@20"]["old"]
    assert Recommender.load(run).model == "itemknn"
    refused = mgformer("promote", folder / "bad", run)
    assert refused.returncode == 2
    assert "which stays: NDCG@20" in refused.stderr
    assert Recommender.load(run).model == "itemknn"
    succeed("promote", folder / "bad", run, "--tolerance", 1)
    assert (run / "bundle.json").read_bytes() == before
    succeed("promote", folder / "new", run, "--force")
    assert Recommender.load(run).model == "itemknn"


def test_what_cannot_be_compared_is_one_line(folder: Path) -> None:
    assert_one_line(mgformer("promote", folder / "new", folder / "new"), "got one folder twice")
    new = Recommender.load(folder / "new")
    with pytest.raises(BundleError, match="no held-out pairs"):
        compare_to(new.refit().bundle, new.bundle)
