"""Feed generated inputs to everything that reads them.

By default the inputs are few and always the same. With MGFORMER_FUZZ_SECONDS=n, every test goes on
for about n seconds with inputs of fresh seeds, and the counts are written to
results/reliability/fuzz.json: `make fuzz`.

A test asks for the fixture `fuzz` and calls `fuzz.run(strategy, check)`. `check` raises what the
code under test must not raise. A test that makes its inputs itself goes on until `fuzz.is_over()`
and calls `fuzz.count()` for each of them.
"""

import os
import secrets
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy
from tools.reliability import Row, rows_of, save_rows

T = TypeVar("T")
SECONDS = float(os.environ.get("MGFORMER_FUZZ_SECONDS") or 0)
PROMISES = {
    "test_readers.py": "A data file is read as Python's csv reads it, or refused in one line",
    "test_config.py": "An accepted config survives a round trip through TOML; others are refused",
    "test_bundles.py": "A changed bundle recommends, or is refused in one line",
    "test_http.py": "No request ends in a server error, and the service goes on",
}
SHORT, LONG = 100, 200
"""Inputs of a test by default, and inputs of one seed in a long run."""
targets: dict[str, dict[str, int]] = {}
"""Name of a test → the number of its inputs, and of those that failed."""


class Fuzz:
    """The inputs of one test."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.inputs = 0
        self._end = time.monotonic() + SECONDS

    def count(self, number: int = 1) -> None:
        """Count inputs that were tried."""
        self.inputs += number

    def is_over(self) -> bool:
        """Return whether the time of a long run is over; always true in a short one."""
        return time.monotonic() >= self._end

    def run(self, strategy: SearchStrategy[T], check: Callable[[T], None]) -> None:
        """Call `check` with inputs of the strategy; a failing one is made as small as possible."""

        def counted(value: T) -> None:
            self.count()
            check(value)

        options = settings(
            max_examples=LONG if SECONDS else SHORT,
            derandomize=not SECONDS,
            database=None,
            deadline=None,
            phases=[Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
        )
        while True:
            test = options(given(strategy)(counted))
            (seed(secrets.randbits(64))(test) if SECONDS else test)()
            if self.is_over():
                return


@pytest.fixture
def fuzz(request: pytest.FixtureRequest) -> Iterator[Fuzz]:
    inputs = Fuzz(request.node.nodeid.rpartition("/")[2])
    failed = request.session.testsfailed
    yield inputs
    # The report of this test is made before its fixtures are torn down.
    failures = request.session.testsfailed - failed
    targets[inputs.target] = {"inputs": inputs.inputs, "failures": failures}


def pytest_sessionfinish() -> None:
    if not (SECONDS and targets):
        return
    files: dict[str, dict[str, int]] = {}
    for target, found in targets.items():
        counts = files.setdefault(target.partition("::")[0], {"inputs": 0, "failures": 0})
        for name, number in found.items():
            counts[name] += number
    rows = [
        Row(
            promise=PROMISES.get(file, "Generated input is used, or refused in one line"),
            test=f"tests/fuzz/{file}",
            kind="requests" if file == "test_http.py" else "inputs",
            tried=counts["inputs"],
            lost=counts["failures"],
            note=f"about {SECONDS:g} seconds for each test of the file",
        )
        for file, counts in sorted(files.items())
    ]
    # What was not run now stays as it was, with its commit and date.
    others = [row for row in rows_of("fuzz") if row.test not in {new.test for new in rows}]
    save_rows("fuzz", sorted([*others, *rows], key=lambda row: row.test))
