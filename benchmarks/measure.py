"""What all benchmarks share: memory, the machine, and the report."""

import gc
import json
import os
import platform
import resource
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch

from mgformer.files import write_text
from mgformer.runs.record import commit_of_code

ROOT = Path(__file__).parent.parent
SAVED = ROOT / "results" / "benchmarks"


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
    """Return what the figures were measured on."""
    model = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    return {
        "cpu": model[0] if model else platform.processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "polars": pl.__version__,
    }


def report(
    name: str,
    rows: Sequence[Sequence[str]],
    figures: Mapping[str, Any],
    *,
    save: bool = False,
    columns: Sequence[str] = ("", ""),
    versions: Mapping[str, str] | None = None,
) -> None:
    """Print a table for people, then one JSON line for machines.

    Args:
        name: Name of the benchmark.
        rows: The table: a label, then a value for each of the other columns.
        figures: The same for machines.
        save: Write the JSON to results/benchmarks too, from where documents are rendered.
        columns: Heads of the columns.
        versions: Packages that matter besides those that always do.
    """
    lines = [columns, *rows] if any(columns) else list(rows)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)))
    found = {
        "benchmark": name,
        "columns": list(columns),
        "rows": [list(row) for row in rows],
        "figures": figures,
        "machine": {**machine(), **(versions or {})},
        "commit": commit_of_code(),
    }
    print(json.dumps(found, ensure_ascii=False))
    if save:
        SAVED.mkdir(parents=True, exist_ok=True)
        write_text(SAVED / f"{name}.json", json.dumps(found, indent=1, ensure_ascii=False) + "\n")
