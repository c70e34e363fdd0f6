"""How long the command line takes to answer, as a multiple of starting Python.

    python -m benchmarks.startup [--save]

Rounds are interleaved, and the figures are medians.
"""

import argparse
import subprocess
import sys
import time
from statistics import median

from benchmarks.measure import report

ROUNDS = 20
PYTHON = "python -c pass"
COMMANDS = {
    PYTHON: ["-c", "pass"],
    "mgformer --help": ["-m", "mgformer", "--help"],
    "mgformer train --help": ["-m", "mgformer", "train", "--help"],
    "mgformer models": ["-m", "mgformer", "models"],
    "mgformer datasets list": ["-m", "mgformer", "datasets", "list"],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--save", action="store_true", help="write results/benchmarks")
    options = parser.parse_args()
    seconds: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(ROUNDS):
        for name, arguments in COMMANDS.items():
            start = time.perf_counter()
            subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
            seconds[name].append(time.perf_counter() - start)
    ratios = {name: median(times) / median(seconds[PYTHON]) for name, times in seconds.items()}
    rows = [
        [name, f"{1000 * median(seconds[name]):.1f} ms", f"{ratio:.2f}"]
        for name, ratio in ratios.items()
    ]
    columns = ("", "median", "in starts of Python")
    figures = {"rounds": ROUNDS, "ratios": ratios}
    report("startup", rows, figures, save=options.save, columns=columns)


if __name__ == "__main__":
    main()
