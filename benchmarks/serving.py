"""Time the service on vectors of the size of yelp2018, beside bare numpy.

    python -m benchmarks.serving [--dim 256 128 64] [--reload] [--save]

`mgformer serve` runs in its own process, with one worker and one thread. The client is another
process on the same machine. The limit is the work that any exact answer needs for one user, without
HTTP, ids or JSON: items @ user, mask seen items, argpartition, sort the k best; in numpy with one
thread. The limit is also timed at the pace of the service's test, to show what the machine itself
can do. With --reload, new bundles are loaded under load instead, and every answer is compared with
those of the two bundles.
"""

import argparse
import tempfile
import time
from collections.abc import Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from benchmarks.client import Reply, ask_in_turn, load, post, served
from benchmarks.measure import report
from benchmarks.reloading import reloading
from benchmarks.synthetic import YELP2018, synthetic_bundle
from mgformer.runs.bundle import Bundle
from mgformer.runs.bundle_files import save_bundle

K, HISTORY = 20, 20
CONNECTIONS = 32
WAYS = ("known user", "fold-in of 20 items")
ROWS = {
    "p50, one client": "{p50_ms:.2f} ms",
    "the same, in limits (at most 2)": "{to_limit:.2f}",
    "p99, one client": "{p99_ms:.2f} ms",
    f"requests per second, {CONNECTIONS} connections": "{requests_per_second:,.0f}",
    "p50 at half that rate": "{half_rate_p50_ms:.2f} ms",
    "p99 at half that rate (under 25 ms)": "{half_rate_p99_ms:.2f} ms",
    "p99 of the limit at that pace": "{limit_p99_ms:.2f} ms",
    "p99 of the service in these (at most 10)": "{p99_to_limit:.1f}",
}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dim", type=int, nargs="*", default=[256, 128, 64])
    parser.add_argument("--requests", type=int, default=1_000, help="requests of each round")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument(
        "--seconds",
        type=float,
        default=8.0,
        help="duration of the test at half of the highest rate",
    )
    parser.add_argument("--reload", action="store_true", help="load new bundles under load instead")
    parser.add_argument("--save", action="store_true", help="write results/benchmarks")
    options = parser.parse_args()
    torch.set_num_threads(1)
    threadpool_limits(1)
    name = "reloading" if options.reload else "serving"
    if options.reload:
        figures: dict[str, Any] = dict(reloading(10_000, options.dim[0]))
        columns, rows = ["", ""], [[label, f"{value:,}"] for label, value in figures.items()]
    else:
        found = {dim: measure(dim, options) for dim in options.dim}
        figures = {f"{dim} channels": own for dim, own in found.items()}
        columns, rows = ["", *WAYS], table_rows(found)
    stack = {
        package: version(package)
        for package in ("fastapi", "uvicorn", "uvloop", "httptools")
        if find_spec(package)
    }
    report(name, rows, figures, save=options.save, columns=columns, versions=stack)


