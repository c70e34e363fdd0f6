"""Load the service for minutes, replace its bundle again and again, and watch its memory.

    python -m tools.soak [--minutes 10] [--rate 100] [--reload-seconds 10] [--save]

`mgformer serve` runs in its own process. Requests of all kinds, wrong ones too, come at a fixed
rate over some connections. The growth compares the median memory at the end with the median at the
end of the first minute (a third of shorter runs). --save writes results/reliability/soak.json.
"""

import argparse
import json
import re
import resource
import tempfile
import time
from collections import Counter
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.client import ask_in_turn, get, load, post, reloads, served
from threadpoolctl import threadpool_limits

from mgformer.recommend.recommender import Recommender
from tools.reliability import Row, save_rows

CONNECTIONS = 8
MOST_GROWTH = 2
"""In percent."""
MODELS = ("ials", "ease")
"""Bundles of these models take turns."""


def main() -> None:
    """Run, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--rate", type=float, default=100.0, help="requests per second")
    parser.add_argument("--reload-seconds", type=float, default=10.0, help="time between bundles")
    parser.add_argument("--save", action="store_true", help="write results/reliability")
    options = parser.parse_args()
    threadpool_limits(1)  # training on small data is slow with several threads
    recommenders = [Recommender.fit("demo", model) for model in MODELS]
    with tempfile.TemporaryDirectory() as place:
        recommenders[0].save(Path(place))
        with served(Path(place)) as port:
            found = soak(port, Path(place), recommenders, options)
    print(json.dumps({name: value for name, value in found.items() if name != "rss_mb"}))
    if options.save:
        save_rows("soak", rows_of(found))


def rows_of(found: dict[str, Any]) -> list[Row]:
    """Return the promises that the run put to the test."""
    early, late = found["rss_mb_after_first_minute"], found["rss_mb_at_end"]
    return [
        Row(
            promise="No request fails inside the service, also while bundles are replaced",
            test="tools/soak.py",
            kind="requests",
            tried=found["requests"],
            lost=found["server_errors"],
            note=f"{found['reloads']} reloads in {found['minutes']:.0f} minutes",
        ),
        Row(
            promise=f"The memory of the service grows by less than {MOST_GROWTH}%",
            test="tools/soak.py",
            kind="seconds",
            tried=round(60 * found["minutes"]),
            lost=int(found["growth_percent"] >= MOST_GROWTH),
            note=f"{early:.1f} MB after the first minute, {late:.1f} MB at the end",
        ),
    ]


def soak(
    port: int, folder: Path, recommenders: list[Recommender], options: argparse.Namespace
) -> dict[str, Any]:
    """Send requests and replace bundles until the time is over; return what was seen."""
    wire = requests(recommenders[0])
    part = [wire[n % len(wire)] for n in range(max(1, round(options.rate)))]  # of one second
    worker = pid(port)
    seconds: list[float] = []
    rss: list[float] = []
    statuses: Counter[int] = Counter()
    began = replaced = time.monotonic()
    bundles = 1
    while time.monotonic() < began + 60 * options.minutes:
        statuses.update(reply.status for reply in load(port, part, CONNECTIONS, options.rate))
        seconds.append(time.monotonic() - began)
        rss.append(rss_mb(worker))
        if time.monotonic() > replaced + options.reload_seconds:
            recommenders[bundles % len(recommenders)].save(folder)
            bundles, replaced = bundles + 1, time.monotonic()
    assert pid(port) == worker, "the worker has died"
    early, late = at_warm_up(seconds, rss), median(rss[-max(5, len(rss) // 20) :])
    return {
        "minutes": round(seconds[-1] / 60, 2),
        "requests": sum(statuses.values()),
        "statuses": {str(status): count for status, count in sorted(statuses.items())},
        "server_errors": sum(count for status, count in statuses.items() if status >= 500),
        "bundles_written": bundles,
        "reloads": reloads(port),
        "rss_mb_after_first_minute": round(early, 1),
        "rss_mb_at_end": round(late, 1),
        "growth_percent": round(100 * (late / early - 1), 2),
        "rss_mb": [round(value, 1) for value in rss],
    }


def requests(recommender: Recommender) -> list[bytes]:
    """Return requests of all kinds as they go over the wire."""
    bundle = recommender.bundle
    users, items = bundle.users.values[:40].to_list(), bundle.items.values[:40].to_list()
    wire = []
    for user, item in zip(users, items, strict=True):
        wire += [
            post("/recommend", {"user": user, "k": 10}),
            post("/recommend", {"user": user, "k": 5, "explain": True}),
            post("/recommend", {"history": [item, items[0]], "k": 10}),
            post("/recommend", {"history": [item], "candidates": items, "exclude": [item]}),
            post("/recommend/batch", {"users": users[:10], "k": 10}),
            post("/similar", {"item": item}),
            post("/recommend", {"user": f"nobody {user}"}),
            post("/recommend", {"user": user, "k": -1}),
            *(get(path) for path in ("/items?q=a", "/users?limit=5", f"/users/{user}")),
            *(get(path) for path in ("/model", "/metrics", "/", "/nothing", "/healthz")),
        ]
    return wire


def pid(port: int) -> int:
    """Return the process id of the worker."""
    (reply,) = ask_in_turn(port, [get("/metrics")])
    found = re.search(rb'worker="(\d+)"', reply.body)
    assert found, reply.body
    return int(found[1])


def rss_mb(process: int) -> float:
    """Return the resident memory of a process."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def at_warm_up(seconds: list[float], rss: list[float]) -> float:
    """Return the median memory around the end of the first minute, or third."""
    end = min(60.0, seconds[-1] / 3)
    near = [value for moment, value in zip(seconds, rss, strict=True) if end <= moment < end + 30]
    return median(near)


if __name__ == "__main__":
    main()
