"""Fit a model of implicit or LensKit, and time it and its lists. It runs in build/peers.

    python theirs.py REQUEST.json

Nothing of mgformer is imported here. The request has the model, its options, the file of the pairs
to fit, the users to make lists for, and where the answer goes.
"""

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

K = 20
MOST_SECONDS, MOST_ROUNDS = 5.0, 3
"""Lists are made again, up to three times, until so much time has gone."""
Lists = Callable[[np.ndarray], np.ndarray]


def implicit_model(name: str, options: dict[str, Any], pairs: sp.csr_matrix) -> Lists:
    """Fit a model of implicit."""
    from implicit.als import AlternatingLeastSquares
    from implicit.bpr import BayesianPersonalizedRanking
    from implicit.nearest_neighbours import BM25Recommender, CosineRecommender

    kinds = {
        "implicit ALS": AlternatingLeastSquares,
        "implicit BPR": BayesianPersonalizedRanking,
        "implicit cosine kNN": CosineRecommender,
        "implicit BM25 kNN": BM25Recommender,
    }
    seeded = {} if name.endswith("kNN") else {"random_state": 0}
    model = kinds[name](**options, **seeded)
    model.fit(pairs, show_progress=False)

    def lists(users: np.ndarray) -> np.ndarray:
        items, scores = model.recommend(users, pairs[users], N=K)
        # Neighbors fill short lists up with items of score 0, some of which the user has.
        return np.where(scores > 0, items, -1) if name.endswith("kNN") else items

    return lists


def lenskit_model(name: str, options: dict[str, Any], pairs: sp.csr_matrix) -> Lists:
    """Fit a model of LensKit."""
    import pandas as pd
    from lenskit.als import ImplicitMFScorer
    from lenskit.batch import recommend
    from lenskit.data import from_interactions_df
    from lenskit.knn import ItemKNNScorer
    from lenskit.pipeline import topn_pipeline

    rows = pairs.tocoo()
    frame = pd.DataFrame({"user_id": rows.row, "item_id": rows.col})
    if name == "LensKit item kNN":
        scorer, options = ItemKNNScorer, {"feedback": "implicit", **options}
    else:
        scorer = ImplicitMFScorer
    pipeline = topn_pipeline(scorer, options, n=K)
    pipeline.train(from_interactions_df(frame))

    def lists(users: np.ndarray) -> np.ndarray:
        found = np.full((len(users), K), -1)
        places = {int(user): place for place, user in enumerate(users)}
        for key, items in recommend(pipeline, users.tolist(), K, n_jobs=1).items():
            own = items.ids()[:K]
            found[places[int(key.user_id)], : len(own)] = own
        return found

    return lists


def timed_lists(lists: Lists, users: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the lists of users, and the median seconds that they take."""
    seconds: list[float] = []
    while not seconds or (sum(seconds) < MOST_SECONDS and len(seconds) < MOST_ROUNDS):
        start = time.perf_counter()
        found = lists(users)
        seconds.append(time.perf_counter() - start)
    return found, statistics.median(seconds)


def peak_mb() -> float:
    """Return the highest memory of this process; getrusage would count that of its parent too."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def main() -> None:
    """Do what the request asks."""
    request = json.loads(Path(sys.argv[1]).read_text())
    pairs = sp.csr_matrix(sp.load_npz(request["pairs"]))
    fit = implicit_model if request["model"].startswith("implicit") else lenskit_model
    start = time.perf_counter()
    lists = fit(request["model"], request["options"], pairs)
    fitted = time.perf_counter() - start
    found, seconds = timed_lists(lists, np.load(request["users"]))
    np.save(request["lists"], found.astype(np.int64))
    answer = {"fit_seconds": fitted, "lists_seconds": seconds, "peak_mb": peak_mb()}
    Path(request["answer"]).write_text(json.dumps(answer))


if __name__ == "__main__":
    main()
