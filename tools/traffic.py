"""Two models, feedback and new bundles under load, and a kill in the middle: is anything lost?

    python -m tools.traffic [--requests 10000] [--save]

`mgformer serve a=… b=… --share … --feedback …` runs in its own process. Clients send lists,
batches, unknown users and feedback over some connections, while both bundles are replaced again and
again. In the end the process is killed with SIGKILL under load. Then every accepted interaction
must be in the log, each once, and every user must have been answered by one model only. --save
writes results/reliability/traffic.json.
"""

import argparse
import json
import os
import signal
import tempfile
import threading
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

from benchmarks.client import HOST, reloads, serving
from threadpoolctl import threadpool_limits

from mgformer.data.formats.feedback import entries_of, files_of
from mgformer.recommend.recommender import Recommender
from tools.reliability import Row, save_rows

CONNECTIONS = 8
SHARES = {"a": 0.7, "b": 0.3}
RELOAD_SECONDS = 2.0
AFTER = 500
"""Accepted interactions after which the process is killed, once all requests are answered."""


@dataclass
class Seen:
    """What clients have seen."""

    statuses: Counter[int] = field(default_factory=Counter)
    accepted: list[str] = field(default_factory=list)
    """Users of accepted interactions; each is sent once."""
    models: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    lock: threading.Lock = field(default_factory=threading.Lock)
    broken: int = 0
    """Requests without an answer before the kill."""


def main() -> None:
    """Run, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--save", action="store_true", help="write results/reliability")
    options = parser.parse_args()
    threadpool_limits(1)  # training on small data is slow with several threads
    turns = [Recommender.fit("demo", "ials", seed=seed) for seed in (0, 1)]
    with tempfile.TemporaryDirectory() as place:
        found = try_it(Path(place), turns, options.requests)
    print(json.dumps(found))
    if options.save:
        save_rows("traffic", rows_of(found))


def rows_of(found: dict[str, Any]) -> list[Row]:
    """Return the promises that the run put to the test."""
    return [
        Row(
            promise="No request fails with two models, feedback and reloads under load",
            test="tools/traffic.py",
            kind="requests",
            tried=found["requests"],
            lost=found["failed"],
            note=f"{found['reloads']} reloads",
        ),
        Row(
            promise="Every accepted interaction is in the log after kill -9",
            test="tools/traffic.py",
            kind="interactions",
            tried=found["accepted"],
            lost=found["lost"] + found["doubled"],
            note=f"{found['torn_lines']} torn lines were left out",
        ),
        Row(
            promise="A user is answered by one model only",
            test="tools/traffic.py",
            kind="users",
            tried=found["users"],
            lost=found["users_with_two_models"],
        ),
    ]


def try_it(place: Path, turns: list[Recommender], requests: int) -> dict[str, Any]:
    """Serve, load, replace, kill; return what was seen and what is in the log."""
    for name in SHARES:
        turns[0].save(place / name)
    users = turns[0].bundle.users.values.to_list()
    seen, ended, killed = Seen(), threading.Event(), threading.Event()
    arguments = [
        *(f"{name}={place / name}" for name in SHARES),
        *(part for name, share in SHARES.items() for part in ("--share", f"{name}={share}")),
        *("--feedback", str(place / "feedback")),
    ]
    with serving(*arguments) as (port, process):
        began = time.monotonic()
        numbers = iter(range(requests))
        clients = [
            threading.Thread(target=ask, args=(port, n, numbers, users, seen, killed))
            for n in range(CONNECTIONS)
        ]
        writer = threading.Thread(target=replace_bundles, args=(place, turns, ended))
        for thread in (*clients, writer):
            thread.start()
        for thread in clients:
            thread.join()
        seconds = time.monotonic() - began
        seen_before, num_reloads = Counter(seen.statuses), reloads(port)
        failed = seen.broken + sum(count for status, count in seen_before.items() if status >= 500)
        # Now feedback only, and the kill in the middle of it.
        clients = [
            threading.Thread(target=ask, args=(port, n, None, users, seen, killed))
            for n in range(CONNECTIONS)
        ]
        already = len(seen.accepted)
        for thread in clients:
            thread.start()
        while len(seen.accepted) < already + AFTER:
            time.sleep(0.001)
        killed.set()
        os.kill(process.pid, signal.SIGKILL)
        for thread in clients:
            thread.join()
        ended.set()
        writer.join()
    stored: Counter[str] = Counter()
    torn = 0
    for path in files_of(place / "feedback"):
        for _, entry in entries_of(path):
            if entry is None:
                torn += 1
            else:
                stored[entry["user"]] += 1
    return {
        "requests": sum(seen_before.values()) + seen.broken,
        "statuses": {str(status): count for status, count in sorted(seen_before.items())},
        "failed": failed,
        "seconds": round(seconds, 1),
        "requests_per_second": round(requests / seconds, 1),
        "reloads": num_reloads,
        "accepted": len(seen.accepted),
        "lost": sum(user not in stored for user in seen.accepted),
        "doubled": sum(stored[user] > 1 for user in seen.accepted),
        "stored": stored.total(),
        "torn_lines": torn,
        "users": len(seen.models),
        "users_with_two_models": sum(len(models) > 1 for models in seen.models.values()),
        "answers": dict(Counter(model for own in seen.models.values() for model in own)),
    }


def ask(
    port: int,
    client: int,
    numbers: Any,
    users: list[str],
    seen: Seen,
    killed: threading.Event,
) -> None:
    """Send requests until the numbers are used up; without numbers, feedback until the kill."""
    connection = HTTPConnection(HOST, port, timeout=120)
    own = 0
    while True:
        if numbers is None:
            number, kind = own, 0
        else:
            with seen.lock:
                number = next(numbers, -1)
            if number < 0:
                break
            kind = number % 5
        own += 1
        new = f"{'late' if numbers is None else 'new'}-{client}-{number}"
        path, body = request(kind, number, new, users)
        try:
            connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            content = json.loads(answer.read())
        except (OSError, HTTPException, ValueError):
            if killed.is_set():
                break
            seen.broken += 1
            connection.close()
            continue
        with seen.lock:
            seen.statuses[answer.status] += 1
            if answer.status == 202:
                seen.accepted += [one["user"] for one in body["interactions"]]
            elif path == "/recommend" and answer.status == 200:
                seen.models[content["user"]].add(answer.headers["x-mgformer-model"])


def request(kind: int, number: int, new: str, users: list[str]) -> tuple[str, dict[str, Any]]:
    """Return path and body of a request."""
    user = users[number % len(users)]
    if kind == 0:
        return "/feedback", {
            "interactions": [{"user": f"{new}-{n}", "item": "jazz-03"} for n in range(3)]
        }
    if kind == 1:
        return "/recommend/batch", {"users": [user, new], "k": 10}
    if kind == 2:
        return "/recommend", {"user": new, "history": ["jazz-03", "rock-01"], "k": 10}
    return "/recommend", {"user": user, "k": 10}


def replace_bundles(place: Path, turns: list[Recommender], ended: threading.Event) -> None:
    """Put other bundles into both folders again and again; the service notices them."""
    turn = 0
    while not ended.wait(RELOAD_SECONDS):
        turn += 1
        for name in SHARES:
            turns[turn % 2].save(place / name)


if __name__ == "__main__":
    main()
