"""Files about items and users: what their columns are taken for, and what is refused."""

from datetime import date, datetime
from pathlib import Path

import polars as pl
import pytest

from mgformer.data.attribute_file import read_about
from mgformer.data.attributes import Attribute, Attributes, joined
from mgformer.data.dataset import read_dataset
from mgformer.data.ids import Ids
from mgformer.data.options import DataConfig
from mgformer.errors import DataError

CSV = """\
sku,title,brand,genres,price,stock,new,added,zip,story,look
7,Tea,Acme,a|b,1.5,3,yes,2024-01-31,0123,"A long tale of a small tea, told well","[1, 2]"
8,Jam (1999),,b,,4,no,,4567,,"[0.5, -1]"
9,,Bolt, c | a |,2e1,,true,2023-05-06,9999,Nobody knows,
"""
KINDS = {
    "name": "text",
    "brand": "category",
    "genres": "categories",
    "price": "number",
    "stock": "number",
    "new": "flag",
    "added": "date",
    "zip": "category",
    "story": "text",
    "look": "embedding",
}
VALUES = {
    "name": ["Tea", "Jam (1999)", None],
    "brand": ["Acme", None, "Bolt"],
    "genres": [["a", "b"], ["b"], ["c", "a"]],
    "price": [1.5, None, 20.0],
    "stock": [3, 4, None],
    "new": [True, False, True],
    "added": [date(2024, 1, 31), None, date(2023, 5, 6)],
    "zip": ["0123", "4567", "9999"],
    "story": ["A long tale of a small tea, told well", None, "Nobody knows"],
}


def table(folder: Path, content: str, name: str = "items.csv", **options) -> Attributes:
    (folder / name).write_text(content)
    return read_about(folder / name, "item", DataConfig(**options)).attributes


def plain(own: Attribute) -> list:
    return own.values.to_list()


def test_kinds_of_a_csv_are_detected(tmp_path: Path):
    found = table(tmp_path, CSV)
    assert {name: own.kind for name, own in found.items()} == KINDS
    for name, values in VALUES.items():
        assert plain(found[name]) == values
    assert found["stock"].values.dtype == pl.Int64
    assert plain(found["look"]) == [[1, 2], [0.5, -1], None]


def test_typed_files_give_the_same(tmp_path: Path):
    found = table(tmp_path, CSV)
    frame = pl.DataFrame({"sku": [7, 8, 9], "title": plain(found["name"])}).with_columns(
        own.values.alias(name) for name, own in found.items() if name != "name"
    )
    frame.write_parquet(tmp_path / "items.parquet")
    frame.with_columns(pl.col("added").cast(pl.String)).write_ndjson(tmp_path / "items.jsonl")
    for name in ("items.parquet", "items.jsonl"):
        other = read_about(tmp_path / name, "item", DataConfig()).attributes
        assert {column: own.kind for column, own in other.items()} == KINDS
        for column, own in other.items():
            assert own.values.equals(found[column].values), (name, column)


def test_years_are_taken_from_names(tmp_path: Path):
    content = "id,title\n1,Heat (1995)\n2,Alien (1979) \n3,Untitled\n"
    assert plain(table(tmp_path, content)["year"]) == [1995, 1979, None]
    assert "year" not in table(tmp_path, content, kinds={"year": "ignore"})
    assert "year" not in table(tmp_path, "id,title\n1,Heat (1995)\n2,Alien\n3,Jam\n")


def test_kinds_can_be_set_and_columns_ignored_or_private(tmp_path: Path):
    content = "id,code,note,cost\n1,5,x,2.5\n2,6,y,3\n"
    found = table(tmp_path, content, kinds={"code": "category", "note": "ignore"}, private=["cost"])
    assert plain(found["code"]) == ["5", "6"]
    assert list(found) == ["code", "cost"]
    assert list(found.public) == ["code"]


