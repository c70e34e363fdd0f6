"""Searching ignores case, accents and the width of letters, and finds the first rows."""

import re
import unicodedata

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mgformer.data import search
from mgformer.data.search import Searchable, folded

NAMES = ["Amélie", "Straße nach Łódź", "ＷＩＤＥ", "東京物語", "قِصَّة", "Élan vital", None, "plain"]
IDS = [f"id-{n}" for n in range(len(NAMES))]


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("amelie", [0]),
        ("AMÉLIE", [0]),
        ("e\u0301LAN", [5]),
        ("strasse NACH lodz", [1]),
        ("wide", [2]),
        ("京物", [3]),
        ("قصة", [4]),
        (" plain ", [7]),
        ("id-6", [6]),
        ("ID-", [0, 1, 2]),
        ("", [0, 1, 2]),
        ("id-0\nam", []),
        (".*", []),
        ("nobody", []),
    ],
)
def test_what_is_found(text: str, rows: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    for block in (1, 3, 1 << 16):
        monkeypatch.setattr(search, "BLOCK", block)
        assert Searchable(pl.Series(IDS), pl.Series(NAMES)).find(text, 3).to_list() == rows


@given(st.lists(st.text("aZ1 éÉßŁøςΣがガ한ﬁＡı\u0301قِ"), max_size=20))
def test_folding_takes_case_marks_and_width_away(texts: list[str]) -> None:
    def slowly(text: str) -> str:
        apart = unicodedata.normalize("NFKD", text.lower()).lower()
        kept = "".join(letter for letter in apart if not re.match(search.MARKS, letter))
        return "".join(search.PLAIN.get(letter, letter) for letter in kept)

    assert folded(pl.Series("text", texts, dtype=pl.String)).to_list() == [*map(slowly, texts)]


def test_numbers_are_found_as_text() -> None:
    found = Searchable(pl.Series(np.arange(90, 120))).find("11", 20)
    assert found.to_list() == list(range(20, 30))
