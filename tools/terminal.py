"""The picture of a terminal in the README: commands that are run, and what they print.

    python -m tools.terminal

Trains on the built-in data in a temporary folder, and writes docs/figures/terminal.svg. Nothing in
the picture is typed by hand. Progress and log lines, which go to stderr, are left out.
"""

import io
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

from mgformer.files import write_text

TARGET = Path(__file__).parent.parent / "docs/figures/terminal.svg"
COMMANDS = (
    "mgformer train demo --model guided --out runs/mine",
    "mgformer recommend runs/mine --user bella-787 -k 5",
    "mgformer similar runs/mine --item sailing-02 -k 3",
)
WIDTH = 88
"""Columns of the terminal."""
FONT = re.compile(r"@font-face \{.*?\}", flags=re.DOTALL)


def session(folder: Path) -> Text:
    """Run the commands in a folder, and return what a terminal shows."""
    settings = {**os.environ, "FORCE_COLOR": "1", "COLUMNS": str(WIDTH), "TERM": "xterm-256color"}
    shown = Text()
    for command in COMMANDS:
        _, *arguments = command.split()
        done = subprocess.run(
            [sys.executable, "-m", "mgformer", *arguments],
            cwd=folder,
            env=settings,
            capture_output=True,
            encoding="utf-8",
        )
        if done.returncode:
            raise SystemExit(f"{command} failed:\n{done.stderr}")
        shown.append("$ ", style="green").append(f"{command}\n", style="bold")
        shown.append_text(Text.from_ansi(done.stdout.strip())).append("\n\n")
    shown.rstrip()
    return shown


def picture(shown: Text) -> str:
    """Return text of a terminal as an SVG that loads nothing from elsewhere."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(shown, soft_wrap=True)
    drawn = console.export_svg(title="mgformer", unique_id="terminal")
    return FONT.sub("", drawn)


def main() -> None:
    """Run the commands and write the picture."""
    with tempfile.TemporaryDirectory() as folder:
        write_text(TARGET, picture(session(Path(folder))))
    print(f"wrote {TARGET}")


if __name__ == "__main__":
    main()
