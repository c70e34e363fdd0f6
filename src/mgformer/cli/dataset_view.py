"""How a terminal shows the facts about a dataset."""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from mgformer.cli.console import out, print_table

APART = ("columns", "sample", "ratings", "notes", "left_out", "problem", "candidates", "try")
"""Facts that are no single line of the table."""
WIDEST_CELL = 24
WIDEST_TABLE = 200
BAR = 30
"""Characters of the longest bar of a histogram."""


def show_facts(facts: Mapping[str, Any]) -> None:
    """Print the columns and first rows, then one line for each other fact."""
    if facts.get("columns"):
        titles, *rows = columns_table(facts)
        print_table(titles, rows, num_text=len(titles))
        out.print("")
    elif facts.get("sample"):
        out.print("first lines:", style="bold")
        for row in facts["sample"]:
            out.print(f"  {_cut(' '.join(row), 76)}")
        out.print("")
    single = {n: v for n, v in facts.items() if n not in APART and v not in ({}, None)}
    if "problem" not in facts:
        print_table(["", ""], [[n, text(v)] for n, v in single.items()], num_text=2)
    if "ratings" in facts:
        _show_ratings(facts["ratings"])
    for note in facts.get("notes", ()):
        out.print(f"note: {note}")
    left_out = facts.get("left_out", {})
    if left_out.get("rows"):
        out.print(f"rows left out because they cannot be used: {left_out['rows']:,}; the first:")
        for line in left_out["first"]:
            out.print(f"  {line}")
    if facts.get("candidates"):
        _show_candidates(facts)


def columns_table(facts: Mapping[str, Any]) -> list[list[str]]:
    """Return one line for each column: what it is taken as, and its first values.

    Values are cut so that the table fits into the terminal, which would break words.
    """
    sample = facts["sample"]
    titles = ["column", "taken as", *(f"row {number}" for number in range(1, len(sample) + 1))]
    names = [_cut(column["name"]) or "(no name)" for column in facts["columns"]]
    roles = [column["taken_as"] for column in facts["columns"]]
    taken = sum(max(map(len, texts)) for texts in ([*names, titles[0]], [*roles, titles[1]]))
    width = out.width if out.is_terminal else WIDEST_TABLE
    room = (width - taken - 2) // max(1, len(sample)) - 2
    most = max(len(titles[-1]), min(room, WIDEST_CELL))
    rows = [
        [name, role, *(_cut(row[at] if at < len(row) else "", most) for row in sample)]
        for at, (name, role) in enumerate(zip(names, roles, strict=True))
    ]
    return [titles, *rows]


def _show_ratings(ratings: Mapping[str, Any]) -> None:
    how = "treated as likes, also low ones" if ratings["treated_as_likes"] else "used as a filter"
    out.print(f"\nratings in {ratings['column']}: {how}", style="bold")
    most = max(ratings["histogram"].values())
    rows = [
        [rating, f"{count:,}", "█" * max(1, round(BAR * count / most))]
        for rating, count in ratings["histogram"].items()
    ]
    width = max(len(rating) for rating, _, _ in rows), max(len(count) for _, count, _ in rows)
    for rating, count, bar in rows:
        out.print(f"  {rating:>{width[0]}}  {count:>{width[1]}}  {bar}")
    if "try" in ratings:
        out.print(
            f"to take only high ratings as likes: --set {ratings['try']} "
            f"leaves {ratings['pairs_left']:,} pairs"
        )


def _show_candidates(facts: Mapping[str, Any]) -> None:
    for role, names in facts["candidates"].items():
        out.print(f"{role}s may be in: {', '.join(map(_cut, names)) or 'none of the columns'}")
    if facts["try"]:
        settings = " ".join(f"--set {shlex.quote(setting)}" for setting in facts["try"])
        file = shlex.quote(str(facts["file"]))
        out.print(f"try: mgformer datasets show {file} {settings}")


def _cut(value: str, most: int = WIDEST_CELL) -> str:
    """Return text as it is, on one line, cut if it is long."""
    line = value.replace("\n", "\\n")
    return line if len(line) <= most else f"{line[: most - 1]}…"


def text(value: object) -> str:
    """Return a fact as a person reads it."""
    match value:
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:.2%}" if value < 1 else f"{value:g}"
        case {"from": first, "to": last, "written_as": unit}:
            return f"{first} to {last} ({unit})"
        case dict():
            return ", ".join(f"{part} {text(fact)}" for part, fact in value.items())
        case str():
            return repr(value) if not value.strip() else value
        case Sequence():
            return ", ".join(map(text, value))
        case None:
            return "not known"
    return str(value)
