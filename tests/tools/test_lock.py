"""The lock file agrees with constraints.txt, and the lowest versions with the metadata."""

import re
import tomllib
from pathlib import Path

from tools.audit import verdict
from tools.lock import LOCK, lock_text

ROOT = Path(__file__).parent.parent.parent


def pins(path: Path) -> dict[str, str]:
    lines = (line for line in path.read_text().splitlines() if line and line[0] != "#")
    named = (line.split(" ")[0].split("==") for line in lines)
    return {name.replace(".", "-"): version for name, version in named}


def test_the_lock_has_hashes_and_nothing_of_the_machine() -> None:
    lines = [line for line in LOCK.read_text().splitlines() if not line.startswith("#")]
    assert len(lines) > 80
    for line in lines:
        assert re.fullmatch(r"[a-z0-9-]+==[\w.!+]+ --hash=sha256:[0-9a-f]{64}", line), line
    assert "://" not in LOCK.read_text()


def test_the_lock_has_the_versions_of_the_constraints() -> None:
    locked, constrained = pins(LOCK), pins(ROOT / "constraints.txt")
    assert "torch" not in locked
    different = {name for name, version in constrained.items() if locked.get(name) != version}
    # The tests of mlflow have a server of their own, so nobody needs to install it.
    assert different == {"torch", "mlflow-skinny"}


def test_the_lowest_versions_are_those_of_the_metadata() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = {name: own for name, own in project["optional-dependencies"].items() if name != "dev"}
    bounds = {}
    for requirement in [*project["dependencies"], *(one for own in extras.values() for one in own)]:
        name, bound = re.match(r"([\w.-]+)>=([\d.]+)", requirement).groups()
        bounds[name.replace(".", "-")] = bound
    lowest = pins(ROOT / "constraints-lowest.txt")
    for name, bound in bounds.items():
        if name != "torch":  # its older versions have no CPU build everywhere
            assert re.fullmatch(rf"{re.escape(bound)}(\.0)*(\.post\d+)?", lowest[name]), name


def test_a_report_of_pip_becomes_a_lock() -> None:
    def package(name: str) -> dict[str, object]:
        archive = {"hashes": {"sha256": "0" * 64}}
        url = "file:///somewhere/x.whl"
        info = {"url": url, "archive_info": archive}
        return {"metadata": {"name": name, "version": "1.0"}, "download_info": info}

    text = lock_text({"install": [package("Two_Words"), package("torch"), package("a")]})
    rest = [line for line in text.splitlines() if not line.startswith("#")]
    assert rest == [f"{name}==1.0 --hash=sha256:{'0' * 64}" for name in ("a", "two-words")]


def test_an_audit_says_what_it_found_or_that_it_was_skipped() -> None:
    assert verdict("") == (
        0,
        "audit skipped: the database of vulnerabilities cannot be reached from here",
    )
    assert verdict('{"dependencies": [{"name": "a", "version": "1", "vulns": []}]}') == (
        0,
        "1 packages, no known vulnerability",
    )
    bad = '{"dependencies": [{"name": "a", "version": "1", "vulns": [{"id": "CVE-1"}]}]}'
    assert verdict(bad) == (1, "a 1: CVE-1")
