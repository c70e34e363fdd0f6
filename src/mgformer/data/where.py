"""Conditions on attributes: which items a list may contain.

People write text, programs write JSON. Both mean the same:

    genres has Comedy and (year >= 1990 or not brand in [Acme, 'Bolt & Co'])
    {"genres": {"has": "Comedy"}, "or": [{"year": {">=": 1990}}, {"not": {"brand": {"in": […]}}}]}

In JSON, the entries of an object must all hold. `{"brand": "Acme"}` is short for
`{"brand": {"=": "Acme"}}`, and `{"brand": ["Acme", "Bolt"]}` for `{"brand": {"in": […]}}`.

This module knows nothing of tables. `filters.py` finds the items.
"""

import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from mgformer.errors import ConfigError

Value = str | int | float | bool
OPERATORS = ("=", "!=", "<", "<=", ">", ">=", "in", "has")
MISSING = "is missing"
MOST_CONDITIONS = 100
"""Comparisons of one filter."""
MOST_VALUES = 10_000
"""Values of all comparisons of a filter together."""
DEEPEST = 20
"""Levels of nesting."""
LONGEST = 20_000
"""Characters of a filter that is text."""
LARGEST = sys.float_info.max


@dataclass(frozen=True)
class Compare:
    """A comparison of one attribute."""

    column: str
    operator: str
    values: tuple[Value, ...] = ()
    """One value; several with `in` and `has`; none with `is missing`."""


@dataclass(frozen=True)
class Not:
    """What does not hold."""

    inner: "Where"


@dataclass(frozen=True)
class All:
    """Conditions that hold together."""

    parts: tuple["Where", ...]


@dataclass(frozen=True)
class AnyOf:
    """Conditions of which one holds."""

    parts: tuple["Where", ...]


Where = Compare | Not | All | AnyOf


def read_where(given: "Where | str | Mapping[str, Any]") -> Where:
    """Return the condition that text or JSON describes."""
    if isinstance(given, Compare | Not | All | AnyOf):
        return given
    if isinstance(given, str):
        found = _from_text(given)
    elif isinstance(given, Mapping):
        found = _from_json(given, 0)
    else:
        _refuse(f"got {_shown(given)}", "text or an object")
    compared = _compared(found)
    if len(compared) > MOST_CONDITIONS:
        _refuse(f"got {len(compared)} comparisons", f"at most {MOST_CONDITIONS}")
    if (total := sum(len(one.values) for one in compared)) > MOST_VALUES:
        _refuse(f"got {total:,} values", f"at most {MOST_VALUES:,}")
    return found


def columns_of(where: Where) -> list[str]:
    """Return the attributes that a condition speaks of."""
    return list(dict.fromkeys(one.column for one in _compared(where)))


def _compared(where: Where) -> list[Compare]:
    if isinstance(where, Compare):
        return [where]
    if isinstance(where, Not):
        return _compared(where.inner)
    return [one for part in where.parts for one in _compared(part)]


def _refuse(got: str, expected: str) -> NoReturn:
    raise ConfigError(f"where: {got}, expected {expected}")


def _shown(value: object) -> str:
    try:
        text = repr(value)
    except (ValueError, RecursionError):
        return f"a {type(value).__name__} that is too long to show"
    return text if len(text) <= 60 else f"{text[:60]}…"


def _compare(column: str, operator: str, values: Sequence[Any]) -> Where:
    """Return a comparison whose values are plain."""
    for value in values:
        if not isinstance(value, str | int | float | bool):
            _refuse(f"got {_shown(value)} for {column}", "text, a number, true or false")
        # A whole number may be larger than any float.
        if isinstance(value, int | float) and not -LARGEST <= value <= LARGEST:
            _refuse(f"got {_shown(value)} for {column}", "a finite number")
        if isinstance(value, str) and any("\ud800" <= letter <= "\udfff" for letter in value):
            _refuse(f"got {_shown(value)} for {column}", "text that can be written as UTF-8")
    if operator == "!=":
        return Not(Compare(column, "=", tuple(values)))
    return Compare(column, operator, tuple(values))


