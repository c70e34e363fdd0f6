"""Lists of many users: written in parts, resumable, equal to the lists of single users."""

import json
import threading
from pathlib import Path

import polars as pl
import pytest

from mgformer.errors import BusyError
from mgformer.recommend import batch
from mgformer.recommend.batch import rank_users, write_lists, write_target
from mgformer.recommend.query import ListOptions
from mgformer.recommend.recommender import Recommender
from tests.command import assert_one_line, mgformer, succeed

READERS = {".parquet": pl.read_parquet, ".csv": pl.read_csv, ".jsonl": pl.read_ndjson}


@pytest.fixture(scope="module")
def recommender() -> Recommender:
    return Recommender.fit("demo", "ease")


def write(recommender, users, target, k=4, **options) -> None:
    """Write lists in blocks of 100 users."""
    wanted = ListOptions(k=k, **options)
    write_lists(recommender.bundle, users, wanted, target, block_users=100)


def ids_of(recommender, count: int) -> pl.Series:
    return recommender.bundle.users.values[:count]


@pytest.mark.parametrize("suffix", READERS)
def test_every_format_holds_the_lists_of_recommend(suffix, recommender, tmp_path: Path):
    users = ids_of(recommender, 250).reverse()
    target = tmp_path / f"lists{suffix}"
    write(recommender, users, target)
    expected = recommender.recommend(users, 4)
    found = READERS[suffix](target).cast(dict(expected.schema))
    assert found.equals(expected)
    assert [path.name for path in tmp_path.iterdir()] == [target.name]


def test_an_interrupted_call_continues_with_the_parts_that_exist(
    recommender, tmp_path, monkeypatch
):
    users, target = ids_of(recommender, 250), tmp_path / "lists.parquet"
    ranked = []

    def stopping(bundle, numbers, options):
        if len(ranked) == 2:
            raise KeyboardInterrupt
        ranked.append(numbers[0])
        return rank_users(bundle, numbers, options)

    monkeypatch.setattr(batch, "rank_users", stopping)
    with pytest.raises(KeyboardInterrupt):
        write(recommender, users, target)
    assert not target.exists()
    ranked.clear()
    write(recommender, users, target)
    assert ranked == [200]  # only the last block
    monkeypatch.undo()
    expected = recommender.recommend(users, 4)
    assert pl.read_parquet(target).equals(expected)


@pytest.mark.parametrize("parts", [1, 3, 8])
def test_shards_together_are_the_lists_of_all_users(parts, recommender, tmp_path: Path):
    recommender.save(tmp_path / "run")
    whole, target = tmp_path / "whole.parquet", tmp_path / "lists.parquet"
    calls = ["recommend", tmp_path / "run", "--all", "-k", 3]
    succeed(*calls, "--out", whole)
    for part in range(1, parts + 1):
        succeed(*calls, "--shard", f"{part}/{parts}", "--out", target)
    names = sorted(path.name for path in tmp_path.glob("lists*"))
    assert names == [f"lists-{part}-of-{parts}.parquet" for part in range(1, parts + 1)]
    found = pl.concat([pl.read_parquet(tmp_path / name) for name in names])
    assert found.equals(pl.read_parquet(whole))
    assert found.height == 3 * len(recommender.bundle.users)


def test_more_shards_than_users(recommender, tmp_path: Path):
    recommender.save(tmp_path / "run")
    users = ids_of(recommender, 2).to_list()
    (tmp_path / "users").write_text("\n".join(users))
    found = []
    for part in ("01", "02", "03", "11"):
        call = ["recommend", tmp_path / "run", "--users", tmp_path / "users", "--shard"]
        succeed(*call, f"{part}/11", "--out", tmp_path / "lists.csv", "-k", 1)
        found += pl.read_csv(tmp_path / f"lists-{part}-of-11.csv")["user"].to_list()
    assert found == users[1:]  # the others belong to parts 6 and 11


@pytest.mark.parametrize("shard", ["0/8", "9/8", "3", "3/0", "a/b", "-1/8", "1/8/2", "١/٨", ""])
def test_a_wrong_shard_is_one_line(shard, tmp_path: Path):
    result = mgformer("recommend", tmp_path / "run", "--all", f"--shard={shard}")
    assert_one_line(result, f"--shard {shard}: expected PART/PARTS")


