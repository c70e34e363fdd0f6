"""Filters find what a loop over all rows finds."""

from datetime import date, datetime

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mgformer.data.attributes import Attribute, Attributes
from mgformer.data.filters import Filters
from mgformer.data.where import MISSING, All, AnyOf, Compare, Not, Where, read_where
from mgformer.errors import ConfigError
from tests.data.oracles_filters import holds

SIZE = 37
rng = np.random.default_rng(5)


def some(values: list, dtype=None) -> pl.Series:
    drawn = [values[n] for n in rng.integers(0, len(values), SIZE)]
    return pl.Series([None if rng.random() < 0.2 else one for one in drawn], dtype=dtype)


DAYS = [date(2024, 1, 31), date(2024, 2, 1), date(1969, 7, 20)]
ABOUT = Attributes(
    {
        "brand": Attribute("category", some(["a", "b", "7"])),
        "genres": Attribute("categories", some([["x"], ["x", "y"], ["z", "y"], []])),
        "year": Attribute("number", some([1990, 1995, 2000, -3])),
        "price": Attribute("number", some([0.5, 2.0, 1e300])),
        "large": Attribute("number", some([2**62, 2**62 + 1])),
        "day": Attribute("date", some(DAYS)),
        "at": Attribute("date", some([datetime(2024, 1, 31, 9), datetime(2024, 1, 31)])),
        "sold": Attribute("flag", some([True, False])),
        "story": Attribute("text", some(["A long, long way", "So long!", "belonging", "a.b"])),
        "look": Attribute("embedding", some([[1.0, 2.0]], pl.Array(pl.Float32, 2))),
        "cost": Attribute("number", some([1, 2]), private=True),
    }
)
FILTERS = Filters(ABOUT, SIZE)
ORDER = ("=", "<", "<=", ">", ">=")
VALUES: dict[str, tuple[tuple[str, ...], list]] = {
    "brand": (("=",), ["a", "b", "c", 7, "7"]),
    "genres": ((), ["x", "y", "z", "w"]),
    "year": (ORDER, [1990, 1994.5, 2000, 10**30, -(10**30)]),
    "price": (ORDER, [0, 0.5, 2, 1e301]),
    "large": (ORDER, [2**62, 2**62 + 1, 2**70]),
    "day": (ORDER, ["2024-01-31", "1969-07-20", "2024-01-31T12:00"]),
    "at": (ORDER, ["2024-01-31", "2024-01-31T09:00:00"]),
    "sold": (("=",), [True, False]),
    "story": (("=",), ["a.b", "A long, long way", "long"]),
}


@st.composite
def comparisons(draw) -> Where:
    column = draw(st.sampled_from([*VALUES, "look"]))
    if column == "look" or draw(st.integers(0, 7)) == 0:
        return Compare(column, MISSING)
    operators, values = VALUES[column]
    several = [("has",)] if column in ("genres", "story") else []
    several += [("in",)] if column not in ("genres", "sold") else []
    if several and (not operators or draw(st.booleans())):
        (operator,) = draw(st.sampled_from(several))
        own = draw(st.lists(st.sampled_from(values), max_size=3))
        return Compare(column, operator, tuple(own))
    return Compare(column, draw(st.sampled_from(operators)), (draw(st.sampled_from(values)),))


CONDITIONS = st.recursive(
    comparisons(),
    lambda inner: st.one_of(
        inner.map(Not),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: All(tuple(parts))),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: AnyOf(tuple(parts))),
    ),
    max_leaves=6,
)


@settings(max_examples=300)
@given(CONDITIONS)
def test_filters_find_what_a_loop_finds(where: Where):
    rows = [{name: own.values[n] for name, own in ABOUT.items()} for n in range(SIZE)]
    assert FILTERS.mask(where).tolist() == [holds(where, row, ABOUT) for row in rows]


@pytest.mark.parametrize("test", [("in", (0, 2)), ("=", (0,)), ("<=", (0,))])
@pytest.mark.parametrize("column", ["year", "price"])
def test_a_missing_number_is_not_zero(column: str, test: tuple):
    found = FILTERS.mask(Compare(column, *test))
    missing = ABOUT[column].values.is_null().to_numpy()
    assert missing.any()
    assert not found[missing].any()


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("genre has x", r"got the attribute 'genre', expected one of brand.*did you mean genres\?"),
        ("genres = x", "genres is several categories, expected one of: has, is missing"),
        ("brand > a", "brand is a category, expected one of: =, in, is missing"),
        ("brand = 1.5", "got 1.5 for brand, expected text"),
        ("year = x", "got 'x' for year, which is a number, expected a number"),
        ("year = true", "got True for year, which is a number"),
        ("sold = 1", "got 1 for sold, which is true or false, expected true or false"),
        ("day > 2024", "got 2024 for day, which is a date, expected a date"),
        ("day > 2024-02-30", "expected a date"),
        ("look = 1", "look is an embedding, expected one of: is missing"),
    ],
)
def test_wrong_columns_and_types(where: str, message: str):
    FILTERS.mask(read_where("sold = true"))  # a cache must not take 1 for true
    with pytest.raises(ConfigError, match=message):
        FILTERS.mask(read_where(where))


def test_private_attributes_are_as_unknown_as_others():
    with pytest.raises(ConfigError) as private:
        FILTERS.mask(read_where("cost > 1"))
    with pytest.raises(ConfigError) as unknown:
        Filters(ABOUT.public, SIZE).mask(read_where("cost > 1"))
    assert str(private.value) == str(unknown.value)
    assert "one of brand, genres" in str(private.value)
    assert "cost," not in str(private.value)
    expected = [value == 2 for value in ABOUT["cost"].values]
    assert FILTERS.mask(read_where("cost > 1"), private=True).tolist() == expected
    with pytest.raises(ConfigError, match="expected none: there are no attributes"):
        Filters(Attributes(), 3).mask(read_where("a"))
