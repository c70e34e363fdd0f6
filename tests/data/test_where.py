"""Conditions as text and as JSON."""

import pytest

from mgformer.data.where import (
    DEEPEST,
    LONGEST,
    MISSING,
    MOST_CONDITIONS,
    MOST_VALUES,
    All,
    AnyOf,
    Compare,
    Not,
    columns_of,
    read_where,
)
from mgformer.errors import ConfigError

SAME = [
    ("a = 1", {"a": 1}, Compare("a", "=", (1,))),
    ("a = true", {"a": True}, Compare("a", "=", (True,))),
    ("a", {"a": True}, Compare("a", "=", (True,))),
    ("a != x", {"a": {"!=": "x"}}, Not(Compare("a", "=", ("x",)))),
    ("a = '1'", {"a": "1"}, Compare("a", "=", ("1",))),
    ("a = 007", {"a": "007"}, Compare("a", "=", ("007",))),
    ("a = 9007199254740993", {"a": 2**53 + 1}, Compare("a", "=", (2**53 + 1,))),  # no float
    ("a >= -1.5e3", {"a": {">=": -1500.0}}, Compare("a", ">=", (-1500.0,))),
    ("a in [x, 'y z', 3]", {"a": ["x", "y z", 3]}, Compare("a", "in", ("x", "y z", 3))),
    ("a not in (x)", {"not": {"a": {"in": ["x"]}}}, Not(Compare("a", "in", ("x",)))),
    ("a has x", {"a": {"has": "x"}}, Compare("a", "has", ("x",))),
    ("a has [x, y]", {"a": {"has": ["x", "y"]}}, Compare("a", "has", ("x", "y"))),
    ("a is missing", {"a": None}, Compare("a", MISSING)),
    ("a IS NOT missing", {"not": {"a": None}}, Not(Compare("a", MISSING))),
    (
        "a=1 or b=2 and not c<3",
        {"or": [{"a": 1}, {"b": 2, "not": {"c": {"<": 3}}}]},
        AnyOf(
            (
                Compare("a", "=", (1,)),
                All((Compare("b", "=", (2,)), Not(Compare("c", "<", (3,))))),
            )
        ),
    ),
    (
        "(a=1 or b=2) and `c d` >= 2024-01-31",
        {"and": [{"or": [{"a": 1}, {"b": 2}]}, {"c d": {">=": "2024-01-31"}}]},
        All(
            (
                AnyOf((Compare("a", "=", (1,)), Compare("b", "=", (2,)))),
                Compare("c d", ">=", ("2024-01-31",)),
            )
        ),
    ),
    ('a = "it\'s \\"b\\""', {"a": 'it\'s "b"'}, Compare("a", "=", ('it\'s "b"',))),
]


@pytest.mark.parametrize(("text", "json", "expected"), SAME, ids=[text for text, *_ in SAME])
def test_text_and_json_say_the_same(text, json, expected):
    assert read_where(text) == read_where(json) == read_where(expected) == expected
    assert hash(read_where(text)) == hash(expected)


def test_json_may_be_text_too():
    assert read_where(' {"a": {">": 1, "<": 3}}') == read_where("a > 1 and a < 3")
    assert columns_of(read_where("b > 1 and (a or not b)")) == ["b", "a"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("", "got nothing, expected a condition such as"),
        ("a =", "got the end of the text of 'a =', expected a value"),
        ("a = 1 b", "got 'b' at character 7 of .* expected and, or, or the end"),
        ("a = 'x", r"got \"'x\" at character 5 .* close the quotes"),
        ("(a = 1", r"expected '\)'"),
        ("a in x", r"got 'x' .* expected '\['"),
        ("a like x", "got 'like x' .* expected one of =, !="),
        ("not", "expected a column"),
        ("and = 1", "got 'and = 1' .* expected a column"),
        ("a = and", "got 'and' .* expected a value"),
        ("{", r"got '\{' .* expected JSON, or text"),
        ({}, "got an empty object"),
        ([], "expected text or an object"),
        ({"a": {}}, "got an empty object for a"),
        ({"a": {"like": 1}}, "got 'like' for a, expected operators"),
        ({"a": {"in": 1}}, "got 1 for a in, expected a list"),
        ({"a": {">": [1]}}, "got a list for a >, expected one value"),
        ({"a": {"=": {"b": 1}}}, "expected text, a number, true or false"),
        ({"a": float("nan")}, "expected a finite number"),
        ({"a": 10**400}, r"got 10+… for a, expected a finite number"),
        ({"a": [1, -(10**5_000)]}, "got a int that is too long to show for a, expected a finite"),
        ('{"a": "\\ud800"}', r"got '\\ud800' for a, expected text that can be written as UTF-8"),
        ('{"a": ' + "1" * 5_000 + "}", "Exceeds the limit .* expected JSON"),
        ({"or": []}, "expected a list of objects"),
        ({"not": 1}, "got 1 in not, expected an object"),
        ("not " * (DEEPEST + 2) + "a", "nested too deeply"),
        ("(" * 5_000, "nested too deeply"),
        (" or ".join(["a"] * (MOST_CONDITIONS + 1)), f"at most {MOST_CONDITIONS}"),
        ({"a": list(range(MOST_VALUES + 1))}, f"at most {MOST_VALUES:,}"),
        ("a" * (LONGEST + 1), f"at most {LONGEST:,}"),
        ("{" + '"n":{' * 3_900, "expected JSON"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(given, message):
    with pytest.raises(ConfigError, match=message) as error:
        read_where(given)
    assert "\n" not in str(error.value)
    nested: dict = {"a": 1}
    for _ in range(DEEPEST + 2):
        nested = {"not": nested}
    with pytest.raises(ConfigError, match="nested too deeply"):
        read_where(nested)
