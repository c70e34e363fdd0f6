"""Compare the model ridge with EASE, and run it on a large catalog.

    python -m benchmarks.regression [--datasets amazon-beauty yelp2018 gowalla]
                                    [--items 1000000] [--pairs 50000000]

Both are trained with their presets of table 2, one after the other, and measured on validation. The
large catalog is generated, as far as its pairs go: users of 50 items, and items by a power law.
"""

import argparse
import time

import numpy as np
import scipy.sparse as sp

from benchmarks.measure import report
from mgformer.experiments import paper_rows
from mgformer.graph.bipartite import Graph
from mgformer.models import build_model
from mgformer.models.simple.ridge import Ridge
from mgformer.ranking.metrics import SELECTION_METRIC
from mgformer.runs.train import prepare, validator_of
from mgformer.training.memory import peak_mb, reset_peak

USER_ITEMS = 50


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--datasets", nargs="*", default=["amazon-beauty", "yelp2018", "gowalla"])
    parser.add_argument("--items", type=int, default=1_000_000, help="of the large catalog")
    parser.add_argument("--pairs", type=int, default=50_000_000)
    parser.add_argument("--save", action="store_true", help="write results/benchmarks")
    options = parser.parse_args()
    for dataset in options.datasets:
        compare(dataset, save=options.save)
    if options.items:
        large(options.items, options.pairs, save=options.save)


def compare(dataset: str, *, save: bool) -> None:
    """Train both on a dataset."""
    seconds, ndcg = {}, {}
    for row in paper_rows.table2_rows(dataset, ("ease", "ridge")):
        split = prepare(row.config).split
        graph, rng = Graph(split.train.matrix), np.random.default_rng(0)
        began = time.perf_counter()
        scorer = build_model(row.config.model_name, row.config.model, graph, rng).scorer()
        seconds[row.name] = time.perf_counter() - began
        validator = validator_of(row.config, split)
        assert validator is not None
        ndcg[row.name] = validator.measure(scorer)[SELECTION_METRIC]
    ratio = seconds["ridge"] / seconds["ease"]
    rows = [
        *(
            (f"{name} on {dataset}", f"{seconds[name]:.1f} s, validation NDCG@20 {ndcg[name]:.4f}")
            for name in seconds
        ),
        ("ridge ÷ EASE, time", f"{ratio:.3f}"),
    ]
    figures = {"dataset": dataset, "seconds": seconds, "ndcg": ndcg, "ratio": ratio}
    report(f"regression-{dataset}", rows, figures, save=save)


def large(num_items: int, num_pairs: int, *, save: bool) -> None:
    """Train ridge on a generated catalog, with its default options."""
    graph = Graph(generated(num_items, num_pairs))
    num_pairs = graph.interactions.nnz
    reset_peak()
    began = time.perf_counter()
    scorer = Ridge(Ridge.Config(), graph, np.random.default_rng(0)).scorer()
    seconds = time.perf_counter() - began
    assert isinstance(scorer.weights, sp.csr_array)
    size = f"{graph.num_users:,} users, {num_items:,} items, {num_pairs:,} pairs"
    rows = [
        (f"ridge, {size}", f"{seconds:.0f} s"),
        ("most memory of the process", f"{peak_mb() or 0:,} MB"),
        ("weights", f"{scorer.weights.nnz:,}"),
    ]
    figures = {"pairs": num_pairs, "seconds": seconds, "peak_mb": peak_mb()}
    report("regression-large", rows, figures, save=save)


def generated(num_items: int, num_pairs: int, seed: int = 0) -> sp.csr_array:
    """Return pairs of users who have items near each other, some of them popular."""
    rng = np.random.default_rng(seed)
    num_users = num_pairs // USER_ITEMS
    starts = np.arange(0, num_users * USER_ITEMS + 1, USER_ITEMS, dtype=np.int32)
    # Most items of a user are close to one place; the rest follow a power law.
    places = rng.integers(0, num_items, num_users, dtype=np.int32)
    near = rng.geometric(0.005, (num_users, USER_ITEMS - 10)).astype(np.int32) + places[:, None]
    popular = (num_items * rng.random((num_users, 10)) ** 3).astype(np.int32)
    items = np.sort(np.hstack([near % num_items, popular]), axis=1).ravel()
    pairs = sp.csr_array(
        (np.ones(len(items), np.float32), items, starts), shape=(num_users, num_items)
    )
    pairs.sum_duplicates()
    pairs.data[:] = 1
    return pairs


if __name__ == "__main__":
    main()
