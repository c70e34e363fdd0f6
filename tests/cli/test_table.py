"""Tables keep whole words and whole figures, whatever the width and the script."""

import os
import pty
import re
import struct
import subprocess
import sys
from fcntl import ioctl
from io import StringIO
from termios import TIOCSWINSZ

import pytest
from rich.cells import cell_len
from rich.console import Console

from mgformer.cli.table import aligned, fitted, wrapped

COMPARED = [
    ["model", "Recall@20", "NDCG@20", "p", "valid NDCG@20", "s/epoch", "s to best", "peak MB"],
    ["mgformer", "0.1530 ± 0.0012*", "0.0768 ± 0.0002*", "6e-22", "0.0712", "12.30", "120.5", "1"],
    ["ease", "0.1360 ± 0.0009", "0.0732 ± 0.0010", "–", "0.0705", "–", "3.1", "900"],
]  # fmt: skip
LIST = [
    ["item", "id", "score"],
    ["1. 東京物語 小津安二郎監督による日本の家族ドラマの名作", "tt0046438", "12.3456"],
    ["2. العربية قصة طويلة جدا للاختبار هنا في هذا السطر", "ar-1", "-0.1234"],
    ["3. The Fabulous Destiny of a Girl with a very Long Name", "a,b", "0.0000"],
]


def shown(rows: list[list[str]], num_text: int, width: int) -> list[str]:
    file = StringIO()
    console = Console(file=file, width=width, force_terminal=True, no_color=True, color_system=None)
    console.print(wrapped(rows, num_text, fitted(rows, num_text, width)))
    return file.getvalue().rstrip("\n").split("\n")


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
def test_figures_are_left_out_whole_or_not_at_all(width: int) -> None:
    lines = shown(COMPARED, 1, width)
    kept = len(fitted(COMPARED, 1, width))
    assert len(lines) == len(COMPARED)
    for line, row in zip(lines, COMPARED, strict=True):
        assert cell_len(line) <= width
        assert " ".join(line.split()) == " ".join(row[:kept])
    assert kept == {40: 2, 60: 4, 80: 6, 120: 8, 200: 8}[width]


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_text_wraps_between_words_and_ids_stay_whole(width: int) -> None:
    lines = shown(LIST, 2, width)
    assert all(cell_len(line) <= width for line in lines)
    text = "\n".join(lines)
    for row in LIST:
        assert row[1] in text
        assert row[2] in text
    words = {word for line in lines for word in line.split()}
    assert set(LIST[3][0].split()) <= words
    assert set(LIST[2][0].split()) <= words
    assert "…" not in text


def test_text_gives_way_before_a_long_id_is_broken() -> None:
    rows = [["name", "id", "score"], ["seven little words in this name here", "a" * 30, "1.0"]]
    assert fitted(rows, 2, 50) == [11, 30, 5]
    assert sum(fitted(rows, 2, 30)) == 30 - 2 * 2  # there is no other way


def test_a_file_gets_aligned_lines_of_any_length() -> None:
    lines = aligned(LIST, 2).split("\n")
    assert [len(line) for line in lines] == [len(line.rstrip()) for line in lines]
    assert len({cell_len(line) for line in lines}) == 1  # figures end in one column
    assert lines[3].split("  ")[0] == LIST[3][0]


def in_terminal(width: int, *arguments: str) -> str:
    """Return what a command shows in a terminal of this width."""
    ours, theirs = pty.openpty()
    ioctl(theirs, TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
    variables = {
        name: v for name, v in os.environ.items() if name not in ("COLUMNS", "FORCE_COLOR")
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "mgformer", *arguments],
        stdout=theirs, stderr=theirs, env={**variables, "TERM": "xterm", "NO_COLOR": "1"},
    )  # fmt: skip
    os.close(theirs)
    received = b""
    while True:
        try:
            part = os.read(ours, 1 << 16)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        received += part
    os.close(ours)
    assert process.wait() == 0
    return received.decode().replace("\r\n", "\n")


def test_a_narrow_terminal_breaks_lines_between_words() -> None:
    narrow, wide = (in_terminal(width, "models", "guided") for width in (60, 250))
    assert "\x1b[3" not in narrow  # NO_COLOR: bold and dim, but no colors
    narrow, wide = (re.sub(r"\x1b\[\d+m", "", text) for text in (narrow, wide))
    assert max(map(cell_len, narrow.split("\n"))) <= 60 < max(map(cell_len, wide.split("\n")))
    assert narrow.split() == wide.split()
