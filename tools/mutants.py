"""Check that tests notice wrong code: apply every mutant of `mutants.toml` and run its tests.

    python -m tools.mutants [--only WORD] [--save]

The tree is copied to a temporary folder, where one text after another is replaced. A mutant whose
tests still pass is a survivor, and the command fails. A text that is not found exactly once is an
error, so the list cannot rot. --save writes results/reliability/mutants.json.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tools.reliability import Row, save_rows
from tools.store import ROOT

LIST = Path(__file__).with_name("mutants.toml")
COPIED = (
    "src", "tests", "tools", "benchmarks", "configs", "docs", "results", "pyproject.toml",
    "README.md",
)  # fmt: skip
MOST_SECONDS = 600
FAILED = 1
"""The exit code of pytest if tests ran and some failed; others mean that they could not run."""


class Mutant(NamedTuple):
    """A wrong version of one place in the code."""

    area: str
    name: str
    file: str
    text: str
    into: str
    tests: list[str]


def main() -> None:
    """Run the tests of every mutant; exit with 1 if one survives."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="mutants with this word in area or name")
    parser.add_argument("--save", action="store_true", help="write results/reliability")
    options = parser.parse_args()
    mutants = [one for one in read_list() if options.only in f"{one.area} {one.name}"]
    for problem in problems(mutants):
        sys.exit(problem)
    survivors = []
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        tree = Path(folder)
        for name in COPIED:
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, tree / name)
        every_test = list(dict.fromkeys(test for one in mutants for test in one.tests))
        if run(tree, every_test):
            sys.exit("the tests fail without any mutant; mend them first")
        for number, mutant in enumerate(mutants, start=1):
            lives = not killed(mutant, tree)
            survivors += [mutant] if lives else []
            state = "SURVIVED" if lives else "killed"
            print(f"{number}/{len(mutants)} {state}: {mutant.area}: {mutant.name}", flush=True)
    print(f"{len(mutants)} mutants, {len(survivors)} survived")
    if options.save and not options.only:
        save_rows("mutants", [row_of(area, mutants, survivors) for area in areas(mutants)])
    sys.exit(1 if survivors else 0)


def read_list() -> list[Mutant]:
    """Return all mutants."""
    return [Mutant(**entry) for entry in tomllib.loads(LIST.read_text())["mutant"]]


def problems(mutants: Sequence[Mutant]) -> list[str]:
    """Return what is wrong with the list: texts that do not stand exactly once, missing tests."""
    found = []
    for mutant in mutants:
        count = (ROOT / mutant.file).read_text().count(mutant.text)
        if count != 1:
            found.append(
                f"{mutant.name}: its text stands {count} times in {mutant.file}, expected once;"
                " update tools/mutants.toml"
            )
        found += [
            f"{mutant.name}: there is no {test}"
            for test in mutant.tests
            if not (ROOT / test.partition("::")[0]).is_file()
        ]
    return found


def killed(mutant: Mutant, tree: Path) -> bool:
    """Return whether the tests of a mutant fail."""
    path = tree / mutant.file
    right = path.read_text()
    path.write_text(right.replace(mutant.text, mutant.into))
    try:
        return run(tree, mutant.tests) == FAILED
    finally:
        path.write_text(right)


def run(tree: Path, tests: Sequence[str]) -> int:
    """Run tests of a tree, and return the exit code of pytest."""
    # Python must not use bytecode of the code before: files change within a second.
    paths = f"{tree / 'src'}{os.pathsep}{tree}"
    environment = {**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1", "CI": "1"}
    command = [sys.executable, "-m", "pytest", "-qx", "-p", "no:cacheprovider", *tests]
    try:
        done = subprocess.run(
            command, cwd=tree, env=environment, capture_output=True, timeout=MOST_SECONDS
        )
    except subprocess.TimeoutExpired:
        return FAILED  # an endless loop is noticed too
    return done.returncode


def areas(mutants: Sequence[Mutant]) -> list[str]:
    """Return the areas of mutants, in the order of the list."""
    return list(dict.fromkeys(mutant.area for mutant in mutants))


def row_of(area: str, mutants: Sequence[Mutant], survivors: Sequence[Mutant]) -> Row:
    """Return what happened to the mutants of an area."""
    lived = [mutant.name for mutant in survivors if mutant.area == area]
    return Row(
        promise=f"Tests notice wrong code: {area}",
        test="tools/mutants.py",
        kind="mutants",
        tried=sum(mutant.area == area for mutant in mutants),
        lost=len(lived),
        note="; ".join(lived),
    )


if __name__ == "__main__":
    main()
