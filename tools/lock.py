"""Write requirements.lock: every package of the pinned environment, with the hash of its file.

    python -m tools.lock

pip resolves the direct dependencies of constraints.txt and reports the files that it would install.
The hashes are those of the files for this platform and this version of Python.

torch is left out. Its CPU and CUDA builds have the same version and different files, and which of
them is wanted depends on the machine. constraints.txt pins its version.
"""

import json
import platform
import re
import subprocess
import sys
from typing import Any

from tools.store import ROOT

LOCK = ROOT / "requirements.lock"
LEFT_OUT = ("mgformer", "torch")
HEADER = """\
# The pinned environment with hashes, for {system}, Python {python}; written by `make lock`.
# Install it with: pip install --no-deps --require-hashes -r requirements.lock
# torch is left out, because the file depends on the machine (CPU or CUDA): constraints.txt pins it.
"""


def main() -> None:
    """Resolve the environment and write the lock file."""
    command = [
        *(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
        *("--dry-run", "--ignore-installed", "--report", "-"),
        *("-c", str(ROOT / "constraints.txt"), "hatchling", f"{ROOT}[dev]"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"pip cannot resolve the environment: {done.stderr.strip()[-500:]}")
    report = json.loads(done.stdout[done.stdout.index("{") :])
    LOCK.write_text(lock_text(report), encoding="utf-8")
    print(f"written: {LOCK.name}")


def lock_text(report: dict[str, Any]) -> str:
    """Return the lock file of an installation report of pip."""
    lines = []
    for package in report["install"]:
        name = re.sub(r"[-_.]+", "-", package["metadata"]["name"]).lower()
        if name not in LEFT_OUT:
            digest = package["download_info"]["archive_info"]["hashes"]["sha256"]
            lines.append(f"{name}=={package['metadata']['version']} --hash=sha256:{digest}\n")
    python = ".".join(platform.python_version_tuple()[:2])
    system = f"{platform.system()} {platform.machine()}"
    return HEADER.format(system=system, python=python) + "".join(sorted(lines))


if __name__ == "__main__":
    main()
