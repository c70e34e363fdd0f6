"""How long the command line takes to answer, as a multiple of starting Python.

    python -m benchmarks.startup

Rounds are interleaved, and the figures are medians.
"""

import json
import subprocess
import sys
import time
from statistics import median

ROUNDS = 20
COMMANDS = {
    "python -c pass": ["-c", "pass"],
    "mgformer --help": ["-m", "mgformer", "--help"],
    "mgformer train --help": ["-m", "mgformer", "train", "--help"],
    "mgformer models": ["-m", "mgformer", "models"],
    "mgformer datasets list": ["-m", "mgformer", "datasets", "list"],
}


def main() -> None:
    seconds: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(ROUNDS):
        for name, arguments in COMMANDS.items():
            start = time.perf_counter()
            subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
            seconds[name].append(time.perf_counter() - start)
    base = median(seconds["python -c pass"])
    ratios = {name: round(median(times) / base, 2) for name, times in seconds.items()}
    for name, ratio in ratios.items():
        print(f"{name:24} {median(seconds[name]) * 1000:7.1f} ms  {ratio:6.2f} ×")
    print(json.dumps({"benchmark": "startup", "rounds": ROUNDS, "ratios": ratios}))


if __name__ == "__main__":
    main()
