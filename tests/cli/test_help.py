"""Help answers at once, and says what the commands do."""

import importlib
import inspect
import json
import subprocess
import sys

import pytest

from mgformer.cli import COMMANDS, module_of
from tests.command import assert_one_line, mgformer, succeed

HEAVY = ("torch", "polars", "scipy")
INSTANT = [
    [],
    ["--help"],
    ["--version"],
    *([name, "--help"] for name in COMMANDS),
    *(["datasets", name, "--help"] for name in ("list", "show", "fetch")),
    ["models"],
    ["models", "--json"],
    ["datasets", "list"],
    ["datasets", "list", "--json"],
]
IMPORTED = f"""
import sys
from mgformer.cli import main
try:
    main()
finally:
    sys.stderr.write(" ".join(name for name in {HEAVY} if name in sys.modules))
"""


@pytest.mark.parametrize("arguments", INSTANT, ids=" ".join)
def test_help_and_lists_import_nothing_heavy(arguments: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED, *arguments], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize("flags", [[], ["-h"], ["--help"]])
def test_help_lists_every_command(flags: list[str]) -> None:
    shown = succeed(*flags)
    assert shown.startswith("Usage: mgformer COMMAND")
    lines = [line.strip() for line in shown.splitlines()]
    for name, summary in COMMANDS.items():
        assert f"{name:9}  {summary}" in lines
    assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_says_what_the_help_of_a_command_says(name: str) -> None:
    shown = succeed(name, "--help")
    assert shown.startswith(f"Usage: mgformer {name} ")
    assert COMMANDS[name] in shown
    module = importlib.import_module(module_of(name))
    if name != "datasets":
        assert inspect.getdoc(module.command).splitlines()[0] == COMMANDS[name]


def test_an_unknown_command_is_one_line() -> None:
    assert_one_line(mgformer("traine"), "unknown command 'traine'; did you mean train?")


def test_the_models_are_listed() -> None:
    listed = json.loads(succeed("models", "--json"))["models"]
    assert {"mgformer", "ease", "popularity"} <= {row["model"] for row in listed}
    shown = succeed("models")
    for row in listed:
        assert row["model"] in shown
        assert row["summary"] in shown


def test_the_options_of_a_model_have_type_default_and_meaning() -> None:
    about = json.loads(succeed("models", "itemknn", "--json"))
    assert (about["model"], len(about["options"])) == ("itemknn", 3)
    options = {option["option"]: option for option in about["options"]}
    assert options["num_neighbors"]["type"] == "int > 0"
    assert options["num_neighbors"]["default"] == 100
    assert options["weighting"]["type"] == "none | tfidf | bm25"
    assert options["shrink"]["tuned"]
    assert all(option["meaning"] for option in about["options"])
    shown = succeed("models", "itemknn")
    assert "model.shrink  float ≥ 0, default 10.0, tuned" in shown
    assert "it has no options" in succeed("models", "popularity")
    assert_one_line(mgformer("models", "itemkn"), "did you mean itemknn?")
