"""Side-by-side measurement: what is compared runs in turn, in one process, on one machine."""

import gc
import json
import os
import platform
import resource
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import polars as pl
import torch


def interleaved(tasks: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, list[float]]:
    """Run every task once per round and return the seconds of each; a first round warms up."""
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    for number in range(repeats + 1):
        for name, task in tasks.items():
            gc.collect()
            start = time.perf_counter()
            task()
            if number:
                seconds[name].append(time.perf_counter() - start)
    return seconds


def median_ratio(seconds: Mapping[str, list[float]], ours: str, theirs: str) -> float:
    """Return the median over rounds of the ratio within a round: a noisy minute hits both."""
    return median(a / b for a, b in zip(seconds[ours], seconds[theirs], strict=True))


def peak_memory_mb(task: Callable[[], object]) -> float:
    """Return how much resident memory grows at most while the task runs."""
    gc.collect()
    status = Path("/proc/self/statm")
    page = resource.getpagesize()

    def resident() -> int:
        return int(status.read_text().split()[1]) * page

    before = highest = resident()
    done = threading.Event()

    def watch() -> None:
        nonlocal highest
        while not done.wait(0.002):
            highest = max(highest, resident())

    watcher = threading.Thread(target=watch)
    watcher.start()
    task()
    done.set()
    watcher.join()
    return (max(highest, resident()) - before) / 1e6


def machine() -> dict[str, Any]:
    """Say what the figures were measured on."""
    model = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    return {
        "cpu": model[0] if model else platform.processor(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "polars": pl.__version__,
    }


def machine_line() -> str:
    """Return the same as words for a document."""
    found = machine()
    cores = f"{os.cpu_count()} cores"
    versions = ", ".join(f"{name} {found[name]}" for name in ("python", "torch", "numpy", "polars"))
    return f"{found['cpu']}, {cores}, {found['threads']} thread(s), {versions}"


def write_block(document: Path, name: str, lines: Iterable[str]) -> None:
    """Replace what stands in a document between the markers of a benchmark."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, found, rest = document.read_text().partition(begin)
    _, closed, after = rest.partition(end)
    assert found, f"{document} has no {begin}"
    assert closed, f"{document} has no {end}"
    document.write_text("\n".join([before + begin, *lines, end + after]))


def report(name: str, rows: list[tuple[str, str]], figures: Mapping[str, Any]) -> None:
    """Print a table for people, then one JSON line for machines."""
    width = max(len(label) for label, _ in rows)
    for label, value in rows:
        print(f"{label:<{width}}  {value}")
    print(json.dumps({"benchmark": name, **figures, "machine": machine()}))