def test_many_different_words_are_text_and_few_are_categories(tmp_path: Path):
    rows = "".join(f"{n},word{n},brand{n % 40}\n" for n in range(200))
    found = table(tmp_path, f"id,nick,brand\n{rows}")
    assert (found["nick"].kind, found["brand"].kind) == ("text", "category")


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ("id,a,a\n1,2,3\n", {}, "items.csv:1: got the column 'a' twice"),
        ("id,a\n1,2\n2\n", {}, "items.csv:3: got 1 fields, expected 2"),
        ("id,\n1,2\n", {}, "got '' as the name of a column"),
        ("id,a\n1,x\n2,7\n", {"kinds": {"a": "number"}}, "csv:2: got 'x' in the column a, exp"),
        ("id,a\n1,1\n2,1e999\n", {"kinds": {"a": "number"}}, "csv:3: got '1e999' .* a number"),
        ("id,a\n1,2024-02-30\n", {"kinds": {"a": "date"}}, "csv:2: got '2024-02-30' .* a date"),
        ("id,a\n1,maybe\n", {"kinds": {"a": "flag"}}, "csv:2: .*expected true or false"),
        ('id,a\n1,"[1,2]"\n2,[3]\n', {}, "csv:3: .*equally long in every row"),
        ('id,a\n1,"[1,""x""]"\n', {}, "csv:2: .*a list of numbers"),
        ("id,a\n1,2\n", {"kinds": {"b": "number"}}, r"data.kinds: got the column 'b', expected"),
        ("id,cost\n1,2\n", {"private": ["costs"]}, r"data.private: .*did you mean cost\?"),
    ],
)
def test_what_is_refused_is_said_in_one_line(tmp_path: Path, content, options, message):
    (tmp_path / "items.csv").write_text(content)
    described = DataConfig(items=tmp_path / "items.csv", **options)
    with pytest.raises(DataError, match=message) as error:
        read_dataset((["u"], [1]), described)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"id": 2, "a": "x"}', "jsonl:2: got 'x' in the column a, expected values of one type"),
        ('{"id": 2, "a": {"b": 1}}', "jsonl:2: got {'b': 1} in the column a"),
    ],
)
def test_json_of_mixed_types_is_refused(tmp_path: Path, line, message):
    with pytest.raises(DataError, match=message):
        table(tmp_path, '{"id": 1, "a": 1}\n' + line, name="items.jsonl")


def test_attributes_follow_the_ids_of_the_dataset(tmp_path: Path):
    (tmp_path / "log.csv").write_text("user,item\nu,b\nv,a\nu,c\n")
    (tmp_path / "items.csv").write_text("id,price\nc,1\nx,9\na,5\nc,2\n")
    (tmp_path / "users.csv").write_text("user,age,city\nv,30,Rome\n")
    dataset = read_dataset(tmp_path, name="shop")
    assert plain(dataset.about_items["price"]) == [5, None, 2]  # the last row of c counts
    assert plain(dataset.about_users["age"]) == [None, 30]
    assert dataset.about_users["city"].kind == "category"
    renamed = DataConfig.model_validate({"item_names": "x.csv"})
    assert renamed.items == Path("x.csv")  # as records of older versions call it


def test_tables_are_joined_by_id():
    def one(ids: str, values: list) -> tuple[Ids, Attributes]:
        return Ids(pl.Series("id", list(ids))), Attributes(
            {"a": Attribute("number", pl.Series(values))}
        )

    wanted = Ids(pl.Series("id", list("abcd")))
    whole = joined([one("ab", [1, 2]), one("bc", [None, 3])], wanted)
    assert plain(whole["a"]) == [1, 2, 3, None]
    text = Attributes({"a": Attribute("category", pl.Series(["x"]))})
    mixed = joined([one("ab", [1, 2]), (Ids(pl.Series("id", ["d"])), text)], wanted)
    assert plain(mixed["a"]) == [None, None, None, "x"]


def test_times_are_in_utc(tmp_path: Path):
    found = table(tmp_path, "id,at\n1,2024-01-31T12:00:00+02:00\n2,2024-01-31\n")
    assert plain(found["at"]) == [datetime(2024, 1, 31, 10), datetime(2024, 1, 31)]
