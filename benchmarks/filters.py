"""Time requests with a filter of three conditions, beside the same requests without one.

    python -m benchmarks.filters [--items 1000000] [--dim 64] [--requests 20] [--repeats 7] [--save]

Vectors and attributes are random. Requests name a user each and ask for 20 items. Both kinds take
turns, request by request. The filter is another one in each round, as far as its number goes, so
comparisons of numbers are computed anew and those of categories are kept.
"""

import argparse
import time
from dataclasses import replace
from statistics import median

import numpy as np
import polars as pl
import torch

from benchmarks.measure import report
from benchmarks.synthetic import synthetic_bundle
from mgformer.data.attributes import Attribute, Attributes
from mgformer.recommend.lists import answer_all
from mgformer.recommend.query import Query

GENRES = [f"genre {n}" for n in range(20)]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--requests", type=int, default=20, help="requests of each round")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--save", action="store_true", help="write results/benchmarks")
    options = parser.parse_args()
    torch.set_num_threads(1)  # as in the service
    bundle = synthetic_bundle(1_000, options.items, options.dim, num_pairs=20_000)
    bundle = replace(bundle, about_items=random_attributes(options.items))
    users = bundle.users.values[: options.requests].to_list()
    rounds: list[tuple[float, float]] = []
    for number in range(options.repeats + 1):  # the first round warms up
        where = {
            "genres": {"has": GENRES[:3]},
            "year": {">=": 1950 + number},
            "not": {"brand": {"in": ["brand 1", "brand 2"]}},
        }
        seconds = np.zeros((len(users), 2))
        for row, user in enumerate(users):
            for column, own in enumerate((None, where)):
                start = time.perf_counter()
                answer_all(bundle, [Query(user=user, where=own)])
                seconds[row, column] = time.perf_counter() - start
        plain, filtered = np.median(seconds, axis=0).tolist()
        rounds.append((plain, filtered))
    rounds = rounds[1:]
    ratio = median(filtered / plain for plain, filtered in rounds)
    share = float(bundle.filters.mask(Query(user=users[0], where=where).where).mean())  # type: ignore[arg-type]
    times = [1e3 * median(column) for column in zip(*rounds, strict=True)]
    rows = [
        ("items, and the share that matches", f"{options.items:,}, {share:.2f}"),
        ("p50, without a filter", f"{times[0]:.2f} ms"),
        ("p50, with three conditions", f"{times[1]:.2f} ms"),
        ("with ÷ without (at most 1.2)", f"{ratio:.3f}"),
    ]
    figures = {"items": options.items, "share": share, "p50_ms": times, "ratio": ratio}
    report("filters", rows, figures, save=options.save)


def random_attributes(size: int) -> Attributes:
    """Return a category, several categories and a number for each item."""
    rng = np.random.default_rng(2)
    picks = rng.integers(0, len(GENRES), (size, 2))
    first, second = (pl.Series(GENRES).gather(pl.Series(picks[:, n])) for n in range(2))
    pairs = pl.DataFrame({"a": first, "b": second}).select(pl.concat_list("a", "b")).to_series()
    brands = pl.Series([f"brand {n}" for n in range(1_000)])
    return Attributes(
        {
            "genres": Attribute("categories", pairs),
            "year": Attribute("number", pl.Series(rng.integers(1900, 2026, size))),
            "brand": Attribute("category", brands.gather(pl.Series(rng.integers(0, 1_000, size)))),
        }
    )


if __name__ == "__main__":
    main()
