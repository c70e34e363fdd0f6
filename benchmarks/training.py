"""An epoch of MGFormer beside one of DirectAU with LightGCN's embeddings, and steps as graphs grow.

    python -m benchmarks.training [--datasets amazon-beauty yelp2018] [--steps 10] [--repeats 5]

Both train at the batch size, channels and threads of the dataset's mgformer.toml, DirectAU with two
layers; a round is `steps` steps of each. The kernel form is the paper's, with all nodes as keys.
Graphs that grow are generated: 10 pairs a user, items by a power law; `rows` is the optimiser that
touches only the rows of a step.
"""

import argparse
from statistics import median

import numpy as np
import polars as pl

from benchmarks.documents import ROOT
from benchmarks.measure import report
from mgformer.config import build_config, read_config, with_settings
from mgformer.data.catalog import open_dataset
from mgformer.data.ids import Ids
from mgformer.data.interactions import Interactions
from mgformer.data.sampling import num_batches
from mgformer.data.splits import split_dataset
from mgformer.experiments.timing import interleaved, median_ratio, stepper
from mgformer.training.memory import keep_freed_memory

KERNEL = [
    "model.attention=kernel",
    "model.mask=sine",
    "model.centered=true",
]
SIZES = (10_000, 100_000, 1_000_000)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--datasets", nargs="*", default=["amazon-beauty", "yelp2018"])
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--sizes", nargs="*", type=int, default=list(SIZES))
    parser.add_argument("--document", action="store_true", help="write docs/performance.md")
    options = parser.parse_args()
    keep_freed_memory()
    for name in options.datasets:
        epochs_of(name, options.steps, options.repeats, options.document)
    if options.sizes:
        growth(options.sizes, options.steps, options.repeats, options.document)


def epochs_of(dataset: str, steps: int, repeats: int, document: bool) -> None:
    """Compare epochs on a dataset."""
    preset = read_config(ROOT / "configs" / dataset / "mgformer.toml")
    ours = build_config(preset)
    theirs = build_config(
        {
            **{key: value for key, value in preset.items() if key not in ("model", "score")},
            "model": {"name": "directau", "dim": preset["model"]["dim"], "num_layers": 2},
        }
    )
    exact = build_config(with_settings(preset, KERNEL))
    pairs = split_dataset(
        open_dataset(ours.dataset, ours.data), ours.split, np.random.default_rng(0)
    ).train
    tasks = {
        "MGFormer": stepper(ours, pairs, steps),
        "DirectAU-LightGCN": stepper(theirs, pairs, steps),
        "MGFormer, kernel attention to all": stepper(exact, pairs, 1),
    }
    seconds = interleaved(tasks, repeats)
    count = num_batches(pairs, ours.train.batch_size)
    per_step = {name: median(times) / steps for name, times in seconds.items()}
    per_step["MGFormer, kernel attention to all"] *= steps  # one step a round
    ratio = median_ratio(seconds, "MGFormer", "DirectAU-LightGCN")
    kernel = per_step["MGFormer, kernel attention to all"] / per_step["DirectAU-LightGCN"]
    rows = [
        (f"{name}, epoch of {count} steps on {dataset}", f"{value * count:.1f} s")
        for name, value in per_step.items()
    ]
    report(
        f"training-{dataset}",
        [
            *rows,
            ("MGFormer ÷ DirectAU-LightGCN", f"{ratio:.2f}"),
            ("the same with kernel attention to all", f"{kernel:.2f}"),
        ],
        {"dataset": dataset, "step_seconds": per_step, "ratio": ratio, "kernel_ratio": kernel},
        document=document,
    )


def growth(sizes: list[int], steps: int, repeats: int, document: bool) -> None:
    """Time steps on generated graphs of growing size."""
    base = {"model": {"name": "mgformer", "dim": 64, "rank": 64}, "train": {"optimizer": "rows"}}
    config = build_config(base)
    tasks = {f"{size:,} nodes": stepper(config, generated(size), steps) for size in sizes}
    seconds = interleaved(tasks, repeats)
    milliseconds = {name: 1000 * median(times) / steps for name, times in seconds.items()}
    smallest = next(iter(tasks))
    ratios = {name: median_ratio(seconds, name, smallest) for name in tasks}
    rows = [
        (f"step at {name}", f"{milliseconds[name]:.1f} ms, {ratios[name]:.2f} of the smallest")
        for name in tasks
    ]
    report("growth", rows, {"milliseconds": milliseconds, "ratios": ratios}, document=document)


def generated(num_nodes: int) -> Interactions:
    """Return pairs of as many users as items, 10 a user, popular items first."""
    rng = np.random.default_rng(0)
    half = num_nodes // 2
    users = np.repeat(np.arange(half, dtype=np.int32), 10)
    items = (half * rng.random(len(users)) ** 3).astype(np.int32)
    ids = [Ids(pl.Series(np.arange(half))) for _ in range(2)]
    return Interactions.from_numbers(*ids, users, items)


if __name__ == "__main__":
    main()
