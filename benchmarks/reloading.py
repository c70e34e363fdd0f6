"""Reload bundles under load: no request may fail, and every answer must come from one bundle."""

import json
import tempfile
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.client import Reply, ask_in_turn, load, post, served
from benchmarks.synthetic import YELP2018, synthetic_bundle
from mgformer.recommend.recommender import Recommender
from mgformer.runs.bundle_files import save_bundle

CONNECTIONS, K = 8, 20


def reloading(num_requests: int, dim: int) -> dict[str, float]:
    """Send requests while bundles are written and reloaded; return counts and latencies."""
    first = synthetic_bundle(dim=dim, **YELP2018)
    second = replace(first, scorer=synthetic_bundle(dim=dim, **YELP2018, seed=1).scorer)
    bundles = first, second
    numbers = np.random.default_rng(1).integers(0, len(first.users), 250)
    users = first.users.decode(numbers).to_list()
    lists = [
        {answer.user: [i.item for i in answer.items] for answer in Recommender(b).answers(users, K)}
        for b in bundles
    ]
    reloads: list[Reply] = []
    done = threading.Event()
    with tempfile.TemporaryDirectory() as folder:
        save_bundle(first, Path(folder))
        with served(Path(folder)) as port:

            def write_and_reload() -> None:
                while not done.is_set():
                    save_bundle(bundles[(len(reloads) + 1) % 2], Path(folder))
                    reloads.extend(ask_in_turn(port, [post("/admin/reload")]))

            writer = threading.Thread(target=write_and_reload)
            writer.start()
            try:
                asked = [users[n % len(users)] for n in range(num_requests)]
                requests = [post("/recommend", {"user": user, "k": K}) for user in asked]
                replies = load(port, requests, CONNECTIONS)
            finally:
                done.set()
                writer.join()
    answered: Counter[object] = Counter(_bundle_of(reply, lists) for reply in replies)
    assert all(reply.status == 200 for reply in reloads)
    assert min(answered[0], answered[1]) > 0, "only one of the bundles answered"
    seconds = [reply.seconds for reply in replies]
    return {
        "requests": len(replies),
        "reloads": len(reloads),
        "answers of the first bundle": answered[0],
        "answers of the second bundle": answered[1],
        "failures and other answers": len(replies) - answered[0] - answered[1],
        "p50 ms": round(float(np.quantile(seconds, 0.5)) * 1e3, 2),
        "p99 ms": round(float(np.quantile(seconds, 0.99)) * 1e3, 2),
    }


def _bundle_of(reply: Reply, lists: Sequence[Mapping[Any, list[Any]]]) -> int | None:
    """Return which bundle an answer comes from; None for neither."""
    if reply.status != 200:
        return None
    answer = json.loads(reply.body)
    found = [item["item"] for item in answer["items"]]
    return next((n for n, own in enumerate(lists) if own[answer["user"]] == found), None)
