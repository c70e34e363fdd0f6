import difflib

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mgformer.data.ids import Ids, _owners, number
from mgformer.errors import DataError

texts = st.lists(st.text(min_size=1, max_size=5), min_size=1, max_size=40)
integers = st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=40)


@given(st.one_of(texts, integers, st.lists(st.integers(0, 5), max_size=40)))
def test_numbering_round_trips_and_follows_the_sorted_order(values):
    dtype = pl.String if values and isinstance(values[0], str) else pl.Int64
    ids, numbers = number(pl.Series("user", values, dtype=dtype))
    assert ids.values.to_list() == sorted(set(values))
    assert ids.decode(numbers).to_list() == values
    assert ids.encode(pl.Series(values, dtype=dtype)).tolist() == numbers.tolist()
    assert numbers.dtype == np.int32


def test_integers_may_span_more_than_64_bits():
    values = [2**63 - 1, -(2**63), 0, 2**63 - 1]
    ids, numbers = number(pl.Series("user", values))
    assert numbers.tolist() == [2, 0, 1, 2]
    assert ids.encode(values).tolist() == [2, 0, 1, 2]


def test_integers_beyond_63_bits_are_refused():
    with pytest.raises(DataError, match=rf"got the user id {2**64 - 1}.*write larger ids as text"):
        number(pl.Series("user", [1, 2**64 - 1], dtype=pl.UInt64))


def test_categoricals_are_numbered_like_their_strings():
    values = pl.Series(["b", "a", "b", "ä"])
    ids, numbers = number(values.cast(pl.Categorical))
    assert ids == Ids(pl.Series(["a", "b", "ä"]))
    assert numbers.tolist() == [1, 0, 1, 2]


@given(st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 3), max_size=60), st.integers(1, 6))
def test_equal_hashes_share_an_owner_even_in_a_crowded_table(values, bits):
    hashes = np.array(values, dtype=np.uint64)
    owners = _owners(hashes, bits)
    assert len(set(owners.tolist())) == len(set(values))
    assert hashes[owners].tolist() == values
    assert owners[owners].tolist() == owners.tolist()


def test_strings_with_equal_hashes_are_told_apart(monkeypatch):
    monkeypatch.setattr(
        pl.Series, "hash", lambda column: pl.Series([7] * len(column), dtype=pl.UInt64)
    )
    ids, numbers = number(pl.Series("user", ["b", "a", "b", "c"]))
    assert ids.values.to_list() == ["a", "b", "c"]
    assert numbers.tolist() == [1, 0, 1, 2]


@pytest.mark.parametrize("known", [["10", "7", "x"], [7, 10, 12]], ids=["text", "integers"])
def test_unknown_ids_are_minus_one(known):
    ids, _ = number(pl.Series(known))
    found = ids.encode(["10", "nobody", "7"])
    assert found[1] == -1
    assert ids.decode(found[[0, 2]]).cast(pl.String).to_list() == ["10", "7"]
    assert ids.encode([]).tolist() == []


def test_integers_are_looked_up_as_text_or_number():
    ids, _ = number(pl.Series([5, 6]))
    assert ids.encode(["6"]).tolist() == ids.encode([6]).tolist() == [1]
    assert not ids.are_text


def test_empty_ids():
    ids = Ids(pl.Series([], dtype=pl.String))
    assert ids.encode(["a"]).tolist() == [-1]
    assert ids.closest("a") == []


def test_closest_ids_in_a_large_table():
    ids, _ = number(pl.Series([f"user-{n}" for n in range(6_000)]))
    assert "user-4711" in ids.closest("user-47111")
    assert ids.closest("user-5999x")[0] == "user-5999"
    ids, _ = number(pl.Series(range(100_000, 106_000)))
    assert ids.closest("106001")[0] == "105961"
    assert ids.closest("nobody") == ids.closest(10**30) == []


@pytest.mark.parametrize("known", [["x" * 10, *(f"x{n}" for n in range(4_000))], range(4_000)])
def test_cost_of_suggestions_is_bounded(known, monkeypatch):
    compared = []

    def compare(wanted, others, **options):
        compared.append((len(wanted), len(list(others))))
        return []

    monkeypatch.setattr(difflib, "get_close_matches", compare)
    ids, _ = number(pl.Series(known))
    for wanted in ("x17y", "99999", "4000", "", "x" * 64, "9" * 512, "x" * 512):
        ids.closest(wanted)
    assert len(compared) == 5
    assert all(length <= 64 and others <= 200 for length, others in compared)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pl.Series("user", ["a", None]), "row 1: got no user id"),
        (pl.Series("user", [1.5]), "got a column of Float64"),
    ],
)
def test_bad_ids_are_refused(column, message):
    with pytest.raises(DataError, match=message):
        number(column)


@pytest.mark.parametrize("prepared", [False, True])
def test_single_lookups_agree_with_bulk_lookups(prepared):
    known = sorted({f"{chr(0x40 + n % 200)}{n}" for n in range(500)})
    ids = Ids(pl.Series(known).sort())
    if prepared:
        ids.prepare()
    asked = [*ids.values.gather([0, 250, 499]).to_list(), "", "zzzz", "\U0001f600", known[3] + "x"]
    numbers = ids.encode(asked)
    assert numbers.tolist() == [0, 250, 499, -1, -1, -1, -1]
    together = ids.encode([*asked, *known])
    assert together[: len(asked)].tolist() == numbers.tolist()
    assert ids.decode(together[len(asked) :]).to_list() == known


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a", ["a"]),
        ("a, b,,c ", ["a", "b", "c"]),
        ("a,b", ["a,b"]),
        ("b,a,b", ["b", "a,b"]),
        ("c,b,c,d,x", ["c", "b,c,d", "x"]),
        ("c, a,b ,b", ["c", "a,b", "b"]),
        ("x,y", ["x", "y"]),
        (" , ", []),
    ],
)
def test_the_longest_known_id_wins_in_a_list_with_commas(text: str, expected: list[str]) -> None:
    ids, _ = number(pl.Series("item", ["a", "b", "c", "a,b", "b,c,d"]))
    assert ids.split(text) == expected
    integers, _ = number(pl.Series("item", [5, 6, 7]))
    assert integers.split("5, 7") == ["5", "7"]
