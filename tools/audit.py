"""Look up the packages of requirements.lock in the public database of vulnerabilities.

    python -m tools.audit

pip-audit does the work. Where its database cannot be reached, the audit is skipped with one line.
Exit codes: 0 nothing found, or skipped; 1 a package has a known vulnerability.
"""

import json
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from tools.lock import LOCK

MOST_SECONDS = 600


def main() -> None:
    """Audit the lock file, and print what was found."""
    with tempfile.TemporaryDirectory(prefix="audit-") as folder:
        venv.create(folder, with_pip=True)
        python = Path(folder) / "bin" / "python"
        try:
            quiet = ["--quiet", "--disable-pip-version-check"]
            _run(str(python), "-m", "pip", "install", *quiet, "pip-audit")
            text = _run(
                *(str(python), "-m", "pip_audit", "--format", "json", "--progress-spinner", "off"),
                *("--no-deps", "--disable-pip", "--require-hashes", "-r", str(LOCK)),
            )
        except subprocess.TimeoutExpired:
            text = ""
    code, message = verdict(text)
    print(message)
    sys.exit(code)


def verdict(text: str) -> tuple[int, str]:
    """Return the exit code and what to print for the output of pip-audit."""
    try:
        packages = json.loads(text)["dependencies"]
    except (ValueError, KeyError, TypeError):
        return 0, "audit skipped: the database of vulnerabilities cannot be reached from here"
    found = [
        f"{package['name']} {package.get('version')}: {problem['id']}"
        for package in packages
        for problem in package.get("vulns", ())
    ]
    if found:
        return 1, "\n".join(found)
    return 0, f"{len(packages)} packages, no known vulnerability"


def _run(*command: str) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=MOST_SECONDS, check=False
    )
    return done.stdout


if __name__ == "__main__":
    main()