def _from_text(text: str) -> Where:
    """Return the condition that text describes, which may be JSON too."""
    if len(text) > LONGEST:
        _refuse(f"got {len(text):,} characters", f"at most {LONGEST:,}")
    if not text.lstrip().startswith("{"):
        return _Text(text).whole()
    try:
        given = json.loads(text)
    except (ValueError, RecursionError) as error:  # also a number of more than 4,300 digits
        _refuse(f"got {_shown(text)} ({error})", "JSON, or text such as year >= 1990")
    return _from_json(given, 0)


# JSON


def _from_json(given: Mapping[str, Any], depth: int) -> Where:
    if depth > DEEPEST:
        _refuse("got objects nested too deeply", f"at most {DEEPEST} levels")
    if not given:
        _refuse("got an empty object", 'a condition such as {"year": {">=": 1990}}')
    parts = [part for name, value in given.items() for part in _entry(str(name), value, depth)]
    return parts[0] if len(parts) == 1 else All(tuple(parts))


def _entry(name: str, value: Any, depth: int) -> list[Where]:
    """Return the conditions of one entry of an object."""
    if name in ("and", "or"):
        if not isinstance(value, list | tuple) or not value:
            _refuse(f"got {_shown(value)} for {name}", "a list of objects")
        parts = tuple(_from_json(_object(one, name), depth + 1) for one in value)
        return [All(parts) if name == "and" else AnyOf(parts)]
    if name == "not":
        return [Not(_from_json(_object(value, name), depth + 1))]
    if value is None:
        return [Compare(name, MISSING)]
    if isinstance(value, list | tuple):
        return [_compare(name, "in", value)]
    if not isinstance(value, Mapping):
        return [_compare(name, "=", [value])]
    if not value:
        _refuse(f"got an empty object for {name}", f"operators: {', '.join(OPERATORS)}")
    found: list[Where] = []
    for operator, operand in value.items():
        if operator not in OPERATORS:
            _refuse(f"got {_shown(operator)} for {name}", f"operators: {', '.join(OPERATORS)}")
        if isinstance(operand, list | tuple):
            if operator not in ("in", "has"):
                _refuse(f"got a list for {name} {operator}", "one value")
            found.append(_compare(name, operator, operand))
        elif operator == "in":
            _refuse(f"got {_shown(operand)} for {name} in", "a list of values")
        else:
            found.append(_compare(name, operator, [operand]))
    return found


