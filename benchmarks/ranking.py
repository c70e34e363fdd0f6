"""Evaluate matrices of the size of yelp2018, beside the limit and a peer.

    python -m benchmarks.ranking

The limit is the bare matrix product, tile by tile, without masking, ranking or metrics. The peer is
implicit's batched top-k in C++ on the same vectors, with the same items masked. The matrices are
random. The train and test pairs are those of yelp2018 if it is installed, else generated.
"""

import argparse
from statistics import median

import numpy as np
import scipy.sparse as sp
import torch
from implicit.cpu.topk import topk as implicit_topk

from benchmarks.measure import peak_memory_mb, report
from mgformer.data.dataset import load_dataset
from mgformer.data.entries import is_present
from mgformer.data.ids import Ids
from mgformer.data.interactions import Interactions
from mgformer.experiments.timing import interleaved, median_ratio
from mgformer.ranking.evaluation import EvaluationConfig, evaluate
from mgformer.ranking.scorers import DotScorer
from mgformer.ranking.topk import MAX_USERS, top_k

NUM_USERS, NUM_ITEMS, DIM = 31_668, 38_048, 64


def pairs() -> tuple[str, Interactions, Interactions]:
    """Return the source of the pairs, the train pairs and the test pairs."""
    if is_present("yelp2018"):
        parts = load_dataset("yelp2018").parts
        assert parts is not None
        return "yelp2018", parts["train"], parts["test"]
    import polars as pl

    rng = np.random.default_rng(0)
    count = 1_561_406
    users, items = (Ids(pl.Series(np.arange(n))) for n in (NUM_USERS, NUM_ITEMS))
    whole = Interactions.from_numbers(
        users,
        items,
        rng.integers(0, NUM_USERS, count).astype(np.int32),
        (NUM_ITEMS * rng.random(count) ** 2).astype(np.int32),
    )
    is_test = rng.random(len(whole)) < 0.2
    return "generated", whole.subset(~is_test), whole.subset(is_test)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--save", action="store_true", help="write results/benchmarks")
    options = parser.parse_args()
    repeats = options.repeats
    source, train, test = pairs()
    generator = torch.Generator().manual_seed(0)
    users = torch.randn(NUM_USERS, DIM, generator=generator)
    items = torch.randn(NUM_ITEMS, DIM, generator=generator)
    scorer = DotScorer(users, items)
    degrees = np.bincount(train.indices, minlength=NUM_ITEMS)
    protocol = EvaluationConfig(ks=(20,))
    tile = torch.empty(MAX_USERS, NUM_ITEMS)
    everyone = np.arange(NUM_USERS)
    known = sp.csr_matrix(train.matrix)  # implicit knows no sparse arrays

    def bare_product() -> None:
        for start in range(0, NUM_USERS, MAX_USERS):
            batch = users[start : start + MAX_USERS]
            torch.mm(batch, items.T, out=tile[: len(batch)])

    def ours_evaluated() -> None:
        evaluate(scorer, test, train.matrix, degrees, protocol)

    def ours_ranked() -> None:
        top_k(scorer, everyone, 20, seen=train.matrix)

    def peer_ranked() -> None:
        for start in range(0, NUM_USERS, 1_000):
            implicit_topk(
                items.numpy(),
                users[start : start + 1_000].numpy(),
                20,
                filter_query_items=known[start : start + 1_000],
                num_threads=torch.get_num_threads(),
            )

    tasks = {
        "bare product": bare_product,
        "evaluate": ours_evaluated,
        "top-k": ours_ranked,
        "implicit top-k": peer_ranked,
    }
    seconds = interleaved(tasks, repeats)
    to_limit = median_ratio(seconds, "evaluate", "bare product")
    to_peer = median_ratio(seconds, "top-k", "implicit top-k")
    memory = peak_memory_mb(ours_evaluated)
    rows = [(f"{name}, median of {repeats}", f"{median(s):.2f} s") for name, s in seconds.items()]
    rows += [
        ("evaluate ÷ bare product (at most 1.6)", f"{to_limit:.2f}"),
        ("top-k ÷ implicit top-k (at most 1)", f"{to_peer:.2f}"),
        ("peak memory of evaluate over the matrices (under 1,000)", f"{memory:.0f} MB"),
        ("pairs", source),
    ]
    report(
        "ranking",
        rows,
        {
            "seconds": {name: round(median(s), 3) for name, s in seconds.items()},
            "evaluate_to_bare_product": round(to_limit, 3),
            "topk_to_implicit": round(to_peer, 3),
            "peak_memory_mb": round(memory),
            "pairs": source,
        },
        save=options.save,
    )


if __name__ == "__main__":
    main()
