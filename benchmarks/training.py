"""Time epochs of guided and of MGFormer beside one of DirectAU.

    python -m benchmarks.training [--datasets amazon-beauty yelp2018] [--steps 10] [--repeats 5]

All train with the presets of table 2. A round is `steps` steps of each. The runs of table 2 that
`results/` has tell how many epochs each model needs to DirectAU's best validation NDCG@20; the time
to reach it includes preparing, which for guided is the regression and its lists.
`benchmarks.large` times steps on graphs of growing size.
"""

import argparse
import time
from statistics import fmean, median

import numpy as np
import polars as pl
from tools.store import RunResult, read_results

from benchmarks.measure import report
from mgformer.data.ids import Ids
from mgformer.data.interactions import Interactions
from mgformer.data.sampling import num_batches
from mgformer.experiments import paper_rows
from mgformer.experiments.timing import interleaved, stepper
from mgformer.ranking.metrics import SELECTION_METRIC
from mgformer.runs.train import prepare
from mgformer.training.memory import keep_freed_memory, use_large_pages

MODELS = {"guided": "guided", "mgformer": "MGFormer", "directau": "DirectAU-LightGCN"}
"""Row of table 2 → name in this table."""
THEIRS = "DirectAU-LightGCN"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--datasets", nargs="*", default=["amazon-beauty", "yelp2018"])
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--save", action="store_true", help="write results/benchmarks")
    options = parser.parse_args()
    use_large_pages()
    keep_freed_memory()
    for name in options.datasets:
        epochs_of(name, options)


def epochs_of(dataset: str, options: argparse.Namespace) -> None:
    """Compare epochs on a dataset."""
    steps, rows = options.steps, paper_rows.table2_rows(dataset, tuple(MODELS))
    configs = {MODELS[row.name]: row.config for row in rows}
    train = prepare(rows[0].config).split.train
    tasks, preparing = {}, {}
    for name, config in configs.items():
        began = time.perf_counter()
        tasks[name] = stepper(config, train, steps)
        preparing[name] = time.perf_counter() - began
    seconds = interleaved(tasks, options.repeats)
    counts = {name: num_batches(train, c.train.batch_size) for name, c in configs.items()}
    epochs = {name: counts[name] * median(seconds[name]) / steps for name in configs}
    ratios = {}
    for row, name in MODELS.items():
        if name == THEIRS:
            continue
        ratios[f"{name} ÷ {THEIRS}, epoch"] = epochs[name] / epochs[THEIRS]
        ratios[f"{name}: preparing ÷ epoch"] = preparing[name] / epochs[name]
        seeds = epochs_to_their_best(dataset, row)
        reached = [(mine, other) for mine, other in seeds if mine is not None]
        if reached:
            ours, theirs = (fmean(side) for side in zip(*reached, strict=True))
            label = f"to the best of {THEIRS}, which {len(reached)} of {len(seeds)} seeds reach"
            ratios[f"{name} ÷ {THEIRS}, epochs {label}"] = ours / theirs
            ratios[f"{name} ÷ {THEIRS}, time {label}, preparing included"] = (
                preparing[name] + ours * epochs[name]
            ) / (preparing[THEIRS] + theirs * epochs[THEIRS])
    table = [
        *(
            (f"{name}, epoch of {counts[name]} steps on {dataset}", f"{value:.1f} s")
            for name, value in epochs.items()
        ),
        *((label, f"{value:.3f}") for label, value in ratios.items()),
    ]
    figures = {"dataset": dataset, "epoch_seconds": epochs, "ratios": ratios}
    report(f"training-{dataset}", table, figures, save=options.save)


def epochs_to_their_best(dataset: str, row: str) -> list[tuple[int | None, int]]:
    """Return the epochs that we and they need to their best validation NDCG@20, of each seed.

    Ours is None if we do not reach it.
    """
    ours, theirs = trained(dataset, row), trained(dataset, "directau")
    return [
        (next((epoch for epoch, ndcg in ours[seed].items() if ndcg >= best), None), epochs)
        for seed in sorted({*ours} & {*theirs})
        for epochs, best in [max(theirs[seed].items(), key=lambda entry: entry[1])]
    ]


def trained(dataset: str, row: str) -> dict[int, dict[int, float]]:
    """Return the validation NDCG@20 by epoch of each seed of a row.

    Of old runs only the figure of the chosen epoch is known.
    """
    found: dict[int, dict[int, float]] = {}
    for result in read_results(dataset):
        if result.name != row:
            continue
        if isinstance(result, RunResult):
            if result.record.config["split"]["kind"] == paper_rows.PAPER_SPLIT["kind"]:
                found[result.record.seed] = result.curve
        elif result.split == paper_rows.PAPER_SPLIT["kind"] and len(result.runs) == 1:
            (run,) = result.runs
            chosen = {run.epochs: result.valid[SELECTION_METRIC].mean}
            found.setdefault(run.seed, run.curve or chosen)
    return found


def generated(num_nodes: int) -> Interactions:
    """Return a graph with as many users as items and 10 pairs per user, popular items first."""
    rng = np.random.default_rng(0)
    half = num_nodes // 2
    users = np.repeat(np.arange(half, dtype=np.int32), 10)
    items = (half * rng.random(len(users)) ** 3).astype(np.int32)
    user_ids, item_ids = (Ids(pl.Series(np.arange(half))) for _ in range(2))
    return Interactions.from_numbers(user_ids, item_ids, users, items)


if __name__ == "__main__":
    main()