def test_a_single_user_is_not_divided(tmp_path: Path):
    result = mgformer("recommend", tmp_path / "run", "--user", "u1", "--shard", "1/2")
    assert_one_line(result, "--shard divides the users of --all or --users FILE")


def stop_at_100(recommender, users, target, monkeypatch):
    """Start to write lists of four items, and stop after the first block."""

    def stopping(bundle, numbers, options):
        if numbers[0] == 100:
            raise KeyboardInterrupt
        return rank_users(bundle, numbers, options)

    with monkeypatch.context() as patch:
        patch.setattr(batch, "rank_users", stopping)
        with pytest.raises(KeyboardInterrupt):
            write(recommender, users, target)


def test_parts_of_a_call_with_other_candidates_are_not_used(recommender, tmp_path, monkeypatch):
    users, target = ids_of(recommender, 150), tmp_path / "lists.parquet"
    stop_at_100(recommender, users, target, monkeypatch)
    write(recommender, users, target, candidates=recommender.bundle.items.values[:30])
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


def test_unknown_ids_in_files_are_ignored_with_a_warning(recommender, tmp_path: Path):
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
    rest = "are not in the training data and are ignored, such as"
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


def test_parts_that_were_left_behind_are_removed(recommender, tmp_path, monkeypatch):
    def interrupted(*arguments):
        raise KeyboardInterrupt

    users = ids_of(recommender, 150)
    with monkeypatch.context() as patch:
        patch.setattr(batch, "rank_users", interrupted)
        for name in ("lists.csv", "other.csv"):
            with pytest.raises(KeyboardInterrupt):
                write(recommender, users, tmp_path / name)
    (tmp_path / ".lists.csv.parts").mkdir()
    write(recommender, users, tmp_path / "lists.csv", k=5)
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left[0] == ".lists.csv.parts"
    assert left[1].startswith(".other.csv.")
    assert left[2:] == ["lists.csv"]
    write_target(pl.DataFrame({"user": [1]}).lazy(), tmp_path / "other.csv")
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == [".lists.csv.parts", "lists.csv", "other.csv"]


def test_parts_of_a_call_with_other_exclusions_are_not_used(recommender, tmp_path, monkeypatch):
    users, target = ids_of(recommender, 150), tmp_path / "lists.parquet"
    stop_at_100(recommender, users, target, monkeypatch)
    write(recommender, users, target, exclude=recommender.bundle.items.values[:300])
    assert recommender.bundle.items.encode(pl.read_parquet(target)["item"]).min() >= 300


def test_no_users_give_an_empty_file(recommender, tmp_path: Path):
    write(recommender, [], tmp_path / "lists.parquet")
    assert pl.read_parquet(tmp_path / "lists.parquet").shape == (0, 5)


@pytest.mark.parametrize("damage", [b"", b"PAR1", None], ids=["empty", "short", "flipped"])
def test_a_damaged_part_is_written_again(damage, recommender, tmp_path, monkeypatch):
    users, target = ids_of(recommender, 150), tmp_path / "lists.parquet"
    stop_at_100(recommender, users, target, monkeypatch)
    (part,) = tmp_path.glob(".lists.parquet.*.parts/part-*.parquet")
    content = bytearray(part.read_bytes())
    content[len(content) // 2] ^= 1
    part.write_bytes(bytes(content) if damage is None else damage)
    (part.parent / "part-000001.parquet").write_bytes(b"")  # the form of earlier versions
    write(recommender, users, target)
    expected = recommender.recommend(users, 4)
    assert pl.read_parquet(target).equals(expected)
    assert [path.name for path in tmp_path.iterdir()] == [target.name]


def test_two_calls_do_not_write_one_target_at_once(recommender, tmp_path, monkeypatch):
    users, target = ids_of(recommender, 150), tmp_path / "lists.parquet"
    messages = []

    def meanwhile(bundle, numbers, options):
        def second() -> None:
            with pytest.raises(BusyError, match=r"lists\.parquet: process \d+ is writing") as error:
                write(recommender, users, target)
            messages.append(str(error.value))

        thread = threading.Thread(target=second)
        thread.start()
        thread.join()
        return rank_users(bundle, numbers, options)

    monkeypatch.setattr(batch, "rank_users", meanwhile)
    write(recommender, users, target)
    assert len(messages) == 2
    assert pl.read_parquet(target).height == 600
