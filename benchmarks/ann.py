"""Serve a large catalog with an index beside exact lists: recall, and requests per second.

    python -m benchmarks.ann [--items 1000000] [--dim 128] [--save]

Unit vectors are generated around centers, those of users and those of items around the same. Pairs
are random. The recall is that of lists from the service, against exact lists of the same
users. Both services have one worker and one thread, and run one after the other. The index is
built when the service starts.
"""

import argparse
import json
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from benchmarks.client import Reply, ask_in_turn, load, post, served
from benchmarks.measure import report
from benchmarks.synthetic import synthetic_bundle
from mgformer.ranking.scorers import DotScorer
from mgformer.runs.bundle import Bundle
from mgformer.runs.bundle_files import save_bundle

K, CONNECTIONS = 20, 32
SPREAD = 0.35
"""Length of what is added to a center, which has length 1."""
ITEMS_OF_A_CENTER = 250


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--users", type=int, default=100_000)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--pairs", type=int, default=1_000_000)
    parser.add_argument("--requests", type=int, default=500)
    parser.add_argument("--save", action="store_true", help="write results/benchmarks")
    options = parser.parse_args()
    torch.set_num_threads(1)
    threadpool_limits(1)
    bundle = clustered_bundle(options)
    users = np.linspace(0, options.users - 1, options.requests).astype(np.int64)
    asked = bundle.users.decode(users).to_list()
    wire = [post("/recommend", {"user": user, "k": K}) for user in asked]
    lists, rows, figures = {}, [], {}
    with tempfile.TemporaryDirectory() as folder:
        save_bundle(bundle, Path(folder))
        for kind in ("exact", "ann"):
            began = time.perf_counter()
            with served(Path(folder), "--index", kind, seconds=3_600) as port:
                ready = time.perf_counter() - began
                replies = ask_in_turn(port, wire)
                lists[kind] = [items_of(reply) for reply in replies]
                began = time.perf_counter()
                every = load(port, wire, CONNECTIONS)
                rate = len(every) / (time.perf_counter() - began)
            p50 = 1000 * median(reply.seconds for reply in replies)
            figures[kind] = {"start_seconds": ready, "p50_ms": p50, "requests_per_second": rate}
    hits = [len({*a} & {*b}) for a, b in zip(lists["exact"], lists["ann"], strict=True)]
    recall = sum(hits) / sum(map(len, lists["exact"]))
    for label, name, form in (
        ("start of the service", "start_seconds", "{:.0f} s"),
        ("p50, one client", "p50_ms", "{:.1f} ms"),
        (f"requests per second, {CONNECTIONS} connections", "requests_per_second", "{:,.0f}"),
    ):
        rows.append([label, *(form.format(figures[kind][name]) for kind in figures)])
    rows.append([f"recall@{K} of {len(asked)} users", "1", f"{recall:.4f}"])
    size = f"{options.items:,} items × {options.dim} channels"
    report(
        "ann",
        rows,
        {"items": options.items, "dim": options.dim, f"recall@{K}": recall, **figures},
        save=options.save,
        columns=[size, "exact", "index"],
    )


def items_of(reply: Reply) -> list[str]:
    """Return the items of an answer."""
    assert reply.status == 200, reply
    return [one["item"] for one in json.loads(reply.body)["items"]]


def clustered_bundle(options: argparse.Namespace) -> Bundle:
    """Return a bundle with unit vectors around centers."""
    bundle = synthetic_bundle(options.users, options.items, options.dim, options.pairs)
    random = np.random.default_rng(1)
    num = max(1, options.items // ITEMS_OF_A_CENTER)
    centers = unit(random.standard_normal((num, options.dim), dtype=np.float32))

    def around(number: int) -> torch.Tensor:
        noise = random.standard_normal((number, options.dim), dtype=np.float32)
        noise *= SPREAD / np.sqrt(options.dim)
        return torch.from_numpy(unit(centers[random.integers(0, num, number)] + noise))

    return replace(bundle, scorer=DotScorer(around(options.users), around(options.items)))


def unit(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return rows of length 1."""
    lengths: NDArray[np.float32] = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / lengths


if __name__ == "__main__":
    main()
