"""Lists of many users: in parts, resumable, equal to those of one user at a time."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from mgformer.recommend import batch as lists
from mgformer.recommend.batch import write_lists, write_whole
from mgformer.recommend.recommender import Recommender
from tests.command import assert_one_line, mgformer, succeed

READERS = {".parquet": pl.read_parquet, ".csv": pl.read_csv, ".jsonl": pl.read_ndjson}


@pytest.fixture(scope="module")
def recommender() -> Recommender:
    return Recommender.fit("demo", "ease")


@pytest.fixture
def small_blocks(monkeypatch) -> None:
    monkeypatch.setattr(lists, "BLOCK_USERS", 100)


@pytest.mark.parametrize("suffix", READERS)
@pytest.mark.usefixtures("small_blocks")
def test_every_format_holds_the_lists_of_recommend(suffix, recommender, tmp_path: Path):
    users = np.arange(250, dtype=np.int32)[::-1]
    target = tmp_path / f"lists{suffix}"
    write_lists(recommender, users, 4, target)
    ids = recommender.bundle.users.decode(users)
    expected = recommender.recommend(ids, 4).select("user", "rank", "item", "score")
    found = READERS[suffix](target).cast(dict(expected.schema))
    assert found.equals(expected)
    assert [path.name for path in tmp_path.iterdir()] == [target.name]


@pytest.mark.usefixtures("small_blocks")
def test_interrupted_it_goes_on_with_the_parts_there_are(recommender, tmp_path, monkeypatch):
    users, target = np.arange(250, dtype=np.int32), tmp_path / "lists.parquet"
    ranked, rank = [], recommender.rank

    def stopping(numbers, k, **options):
        if len(ranked) == 2:
            raise KeyboardInterrupt
        ranked.append(numbers[0])
        return rank(numbers, k, **options)

    monkeypatch.setattr(recommender, "rank", stopping)
    with pytest.raises(KeyboardInterrupt):
        write_lists(recommender, users, 4, target)
    assert not target.exists()
    ranked.clear()
    write_lists(recommender, users, 4, target)
    assert ranked == [200]  # only what was left
    monkeypatch.undo()
    everyone = recommender.bundle.users.decode(users)
    expected = recommender.recommend(everyone, 4).select("user", "rank", "item", "score")
    assert pl.read_parquet(target).equals(expected)


def stop_at_100(recommender, users, target, monkeypatch):
    """Begin lists of four, and be interrupted after the first blocks."""
    rank = recommender.rank

    def stopping(numbers, k, **options):
        if numbers[0] == 100:
            raise KeyboardInterrupt
        return rank(numbers, k, **options)

    with monkeypatch.context() as patch:  # blocks stay small
        patch.setattr(recommender, "rank", stopping)
        with pytest.raises(KeyboardInterrupt):
            write_lists(recommender, users, 4, target)


@pytest.mark.usefixtures("small_blocks")
def test_parts_of_another_question_are_not_taken(recommender, tmp_path, monkeypatch):
    users, target = np.arange(150, dtype=np.int32), tmp_path / "lists.parquet"
    stop_at_100(recommender, users, target, monkeypatch)
    write_lists(recommender, users, 4, target, candidates=np.arange(30, dtype=np.int32))
    items = recommender.bundle.items.encode(pl.read_parquet(target)["item"])
    assert items.max() < 30


def test_candidates_exclusions_and_seen_items_on_the_command_line(recommender, tmp_path: Path):
    recommender.save(tmp_path / "run")
    user = recommender.bundle.users.values[0]
    ranked = recommender.recommend([user], 40)["item"].to_list()
    (tmp_path / "some.txt").write_text("\n".join(ranked[3:20]))
    (tmp_path / "never.txt").write_text("\n".join(ranked[3:6]))
    files = ["--candidates", tmp_path / "some.txt", "--exclude", tmp_path / "never.txt"]
    for arguments, expected in (
        (files, ranked[6:9]),
        (files[2:], [*ranked[:3]]),
        (["--with-seen"], recommender.recommend([user], 3, exclude_seen=False)["item"].to_list()),
    ):
        target = tmp_path / "lists.csv"
        succeed("recommend", tmp_path / "run", "--user", user, "-k", 3, *arguments, "--out", target)
        assert pl.read_csv(target)["item"].to_list() == expected


def test_what_files_name_that_is_not_known_is_passed_over(recommender, tmp_path: Path):
    recommender.save(tmp_path / "run")
    user = recommender.bundle.users.values[0]
    ranked = recommender.recommend([user], 40)["item"].to_list()
    for name, ids in {
        "users": [user, "came later", "later still"],
        "some": [*ranked[3:20], "new item"],
        "never": [*ranked[3:6], "gone item"],
        "none": ["no such id"],
    }.items():
        (tmp_path / name).write_text("\n".join(ids))
    files = ["--candidates", tmp_path / "some", "--exclude", tmp_path / "never"]
    run, target = tmp_path / "run", tmp_path / "lists.csv"
    asked = "recommend", run, "--users", tmp_path / "users", "-k", 3
    done = mgformer(*asked, *files, "--out", target)
    assert pl.read_csv(target).select("user", "item").rows() == [(user, i) for i in ranked[6:9]]
    warnings = [line for line in done.stderr.splitlines() if line.startswith("warning: ")]
    rest = "are not in the training data, passed over, such as"
    assert sorted(warnings) == sorted(
        [
            f"warning: {tmp_path / 'some'}: 1 of 18 items {rest} 'new item'",
            f"warning: {tmp_path / 'never'}: 1 of 4 items {rest} 'gone item'",
            f"warning: {tmp_path / 'users'}: 2 of 3 users {rest} 'came later'",
        ]
    )
    (answer,) = json.loads(mgformer(*asked, "--exclude", tmp_path / "none", "--json").stdout)[
        "users"
    ]
    assert [item["item"] for item in answer["items"]] == ranked[:3]
    for arguments in (["--users", tmp_path / "none"], ["--all", "--candidates", tmp_path / "none"]):
        done = mgformer("recommend", run, *arguments)
        assert_one_line(done, "is in the training data; the first is 'no such id'")


@pytest.mark.usefixtures("small_blocks")
def test_parts_that_were_given_up_are_removed(recommender, tmp_path, monkeypatch):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    def write(k: int, name: str) -> None:
        write_lists(recommender, np.arange(150, dtype=np.int32), k, tmp_path / name)

    monkeypatch.setattr(recommender, "rank", interrupted)
    for name in ("lists.csv", "other.csv"):
        with pytest.raises(KeyboardInterrupt):
            write(4, name)
    monkeypatch.undo()
    monkeypatch.setattr(lists, "BLOCK_USERS", 100)
    (tmp_path / ".lists.csv.parts").mkdir()
    write(5, "lists.csv")
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left[0] == ".lists.csv.parts"
    assert left[1].startswith(".other.csv.")
    assert left[2:] == ["lists.csv"]
    write_whole(pl.DataFrame({"user": [1]}).lazy(), tmp_path / "other.csv")
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == [".lists.csv.parts", "lists.csv", "other.csv"]


@pytest.mark.usefixtures("small_blocks")
def test_what_is_excluded_is_a_part_of_the_question(recommender, tmp_path, monkeypatch):
    users, target = np.arange(150, dtype=np.int32), tmp_path / "lists.parquet"
    stop_at_100(recommender, users, target, monkeypatch)
    write_lists(recommender, users, 4, target, exclude=np.arange(300, dtype=np.int32))
    assert recommender.bundle.items.encode(pl.read_parquet(target)["item"]).min() >= 300


def test_nobody_gives_an_empty_file(recommender, tmp_path: Path):
    write_lists(recommender, np.zeros(0, dtype=np.int32), 4, tmp_path / "lists.parquet")
    assert pl.read_parquet(tmp_path / "lists.parquet").shape == (0, 4)