def measure(dim: int, options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Return the figures for vectors of a size."""
    bundle = synthetic_bundle(dim=dim, **YELP2018)
    rng = np.random.default_rng(1)
    users = rng.integers(0, len(bundle.users), options.requests)
    histories = [rng.choice(len(bundle.items), HISTORY, replace=False) for _ in users]
    contents = (
        [{"user": user, "k": K} for user in bundle.users.decode(users)],
        [{"history": bundle.items.decode(items).to_list(), "k": K} for items in histories],
    )
    wire = {
        way: [post("/recommend", content) for content in own]
        for way, own in zip(WAYS, contents, strict=True)
    }
    with tempfile.TemporaryDirectory() as folder:
        save_bundle(bundle, Path(folder))
        with served(Path(folder)) as port:
            seconds = in_turn(port, wire, bundle, users, options.repeats)
            loaded = {way: under_load(port, wire[way], options) for way in WAYS}
    for own in loaded.values():
        rate = own["requests_per_second"] / 2
        moments = np.arange(int(rate * options.seconds)) / rate
        paced = bare(bundle, np.resize(users, len(moments)), moments)
        own["limit_p99_ms"] = 1e3 * float(np.quantile(paced, 0.99))
        own["p99_to_limit"] = own["half_rate_p99_ms"] / own["limit_p99_ms"]
    limit = [np.quantile(one, 0.5) for one in seconds["limit"]]
    figures = {"limit": {"p50_ms": 1e3 * median(limit)}}
    for way in WAYS:
        ours = [np.quantile(one, 0.5) for one in seconds[way]]
        figures[way] = {
            "p50_ms": 1e3 * median(ours),
            "p99_ms": 1e3 * median(np.quantile(one, 0.99) for one in seconds[way]),
            "to_limit": median(a / b for a, b in zip(ours, limit, strict=True)),
            **loaded[way],
        }
    return {
        way: {name: round(float(value), 3) for name, value in own.items()}
        for way, own in figures.items()
    }


def in_turn(
    port: int, wire: dict[str, list[bytes]], bundle: Bundle, users: NDArray[np.int64], repeats: int
) -> dict[str, list[list[float]]]:
    """Return the seconds of every request, round by round; a first round warms up."""
    seconds: dict[str, list[list[float]]] = {name: [] for name in (*wire, "limit")}
    for _ in range(repeats + 1):
        for way, requests in wire.items():
            seconds[way].append(checked(ask_in_turn(port, requests)))
        seconds["limit"].append(bare(bundle, users))
    return {name: rounds[1:] for name, rounds in seconds.items()}


def bare(
    bundle: Bundle, users: NDArray[np.int64], moments: NDArray[np.float64] | None = None
) -> list[float]:
    """Return the seconds of product, mask, partition and sort for each of the users.

    Without `moments` they follow one another. Otherwise each is due at its moment, in seconds from
    now, and its time counts from then.
    """
    known = bundle.known
    vectors, items = (getattr(bundle.scorer, side).numpy() for side in ("users", "items"))
    began, seconds = time.perf_counter(), []
    for n, user in enumerate(users):
        start = time.perf_counter()
        if moments is not None:
            time.sleep(max(0.0, began + moments[n] - start))
            start = began + moments[n]
        scores = items @ vectors[user]
        scores[known.indices[known.indptr[user] : known.indptr[user + 1]]] = -np.inf
        best = np.argpartition(scores, -K)[-K:]
        best[np.argsort(-scores[best])]
        seconds.append(time.perf_counter() - start)
    return seconds


def under_load(
    port: int, requests: Sequence[bytes], options: argparse.Namespace
) -> dict[str, float]:
    """Return the highest rate, and latencies at half of it."""
    rates = []
    for _ in range(options.repeats):
        start = time.perf_counter()
        checked(load(port, requests, CONNECTIONS))
        rates.append(len(requests) / (time.perf_counter() - start))
    half = median(rates) / 2
    many = [requests[n % len(requests)] for n in range(int(half * options.seconds))]
    seconds = checked(load(port, many, CONNECTIONS, half))
    return {
        "requests_per_second": median(rates),
        "half_rate_p50_ms": 1e3 * float(np.quantile(seconds, 0.5)),
        "half_rate_p99_ms": 1e3 * float(np.quantile(seconds, 0.99)),
    }


def checked(replies: Sequence[Reply]) -> list[float]:
    """Return the seconds; all replies must be OK."""
    assert all(reply.status == 200 for reply in replies)
    return [reply.seconds for reply in replies]


def table_rows(found: dict[int, dict[str, dict[str, float]]]) -> list[list[str]]:
    """Return the figures as rows of a table."""
    rows = []
    for dim, figures in found.items():
        rows.append([f"**{dim} channels**, limit {figures['limit']['p50_ms']:.2f} ms", "", ""])
        rows += [
            [label, *(form.format(**figures[way]) for way in WAYS)] for label, form in ROWS.items()
        ]
    return rows


if __name__ == "__main__":
    main()
