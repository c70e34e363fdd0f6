"""Unknown users get a list by their history, or popular items, if the query allows it."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from mgformer.data.chronology import RECENT, SMOOTHING
from mgformer.errors import UnknownIdError
from mgformer.recommend.batch import write_lists
from mgformer.recommend.query import ListOptions, Query
from mgformer.recommend.recommender import Recommender
from tests.command import assert_one_line, mgformer, succeed

OPTIONS = ListOptions(k=4, fallback=True)


@pytest.fixture(scope="module")
def table() -> pl.DataFrame:
    """Integer ids with times; late pairs are of few items, so that trends differ."""
    rng = np.random.default_rng(0)
    users, times = rng.integers(0, 60, 900), np.arange(900)
    items = np.where(times > 700, rng.integers(0, 8, 900), rng.integers(0, 40, 900))
    return pl.DataFrame({"user": users, "item": items, "time": times})


@pytest.fixture(scope="module")
def recommender(table: pl.DataFrame) -> Recommender:
    sections = {"split": {"kind": "time"}, "score": {"eta": 0.5}}
    return Recommender.fit(table, "itemknn", **sections)


def test_popular_items_follow_the_trend_as_far_as_the_score_does(recommender: Recommender) -> None:
    bundle = recommender.bundle
    assert bundle.record.chosen.weights.eta == 0.5
    train = bundle.train
    latest = sorted(train.times)[-round(RECENT * len(train)) :][0]
    expected = {}
    for item in range(len(bundle.items)):
        own = train.times[train.indices == item]
        recent = train.times > np.quantile(train.times, 1 - RECENT, method="lower")
        ratio = ((own >= latest).sum() + SMOOTHING) / (len(own) * recent.mean() + SMOOTHING)
        expected[bundle.items.values[item]] = len(own) * ratio**0.5
    answer = recommender.answer(Query(user=999, k=40, fallback=True))
    scores = {item.item: item.score for item in answer.items}
    assert scores == pytest.approx(expected, rel=0.02)  # the border of "recent" may fall on a tie
    by_count = sorted(expected, key=lambda item: -bundle.item_degrees[item])
    assert [item.item for item in answer.items][:8] != by_count[:8]


def test_without_a_trend_popular_items_are_those_with_most_users(table: pl.DataFrame) -> None:
    plain = Recommender.fit(table.drop("time"), "itemknn")
    degrees = plain.bundle.item_degrees
    answer = plain.answer(Query(user=999, k=5, fallback=True))
    assert [item.score for item in answer.items] == sorted(degrees, reverse=True)[:5]


def test_unknown_users_among_known_ones(recommender: Recommender) -> None:
    known = recommender.bundle.users.values[[3, 7]].to_list()
    asked = [999, known[0], "nobody", known[1], 1_000]
    answers = list(recommender.answers(asked, 4, fallback=True, block_users=2))
    assert [answer.user for answer in answers] == asked
    assert [answer.unknown_user for answer in answers] == [True, False, True, False, True]
    popular = recommender.answer(Query(history=(), k=4)).items
    alone = [recommender.answer(Query(user=user, k=4)).items for user in known]
    assert [answer.items for answer in answers] == [popular, alone[0], popular, alone[1], popular]
    for users in (asked, [999]):
        with pytest.raises(UnknownIdError, match="unknown user '999'"):
            recommender.recommend(users, 4)


def test_an_unknown_user_with_a_history(recommender: Recommender) -> None:
    query = Query(user="nobody", history=(1, 2), k=4, explain=True, fallback=True)
    answer, alone = recommender.answer(query), recommender.answer(Query(history=(1, 2), k=4))
    assert (answer.user, answer.source, answer.unknown_user) == ("nobody", "history", True)
    assert [item.item for item in answer.items] == [item.item for item in alone.items]
    assert answer.items[0].because
    table = recommender.recommend_for((1, 2), 4, user="nobody", fallback=True)
    assert table["item"].to_list() == [item.item for item in alone.items]
    assert table["user"].to_list() == ["nobody"] * 4
    with pytest.raises(UnknownIdError):
        recommender.recommend_for((1, 2), 4, user="nobody")


@pytest.mark.parametrize(("asked", "dtype"), [([999, 5], pl.Int64), (["nobody", 5], pl.String)])
def test_tables_and_files_keep_the_ids(
    asked: list, dtype: pl.DataType, recommender: Recommender, tmp_path: Path
) -> None:
    table = recommender.recommend(asked, 4, fallback=True)
    assert table["user"].dtype == dtype
    assert table["user"].unique(maintain_order=True).cast(pl.String).to_list() == [
        str(user) for user in asked
    ]
    target = tmp_path / "lists.parquet"
    write_lists(recommender.bundle, asked, OPTIONS, target, block_users=1)
    assert pl.read_parquet(target).equals(table.select("user", "rank", "item", "score"))


def test_the_command_line_falls_back(recommender: Recommender, tmp_path: Path) -> None:
    recommender.save(tmp_path / "run")
    run, known = tmp_path / "run", str(recommender.bundle.users.values[3])
    assert_one_line(mgformer("recommend", run, "--user", "999"), "or --fallback")
    shown = succeed("recommend", run, "--user", "999", "--user", known, "--fallback")
    assert "for 999 (unknown user, so these are the most popular)" in shown
    (tmp_path / "users.txt").write_text(f"999\n{known}\n")
    by_file = ("--users", tmp_path / "users.txt", "--fallback", "--json", "-k", 3)
    found = json.loads(succeed("recommend", run, *by_file))["users"]
    assert [(one["user"], one["unknown_user"]) for one in found] == [
        ("999", True),
        (int(known), False),
    ]
    flags = ("--user", "999", "--history", "1,2", "--fallback", "-k", 3)
    assert "for 999 (unknown user, so these follow the history)" in succeed(
        "recommend", run, *flags
    )
