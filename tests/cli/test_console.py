"""Ids and names come from others: what is printed must not command the terminal or the shell."""

import io
import json
import logging
import re
import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.live_render import LiveRender

from mgformer import bars
from mgformer.cli import console
from mgformer.cli.console import json_text, printable
from tests.command import mgformer, succeed

ODD = ["[bold]b[/bold]", ":smile:", "a b;$(touch x)", "it's", "\x1b[31mred", "a\x9b2Jb", "x\u202ey"]


def table(path: Path, users: list[str]) -> Path:
    records = [{"user": u, "item": f"{u}{n}"} for u in users for n in range(4)]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain é 😀 [bold] :smile:", "plain é 😀 [bold] :smile:"),
        ("two\nlines\t", "two\nlines\t"),
        ("\x1b[2J\x07\r", "\\x1b[2J\\x07\\r"),
        ("\x7f\x9b\u2028\u202e\u2066\udc80", "\\x7f\\x9b\\u2028\\u202e\\u2066\\udc80"),
    ],
)
def test_control_characters_become_escapes(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert json.loads(json_text([text])) == [text]
    assert json_text([text]).isascii() or "é" in text


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("odd ids")
    data = table(folder / "odd.jsonl", ODD)
    succeed(
        "train", data, "--model", "popularity", "--set", "split.test=0", "--out", folder / "run"
    )
    return folder / "run"


@pytest.mark.parametrize("user", ODD)
def test_ids_are_printed_as_they_are_and_obey_nobody(run: Path, user: str) -> None:
    text = succeed("recommend", run, "--user", user, "-k", 30)
    assert f"{printable(user)} already has: {printable(user)}0" in text
    assert f"recommended for {printable(user)}" in text
    for other in ODD:
        assert user == other or f"{printable(other)}1" in text
    assert not {"\x1b", "\x9b", "\u202e"} & set(text)
    as_json = succeed("recommend", run, "--user", user, "--json")
    assert json.loads(as_json)["users"][0]["user"] == user
    assert not {"\x1b", "\x9b", "\u202e"} & set(as_json)


def test_errors_obey_nobody(run: Path) -> None:
    done = mgformer("recommend", run, "--user", "\x1b[2J[bold]")
    assert done.returncode == 2
    assert "\\x1b[2J[bold]" in done.stderr
    assert "\x1b" not in done.stderr


@pytest.mark.parametrize("user", ["a b;$(touch x)", "it's", "-k", "[red]"])
def test_the_hint_after_training_can_be_pasted_into_a_shell(tmp_path: Path, user: str) -> None:
    data, folder = table(tmp_path / "a.jsonl", [user, "\x1b[2J", "\n"]), tmp_path / "a run"
    text = succeed("train", data, "--model", "popularity", "--set", "split.test=0", "--out", folder)
    assert "\x1b" not in text
    words = shlex.split(text.rpartition("try: ")[2])
    assert words == ["mgformer", "recommend", str(folder), "--user", user]
    assert f"for {user}" in succeed(*words[1:])


def test_there_is_no_hint_without_an_id_that_can_be_typed(tmp_path: Path) -> None:
    data = table(tmp_path / "a.jsonl", ["\x1b[2J", "\n"])
    text = succeed(
        "train", data, "--model", "popularity", "--set", "split.test=0", "--out", tmp_path / "run"
    )
    assert text.rstrip().endswith(f"saved in {tmp_path / 'run'}")


def screen(written: str) -> list[str]:
    """Return the lines that a terminal shows after lines, bars and the moves of its cursor."""
    rows, row = [""], 0
    for part in re.split(r"(\x1b\[[0-9;?]*[A-Za-z]|\r|\n)", written):
        if part == "\n":
            row += 1
            rows += [""] * (row + 1 - len(rows))
        elif part == "\x1b[2K":
            rows[row] = ""
        elif part == "\x1b[1A":
            row -= 1
        elif part != "\r" and not part.startswith("\x1b"):
            rows[row] += part
    return [line for line in rows if line]


def test_bars_and_lines_do_not_wipe_out_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"FORCE_COLOR": "1", "TERM": "xterm", "COLUMNS": "80"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(bars, "FRAME_SECONDS", 0.001)
    draw = LiveRender.__rich_console__

    def slowly(*arguments: Any) -> Iterator[Any]:
        time.sleep(0.002)  # time for the other thread to come between
        yield from draw(*arguments)

    monkeypatch.setattr(LiveRender, "__rich_console__", slowly)
    terminal = console._SafeConsole()
    terminal.file = io.StringIO()
    with bars.drawn_on(terminal) as reporter:
        for number in range(10):
            with reporter("outer", 3) as advance:
                terminal.print(f"line {number}")
                with reporter("inner", None), reporter("innermost", 2):
                    advance(1)
                    time.sleep(0.01)  # all bars are drawn
                terminal.print(f"another line {number}")
    expected = [f"{kind}line {number}" for number in range(10) for kind in ("", "another ")]
    assert screen(terminal.file.getvalue()) == expected


def test_what_is_said_of_a_split_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    with console.working():
        for name in ("mgformer.splits", "mgformer"):
            for _ in range(2):
                logging.getLogger(name).info("from %s", name)
    said = capsys.readouterr().err
    assert said.count("from mgformer.splits") == 1
    assert said.count("from mgformer\n") == 2
