"""Side-by-side measurement: what is compared runs in turn, in one process, on one machine."""

import gc
import json
import os
import platform
import resource
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch

from benchmarks.documents import ROOT, write_block
from mgformer.runs.record import commit_of_code


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


def report(
    name: str, rows: list[tuple[str, str]], figures: Mapping[str, Any], *, document: bool = False
) -> None:
    """Print a table for people, then one JSON line for machines.

    Args:
        name: Of the benchmark, and of its block in docs/performance.md.
        rows: What was measured, and how much it was.
        figures: The same for machines.
        document: Write the table into docs/performance.md too.
    """
    width = max(len(label) for label, _ in rows)
    for label, value in rows:
        print(f"{label:<{width}}  {value}")
    print(json.dumps({"benchmark": name, **figures, "machine": machine()}))
    if document:
        lines = ["| | |", "|---|---|", *(f"| {label} | {value} |" for label, value in rows)]
        text = "\n".join([*lines, "", f"{machine_line()}, commit {commit_of_code()}.", ""])
        write_block(ROOT / "docs" / "performance.md", name, text)