def _object(value: Any, name: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        _refuse(f"got {_shown(value)} in {name}", "an object")
    return value


# Text

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<mark><=|>=|!=|[=<>()\[\],])
      | '(?P<single>(?:[^'\\]|\\.)*)'
      | "(?P<double>(?:[^"\\]|\\.)*)"
      | `(?P<column>[^`]+)`
      | (?P<word>[^\s<>=!()\[\],'"`]+)
    )""",
    re.VERBOSE,
)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\Z")
_PADDED = re.compile(r"[+-]?0\d")  # such as a postal code
_WORDS = {"and", "or", "not", "in", "has", "is"}


class _Text:
    """Reads a condition from text: `or` binds least, then `and`, then `not`."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self.tokens = self._split(text)

    def _split(self, text: str) -> list[tuple[str, str, int]]:
        """Return kind, text and place of each token."""
        tokens, at = [], 0
        end = len(text.rstrip())
        while at < end:
            found = _TOKEN.match(text, at)
            if found is None:
                self._wrong(at, "a column, an operator or a value; close the quotes")
            kind = str(found.lastgroup)
            value = str(found[kind])
            if kind in ("single", "double"):
                kind, value = "quoted", re.sub(r"\\(.)", r"\1", value)
            tokens.append((kind, value, found.start(str(found.lastgroup))))
            at = found.end()
        return tokens

    def _wrong(self, at: int, expected: str) -> NoReturn:
        at += len(self.text[at:]) - len(self.text[at:].lstrip())
        rest = self.text[at : at + 30].strip()
        got = f"got {rest!r} at character {at + 1}" if rest else "got the end of the text"
        _refuse(f"{got} of {_shown(self.text)}", expected)

    def _next_is(self, *wanted: str) -> bool:
        """Return whether the next token is one of these words or marks, without quotes."""
        if self.at >= len(self.tokens):
            return False
        kind, value, _ = self.tokens[self.at]
        return kind in ("mark", "word") and value.lower() in wanted

    def _take(self, *wanted: str) -> bool:
        found = self._next_is(*wanted)
        self.at += found
        return found

    def _expect(self, wanted: str) -> None:
        if not self._take(wanted):
            self._unexpected(repr(wanted))

    def _unexpected(self, expected: str) -> NoReturn:
        place = self.tokens[self.at][2] if self.at < len(self.tokens) else len(self.text)
        self._wrong(place, expected)

    def whole(self) -> Where:
        if not self.tokens:
            _refuse("got nothing", "a condition such as year >= 1990")
        found = self._any(0)
        if self.at < len(self.tokens):
            self._unexpected("and, or, or the end")
        return found

    def _any(self, depth: int) -> Where:
        parts = [self._all(depth)]
        while self._take("or"):
            parts.append(self._all(depth))
        return parts[0] if len(parts) == 1 else AnyOf(tuple(parts))

    def _all(self, depth: int) -> Where:
        parts = [self._one(depth)]
        while self._take("and"):
            parts.append(self._one(depth))
        return parts[0] if len(parts) == 1 else All(tuple(parts))

    def _one(self, depth: int) -> Where:
        if depth > DEEPEST:
            _refuse("got a condition nested too deeply", f"at most {DEEPEST} levels")
        if self._take("not"):
            return Not(self._one(depth + 1))
        if self._take("("):
            found = self._any(depth + 1)
            self._expect(")")
            return found
        return self._comparison()

    def _comparison(self) -> Where:
        column = self._column()
        if self._take("is"):
            negated = self._take("not")
            self._expect("missing")
            missing = Compare(column, MISSING)
            return Not(missing) if negated else missing
        negated = self._take("not")  # brand not in [...]
        if self._take("in"):
            found = _compare(column, "in", self._list())
        elif self._take("has"):
            values = self._list() if self._next_is("[", "(") else [self._value()]
            found = _compare(column, "has", values)
        elif not negated and self._next_is("=", "!=", "<", "<=", ">", ">="):
            operator = self.tokens[self.at][1]
            self.at += 1
            found = _compare(column, operator, [self._value()])
        elif not negated and (self.at >= len(self.tokens) or self._next_is("and", "or", ")")):
            found = Compare(column, "=", (True,))  # a flag alone
        else:
            self._unexpected(f"one of {', '.join(OPERATORS)} after {column}")
        return Not(found) if negated else found

    def _column(self) -> str:
        if self.at < len(self.tokens):
            kind, value, _ = self.tokens[self.at]
            if kind in ("column", "word") and (kind == "column" or value.lower() not in _WORDS):
                self.at += 1
                return value
        return self._unexpected("a column; put names with spaces into `…`")

    def _list(self) -> list[Value]:
        close = ")" if self._next_is("(") else "]"
        self._expect("(" if close == ")" else "[")
        values = [self._value()]
        while self._take(","):
            values.append(self._value())
        self._expect(close)
        return values

    def _value(self) -> Value:
        if self.at < len(self.tokens):
            kind, value, _ = self.tokens[self.at]
            if kind == "quoted" or (kind == "word" and value.lower() not in _WORDS):
                self.at += 1
                return value if kind == "quoted" else _plain(value)
        return self._unexpected("a value; put text with spaces into quotes")


def _plain(word: str) -> Value:
    """Return a word without quotes as the number, the flag or the text that it is."""
    if word.lower() in ("true", "false"):
        return word.lower() == "true"
    if not _NUMBER.match(word) or _PADDED.match(word):
        return word
    number = float(word)
    if "." not in word and "e" not in word.lower() and len(word) < 20:
        return int(word)
    return number
