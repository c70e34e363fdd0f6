from contextlib import nullcontext

import numpy as np
import pandas as pd
import polars as pl
import pytest

from mgformer.data.dataset import open_dataset, read_dataset
from mgformer.data.ids import Ids
from mgformer.data.options import DataConfig
from mgformer.errors import DataError
from mgformer.progress import reporting

TRAIN = [("a", "x"), ("a", "y"), ("b", "x"), ("c", "z")]
VALID = [("b", "y")]
TEST = [("a", "z"), ("c", "x")]


def csv_text(pairs):
    return "user,item\n" + "".join(f"{user},{item}\n" for user, item in pairs)


def inter_text(pairs):
    rows = "".join(f"{user}\t{item}\n" for user, item in pairs)
    return "user_id:token\titem_id:token\n" + rows


def list_text(pairs):
    users = dict.fromkeys(user for user, _ in pairs)
    return "".join(f"{u} {' '.join(i for v, i in pairs if v == u)}\n" for u in users)


def folder(path, files):
    for name, content in files.items():
        if isinstance(content, pl.DataFrame):
            content.write_parquet(path / name)
        else:
            (path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def frame(pairs):
    return pl.DataFrame(pairs, schema=["user", "item"], orient="row")


def pairs_of(part):
    users, items = part.users.decode(part.rows), part.items.decode(part.indices)
    return list(zip(users, items, strict=True))


@pytest.mark.parametrize(
    ("names", "write"),
    [
        (("train.csv", "valid.csv", "test.csv"), csv_text),
        (("train.csv", "dev.csv", "TEST.CSV"), csv_text),
        (("train.parquet", "val.parquet", "test.parquet"), frame),
        (("ml.train.inter", "ml.validation.inter", "ml.test.inter"), inter_text),
        # Only the lines of train.txt differ in length, which identifies LightGCN's format.
        (("train.txt", "valid.txt", "test.txt"), list_text),
    ],
)
def test_parts_of_a_folder_share_ids(tmp_path, names, write):
    files = dict(zip(names, map(write, (TRAIN, VALID, TEST)), strict=True))
    dataset = read_dataset(folder(tmp_path, files | {"README.md": "hello"}))
    assert dataset.name == tmp_path.name
    assert {name: pairs_of(part) for name, part in dataset.parts.items()} == {
        "train": TRAIN,
        "valid": VALID,
        "test": TEST,
    }
    assert pairs_of(dataset.interactions) == sorted(TRAIN + VALID + TEST)
    for part in dataset.parts.values():
        assert part.users is dataset.parts["train"].users
        assert part.items == dataset.interactions.items


def test_fingerprint_depends_on_the_parts(tmp_path):
    def fingerprint(name, train, test):
        (tmp_path / name).mkdir()
        files = {"train.csv": csv_text(train), "test.csv": csv_text(test)}
        return read_dataset(folder(tmp_path / name, files)).fingerprint

    one = fingerprint("one", TRAIN, TEST)
    assert one == fingerprint("shuffled", TRAIN[::-1], TEST[::-1])
    swapped = fingerprint("swapped", [*TRAIN[1:], TEST[0]], [TRAIN[0], TEST[1]])
    assert one[:-6] == swapped[:-6]
    assert one != swapped
    pooled = read_dataset(frame(TRAIN + TEST))
    assert one[:-7] == pooled.fingerprint == pooled.interactions.fingerprint


def test_folder_with_one_file(tmp_path):
    files = {"ratings.csv": csv_text(TRAIN), "items.csv": "item,title\nx,Ex\nq,Unknown\n"}
    dataset = read_dataset(folder(tmp_path, files), name="mine")
    assert dataset.name == "mine"
    assert dataset.parts is None
    assert pairs_of(dataset.interactions) == TRAIN
    assert dataset.about_items.names.to_list() == ["Ex", None, None]


def test_train_part_alone_is_not_a_split(tmp_path):
    dataset = read_dataset(folder(tmp_path, {"train.csv": csv_text(TRAIN)}))
    assert dataset.parts is None
    assert len(dataset.interactions) == len(TRAIN)


def test_weights_of_parts_are_kept(tmp_path):
    files = {"train.csv": "user,item,count\na,x,3\n", "test.csv": "user,item,count\na,z,5\n"}
    assert read_dataset(folder(tmp_path, files)).interactions.weights.tolist() == [3.0, 5.0]


def test_every_source_gives_the_same_pairs(tmp_path):
    users, items = map(list, zip(*TRAIN, strict=True))
    (tmp_path / "a.csv").write_text(csv_text(TRAIN))
    sources = [
        tmp_path / "a.csv",
        frame(TRAIN),
        pd.DataFrame({"user": users, "item": items}),
        (users, items),
        (np.array(users), np.array(items), [1, 2, 3, 4], None),
    ]
    datasets = [read_dataset(source) for source in sources]
    assert len({dataset.fingerprint for dataset in datasets}) == 1
    assert [dataset.name for dataset in datasets] == ["a"] + ["data"] * 4
    assert datasets[-1].interactions.times.tolist() == [1, 2, 3, 4]


def test_rows_are_kept_if_asked_for(tmp_path):
    (tmp_path / "all.csv").write_text("user,item,time\nu,a,3\nu,b,1\nu,a,2\n")
    assert read_dataset(tmp_path / "all.csv").rows is None
    dataset = read_dataset(tmp_path / "all.csv", keep_rows=True)
    assert dataset.rows["time"].to_list() == [3, 1, 2]
    assert len(dataset.interactions) == 2
    demo = open_dataset("demo", keep_rows=True)
    assert demo.rows.height == len(demo.interactions) + demo.interactions.duplicates
    items = demo.interactions.items
    some, users = Ids(items.values[5:8]), demo.interactions.users
    about = demo.attributes_for(some, users)["about_items"]
    assert about.names.to_list() == demo.about_items.names[5:8].to_list()
    assert demo.attributes_for(items, users)["about_items"] is demo.about_items


def test_reading_reports_progress(tmp_path):
    seen = []

    def reporter(name, total):
        seen.append((name, total))
        return nullcontext(lambda amount: None)

    with reporting(reporter):
        read_dataset(frame(TRAIN))
    assert seen == [("reading", None)]


def test_ids_become_text_if_text_parts_differ_in_type(tmp_path):
    files = {"train.csv": "user,item\n1,5\n2,6\n1,B0\n", "test.csv": "user,item\n2,5\n"}
    dataset = read_dataset(folder(tmp_path, files))
    assert dataset.interactions.users.values.to_list() == [1, 2]
    assert dataset.interactions.items.values.to_list() == ["5", "6", "B0"]
    assert pairs_of(dataset.parts["test"]) == [(2, "5")]


def test_times_are_kept_only_if_all_parts_have_them(tmp_path):
    files = {"train.csv": "user,item,time\na,x,3\na,y,4\n", "test.csv": "user,item,time\na,z,5.5\n"}
    assert read_dataset(folder(tmp_path, files)).interactions.times.tolist() == [3.0, 4.0, 5.5]
    folder(tmp_path, {"test.csv": "user,item\na,z\n"})
    assert read_dataset(tmp_path).parts["train"].times is None


def test_new_items_give_a_warning_and_duplicates_are_counted(tmp_path, caplog):
    files = {"train.csv": csv_text([*TRAIN, TRAIN[0]]), "test.csv": csv_text([("a", "new")])}
    with caplog.at_level("INFO", logger="mgformer"):
        dataset = read_dataset(folder(tmp_path, files))
    assert dataset.parts["train"].duplicates == 1
    assert "merged 1 duplicate pairs of 5 rows" in caplog.text
    assert "test.csv: 1 items do not occur in train.csv" in caplog.text


PARTS = {"train.csv": csv_text(TRAIN), "test.csv": csv_text(TEST)}


@pytest.mark.parametrize(
    ("files", "options", "message"),
    [
        ({}, {}, "got nothing, expected train"),
        ({"test.csv": csv_text(TEST), "x.csv": csv_text(TRAIN)}, {}, "got test.csv, x.csv, expect"),
        ({"x.csv": csv_text(TEST), "y.csv": csv_text(TRAIN)}, {}, "got x.csv, y.csv, expected tra"),
        (PARTS | {"test.txt": "a z\n"}, {}, "both test.csv and test.txt as the test part"),
        (PARTS | {"val.csv": "", "dev.csv": ""}, {}, "both dev.csv and val.csv as the valid part"),
        (PARTS | {"test.csv": csv_text([*TEST, *TRAIN[1:3]])}, {}, "test.csv: got 2 pairs that are "
         "also in train.csv, for example user 'a' with item 'y'"),
        (PARTS | {"test.csv": csv_text([("new", "x")])}, {}, "test.csv: got 1 users without pairs "
         "in train.csv, for example 'new'.*remove them"),
        (PARTS, {"k_core": 2}, "got data.k_core=2 with given parts"),
        ({"train.parquet": frame([(1, 2)]), "test.parquet": frame([("1", 3)])}, {}, "test.parquet: "
         "got user ids of text where train.parquet has whole numbers"),
        (PARTS | {"valid.csv": "user,item\na\n"}, {}, "valid.csv:2: got 1 fields, expected 2"),
    ],
)  # fmt: skip
def test_errors_of_folders(tmp_path, files, options, message):
    with pytest.raises(DataError, match=message) as caught:
        read_dataset(folder(tmp_path, files), DataConfig(**options))
    assert "\n" not in str(caught.value)
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ((["a"],), "got 1 arrays"),
        ((["a"], ["x", "y"]), "different lengths"),
        ((["a", 1], ["x", "y"]), "mixed types"),
        ((["a", None], ["x", "y"]), "row 1: got no user id"),
        ((["a"], ["x"], ["noon"]), "got 'noon' as a time"),
        ("a.csv", "got str, expected a path"),
    ],
)
def test_errors_of_arrays(source, message):
    with pytest.raises(DataError, match=message):
        read_dataset(source)


