"""Make lists for all users: `recommend --all` to a Parquet file, beside implicit's batched top-k.

    python -m benchmarks.batch [--users 1000000] [--threads 2] [--save]

Random vectors of 100,000 items × 64 channels. Users per second are measured on a sample of users.
Ours runs the code of the command, with ranking, ids and file. implicit runs its top-k in C++ on the
same vectors, with the same items masked and the same threads, and leaves its lists in memory.
With --users, the command itself runs on that many users instead; its peak memory is what the system
reports.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import polars as pl
import scipy.sparse as sp
import torch
from implicit.cpu.topk import topk as implicit_topk
from threadpoolctl import threadpool_limits

from benchmarks.measure import report
from benchmarks.synthetic import synthetic_bundle
from mgformer.experiments.timing import interleaved, median_ratio
from mgformer.recommend.batch import write_lists
from mgformer.recommend.query import ListOptions
from mgformer.runs.bundle import Bundle
from mgformer.runs.bundle_files import save_bundle

NUM_ITEMS, DIM, K = 100_000, 64, 20
PAIRS_OF_A_USER = 20
SAMPLE = 8_192
BATCH = 1_000  # users that implicit is given at a time


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=int, help="run the command on this many users instead")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--save", action="store_true", help="write results/benchmarks")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    threadpool_limits(options.threads)
    num_users = options.users or SAMPLE
    bundle = synthetic_bundle(num_users, NUM_ITEMS, DIM, PAIRS_OF_A_USER * num_users)
    if options.users:
        name, (rows, figures) = "everybody", by_command(bundle, options.threads)
    else:
        name, (rows, figures) = "batch", beside_implicit(bundle, options.threads, options.repeats)
    size = {"users": num_users, "items": NUM_ITEMS, "channels": DIM, "threads": options.threads}
    report(name, rows, {**size, **figures}, save=options.save)


def beside_implicit(
    bundle: Bundle, threads: int, repeats: int
) -> tuple[list[tuple[str, str]], dict[str, Any]]:
    """Compare the users per second of both."""
    users, items = (getattr(bundle.scorer, side).numpy() for side in ("users", "items"))
    known = sp.csr_matrix(bundle.known)  # implicit knows no sparse arrays
    with tempfile.TemporaryDirectory() as folder:

        def ours() -> None:
            write_lists(
                bundle, bundle.users.values, ListOptions(k=K), Path(folder) / "lists.parquet"
            )

        def theirs() -> None:
            for start in range(0, len(users), BATCH):
                rows = slice(start, min(start + BATCH, len(users)))
                seen = known[rows]
                implicit_topk(items, users[rows], K, filter_query_items=seen, num_threads=threads)

        seconds = interleaved({"mgformer": ours, "implicit": theirs}, repeats)
    ratio = median_ratio(seconds, "mgformer", "implicit")
    rates = {name: round(len(users) / median(own)) for name, own in seconds.items()}
    rows = [
        (f"users per second, lists in a file ({len(users):,} users)", f"{rates['mgformer']:,}"),
        ("the same, implicit, lists in memory", f"{rates['implicit']:,}"),
        ("time of mgformer ÷ implicit (at most 1)", f"{ratio:.2f}"),
    ]
    return rows, {"users_per_second": rates, "mgformer_to_implicit": round(ratio, 3)}


def by_command(bundle: Bundle, threads: int) -> tuple[list[tuple[str, str]], dict[str, Any]]:
    """Run `mgformer recommend --all` and measure its time, memory and file."""
    with tempfile.TemporaryDirectory() as folder:
        run, target = Path(folder) / "run", Path(folder) / "lists.parquet"
        save_bundle(bundle, run)
        vectors = sum(path.stat().st_size for path in run.glob("scorer-*")) / 1e6
        command = [sys.executable, "-m", "mgformer", "recommend", str(run), "--all", "-k", str(K)]
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
        start, highest = time.perf_counter(), 0
        with subprocess.Popen(
            [*command, "--out", str(target)], env=environment, stderr=subprocess.DEVNULL
        ) as process:
            status = Path(f"/proc/{process.pid}/status")
            while process.poll() is None:
                found = re.search(r"VmHWM:\s+(\d+) kB", status.read_text())
                highest = (
                    int(found[1]) if found else highest
                )  # a process that has ended has no VmHWM
                time.sleep(0.1)
        assert process.returncode == 0, "the command failed"
        seconds, memory = time.perf_counter() - start, highest * 1024 / 1e6
        size = target.stat().st_size / 1e6
        (num_lists,) = pl.scan_parquet(target).select(pl.col("user").n_unique()).collect().row(0)
        assert num_lists == len(bundle.users)
    rows = [
        ("users, and lists in the file", f"{num_lists:,}"),
        ("highest memory (VmHWM)", f"{memory:,.0f} MB"),
        ("of which vectors", f"{vectors:,.0f} MB"),
        ("file", f"{size:,.0f} MB"),
    ]
    return rows, {"seconds": round(seconds, 1), "peak_memory_mb": round(memory)}


if __name__ == "__main__":
    main()
