"""The first rows of a file are shown also if nobody knows which columns hold users and items."""

import json
from pathlib import Path

import polars as pl
import pytest

from mgformer.data.likes import ratings_of
from mgformer.data.options import DataConfig
from mgformer.data.preview import preview

OPTIONS = DataConfig()
ROWS = [("k17", "tea, green", "4,5", "01.02.2024"), ("k18", "jam", "3,0", "02.02.2024")]


def write(tmp_path: Path, content: str, name: str = "a.csv") -> Path:
    path = tmp_path / name
    path.write_text(content)
    return path


def german(tmp_path: Path, names: str = "kunde;artikel;note;datum") -> Path:
    lines = [";".join(row) for row in ROWS]
    return write(tmp_path, "\n".join([names, *lines, ""]))


def test_columns_that_are_known_are_named(tmp_path: Path) -> None:
    path = write(tmp_path, "\ufeffcustomer,product,stars,when,x\na,b,3,4,\n" * 1)
    found = preview(path, OPTIONS)
    assert (found.format, found.separator, found.problem) == ("csv", ",", None)
    assert found.columns == {"user": "customer", "item": "product", "time": "when"}
    assert found.unused_ratings == "stars"
    assert found.rows == [["a", "b", "3", "4", ""]]
    assert found.candidates == {}


def test_columns_that_are_not_known_have_candidates(tmp_path: Path) -> None:
    found = preview(german(tmp_path), OPTIONS)
    assert "got the columns kunde, artikel, note, datum, expected one of user ids" in found.problem
    assert found.rows == [list(row) for row in ROWS]
    # Numbers with a decimal comma and dates are no ids.
    assert found.candidates == {"user": ["kunde", "artikel"], "item": ["artikel"]}
    assert found.settings == ["data.user=kunde", "data.item=artikel"]
    named = preview(german(tmp_path), DataConfig(user="kunde", item="artikel"))
    assert (named.problem, named.columns) == (None, {"user": "kunde", "item": "artikel"})


def test_names_hint_at_users_and_items(tmp_path: Path) -> None:
    path = german(tmp_path, "my_products;cust_ref;note;datum")
    assert preview(path, OPTIONS).settings == ["data.user=cust_ref", "data.item=my_products"]
    # One of the two is known; the other is a guess.
    path = german(tmp_path, "customer;thing;note;datum")
    assert preview(path, OPTIONS).settings == ["data.user=customer", "data.item=thing"]


def test_text_that_may_be_names_or_data(tmp_path: Path) -> None:
    found = preview(write(tmp_path, "kunde,artikel\nann,tea\nbob,jam\n"), OPTIONS)
    assert "may be column names or data" in found.problem
    assert found.names == ["kunde", "artikel"]
    assert found.rows == [["ann", "tea"], ["bob", "jam"]]
    assert found.settings == ["data.user=kunde", "data.item=artikel"]


def test_files_without_a_header(tmp_path: Path) -> None:
    found = preview(write(tmp_path, "1,2,5\n3,4,6\n"), OPTIONS)
    assert found.columns == {"user": "column 0", "item": "column 1"}
    assert found.names == ["column 0", "column 1", "column 2"]
    assert len(found.rows) == 2


@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet"])
def test_other_formats(tmp_path: Path, name: str) -> None:
    records = [{"who": f"u{n}", "what": n % 3, "when": 10**9 + n} for n in range(9)]
    path = tmp_path / name
    if name == "a.parquet":
        pl.DataFrame(records).write_parquet(path)
    else:
        path.write_text("{\n" + "\n".join(map(json.dumps, records)))
    found = preview(path, OPTIONS)
    assert found.names == ["who", "what", "when"]
    assert found.rows == [[f"u{n}", str(n % 3), str(10**9 + n)] for n in range(5)]
    assert found.settings == ["data.user=who", "data.item=what"]


def test_lists_have_lines_and_no_columns(tmp_path: Path) -> None:
    found = preview(write(tmp_path, "1 2 3\n2 4\n", "a.txt"), OPTIONS)
    assert (found.format, found.names, found.columns) == ("lightgcn", (), {})
    assert found.rows == [["1", "2", "3"], ["2", "4"]]


def rated(tmp_path: Path, ratings: list[object]) -> Path:
    rows = [f"u{n // 2},i{n},{rating}\n" for n, rating in enumerate(ratings)]
    return write(tmp_path, "user,item,stars\n" + "".join(rows))


@pytest.mark.parametrize(
    ("ratings", "least", "left"),
    [
        ([1, 2, 3, 4, 5], 4, 2),
        ([0.5, 3.5, 4, 4.5, 5], 4, 3),
        ([*range(1, 11)], 8, 3),
        ([0, 1, 1], 1, 2),
        ([-1, 1], 1, 1),
        ([5, 5, 5], None, 3),
        ([1, "", "*", 5], 5, 1),
        (["4,5", "1,0"], 4.5, 1),
    ],
)
def test_a_threshold_for_likes_and_what_it_leaves(
    tmp_path: Path, ratings: list[object], least: float | None, left: int
) -> None:
    path = rated(tmp_path, [f'"{r}"' for r in ratings])
    found = ratings_of(path, OPTIONS, "stars")
    assert (found.least, found.pairs_left) == (least, left)
    assert sum(found.histogram.values()) == found.num_rows


def test_pairs_that_are_left_are_counted_once(tmp_path: Path) -> None:
    path = write(tmp_path, "user,item,stars\na,x,5\na,x,5\na,x,1\nb,x,1\n")
    found = ratings_of(path, OPTIONS, "stars")
    assert (found.pairs_left, found.histogram) == (1, {"1": 2, "5": 2})


def test_a_histogram_has_few_bars(tmp_path: Path) -> None:
    found = ratings_of(rated(tmp_path, [*range(101)]), OPTIONS, "stars")
    assert found.histogram == {f"{low:g}": 10 + (low == 90) for low in range(0, 100, 10)}


def test_a_column_without_numbers_has_no_ratings(tmp_path: Path) -> None:
    assert ratings_of(rated(tmp_path, ["good", "bad"]), OPTIONS, "stars") is None