def test_k_core_drops_rare_users_and_items():
    pairs = [(user, item) for user in "abc" for item in "xy"] + [("d", "x"), ("a", "rare")]
    dataset = read_dataset(frame(pairs), DataConfig(k_core=2))
    assert pairs_of(dataset.interactions) == sorted(pairs[:6])
    with pytest.raises(DataError, match=r"no pairs in the 9-core.*data.k_core=9"):
        read_dataset(frame(pairs), DataConfig(k_core=9))


NAMES = [("10", "Léon, the one"), ("12", "Heat")]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("n.csv", 'movieId,title,genres\n10,"Léon, the one",a|b\n12,Heat,c\n99,Other,\n'),
        ("n.tsv", "title\titem_id\nLéon, the one\t10\nHeat\t12\n"),
        ("n.dat", "10::Léon, the one::a|b\n12::Heat::c\n".encode("latin-1")),
        ("n.csv", "12;Heat\n10;Léon, the one\n"),
        ("n.jsonl", '{"asin": 10, "title": "Léon, the one"}\n{"asin": 12, "title": "Heat"}\n'),
        ("n.parquet", pl.DataFrame({"item": [10, 12], "name": ["Léon, the one", "Heat"]})),
    ],
)
def test_item_names_come_from_a_second_file(tmp_path, name, content):
    folder(tmp_path, {name: content})
    source = pl.DataFrame({"user": [1, 1, 1], "item": [10, 11, 12]})
    dataset = read_dataset(source, DataConfig(items=tmp_path / name))
    assert dataset.about_items.names.to_list() == ["Léon, the one", None, "Heat"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "expected ids and names or other columns"),
        ("item\n10\n", "n.csv:1: got fewer than two columns"),
    ],
)
def test_errors_of_item_names(tmp_path, content, message):
    folder(tmp_path, {"n.csv": content})
    with pytest.raises(DataError, match=message):
        read_dataset(frame(TRAIN), DataConfig(items=tmp_path / "n.csv"))
    with pytest.raises(DataError, match="got no such file"):
        read_dataset(frame(TRAIN), DataConfig(items=tmp_path / "m.csv"))


def test_without_pairs_the_rest_stays(tmp_path):
    files = {"train.csv": csv_text(TRAIN), "test.csv": csv_text(TEST)}
    dataset = read_dataset(folder(tmp_path, files))
    left = dataset.without_pairs()
    assert len(left.interactions) == 0
    assert left.parts is None
    assert left.fingerprint == dataset.fingerprint != left.interactions.fingerprint
    assert (left.interactions.users, left.interactions.items) == (
        dataset.interactions.users,
        dataset.interactions.items,
    )
