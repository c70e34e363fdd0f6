"""Read a CSV of ten million rows with string ids into a CSR matrix, beside polars alone.

    python -m benchmarks.reading

The limit is polars, which reads the same file and counts distinct users and items. It numbers no
ids, merges no duplicates and builds no matrix.
"""

import argparse
import tempfile
from pathlib import Path
from statistics import median

import numpy as np
import polars as pl

from benchmarks.measure import report
from mgformer.data.dataset import read_dataset
from mgformer.experiments.timing import interleaved, median_ratio

NUM_USERS, NUM_ITEMS = 500_000, 100_000


def write_csv(path: Path, num_rows: int) -> None:
    """Write random interactions: active and quiet users, popular and rare items."""
    rng = np.random.default_rng(0)
    users = (NUM_USERS * rng.random(num_rows) ** 1.5).astype(np.int64)
    items = (NUM_ITEMS * rng.random(num_rows) ** 2).astype(np.int64)
    times = rng.integers(1_300_000_000, 1_700_000_000, num_rows)
    pl.DataFrame({"user": users, "item": items, "timestamp": times}).with_columns(
        pl.format("user-{}", "user").alias("user"), pl.format("item-{}", "item").alias("item")
    ).write_csv(path)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--save", action="store_true", help="write results/benchmarks")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "interactions.csv"
        write_csv(path, options.rows)

        def polars_reads() -> None:
            pl.read_csv(path).select(pl.col("user").n_unique(), pl.col("item").n_unique())

        def ours_reads() -> None:
            assert read_dataset(path).interactions.matrix.nnz

        tasks = {"polars read and count": polars_reads, "mgformer to CSR": ours_reads}
        seconds = interleaved(tasks, options.repeats)
    ratio = median_ratio(seconds, "mgformer to CSR", "polars read and count")
    rows = [
        (f"{name}, median of {options.repeats}", f"{median(s):.2f} s")
        for name, s in seconds.items()
    ]
    rows.append(("mgformer ÷ polars (at most 2)", f"{ratio:.2f}"))
    report(
        "reading",
        rows,
        {
            "rows": options.rows,
            "seconds": {name: round(median(s), 3) for name, s in seconds.items()},
            "mgformer_to_polars": round(ratio, 3),
        },
        save=options.save,
    )


if __name__ == "__main__":
    main()
