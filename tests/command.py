"""Run the command line in tests, as a person would."""

import contextlib
import io
import re
import sys
from dataclasses import dataclass

import pytest

from mgformer.cli import main


@dataclass
class Done:
    """What a command left behind."""

    returncode: int
    stdout: str
    stderr: str


def mgformer(*arguments: object) -> Done:
    """Run the command line in this process: importing torch anew each time takes seconds."""
    out, err = io.StringIO(), io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        patch.setattr(sys, "argv", ["mgformer", *map(str, arguments)])
        try:
            main()
            code = 0
        except SystemExit as stop:
            code = int(stop.code or 0)
    return Done(code, out.getvalue(), err.getvalue())


def succeed(*arguments: object) -> str:
    done = mgformer(*arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def assert_one_line(done: Done, expected: str) -> None:
    assert done.returncode == 2, done
    assert done.stdout == ""
    last = last_line(done)
    assert last.startswith("error: ")
    assert expected in last


def last_line(done: Done) -> str:
    """The only line on stderr, apart from those that tell how a file was read."""
    *before, last = [line for line in done.stderr.splitlines() if line.strip()]
    assert all(re.search(": (columns|ignored): ", line) for line in before), done.stderr
    return last
