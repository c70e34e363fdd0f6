"""Time epochs of guided and of MGFormer beside one of DirectAU, and steps on growing graphs.

    python -m benchmarks.training [--datasets amazon-beauty yelp2018] [--steps 10] [--repeats 5]

All train with the presets of table 2. A round is `steps` steps of each. The runs of table 2
tell how many epochs each model needs to DirectAU's best validation NDCG@20; the time to reach it
includes preparing, which for guided is the regression and its lists.
The growing graphs are generated, with 10 pairs per user and items by a power law. Guided is trained
on them with the preset of Beauty and the optimizer that updates only the rows of a step.
"""

import argparse
import time
from pathlib import Path
from statistics import fmean, median

import numpy as np
import polars as pl

from benchmarks.measure import ROOT, report
from mgformer.data.ids import Ids
from mgformer.data.interactions import Interactions
from mgformer.data.sampling import num_batches
from mgformer.experiments import paper_rows
from mgformer.experiments.timing import interleaved, median_ratio, stepper
from mgformer.ranking.metrics import SELECTION_METRIC
from mgformer.runs.config import build_config, read_config, with_settings
from mgformer.runs.folder import Run
from mgformer.runs.train import prepare
from mgformer.training.memory import keep_freed_memory, use_large_pages

MODELS = {"guided": "guided", "mgformer": "MGFormer", "directau": "DirectAU-LightGCN"}
"""Row of table 2 → name in this table."""
THEIRS = "DirectAU-LightGCN"
SIZES = (10_000, 100_000, 1_000_000)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--datasets", nargs="*", default=["amazon-beauty", "yelp2018"])
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--sizes", nargs="*", type=int, default=list(SIZES))
    parser.add_argument("--save", action="store_true", help="write results/benchmarks")
    parser.add_argument("--runs", type=Path, default=Path("runs/reproduce"), help="of table 2")
    options = parser.parse_args()
    use_large_pages()
    keep_freed_memory()
    for name in options.datasets:
        epochs_of(name, options)
    if options.sizes:
        growth(options)


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
    runs = paper_rows.find_all(rows, options.runs / dataset)  # with the options of the presets
    for row, name in MODELS.items():
        if name == THEIRS:
            continue
        ratios[f"{name} ÷ {THEIRS}, epoch"] = epochs[name] / epochs[THEIRS]
        ratios[f"{name}: preparing ÷ epoch"] = preparing[name] / epochs[name]
        pairs = of_same_seeds(runs.get(row, []), runs.get("directau", []))
        if pairs:
            ratios[f"{name}: validation ÷ training, as logged"] = validation_share(pairs)
        reached = epochs_to_their_best(pairs)
        if reached:
            ours, theirs = (fmean(side) for side in zip(*reached, strict=True))
            label = f"to the best of {THEIRS}, which {len(reached)} of {len(pairs)} seeds reach"
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


def of_same_seeds(ours: list[Run], theirs: list[Run]) -> list[tuple[Run, Run]]:
    """Return pairs of runs with the same seeds, and so the same splits."""
    return [
        (mine, other) for mine in ours for other in theirs if mine.record.seed == other.record.seed
    ]


def validation_share(pairs: list[tuple[Run, Run]]) -> float:
    """Return the time of our validation, with its search for scores, divided by training."""
    entries = [entry for run, _ in pairs for entry in run.log]
    validating = sum(entry.get("validation_seconds", 0.0) for entry in entries)
    return float(validating / sum(entry["seconds"] for entry in entries))


def epochs_to_their_best(pairs: list[tuple[Run, Run]]) -> list[tuple[int, int]]:
    """Return the epochs that we and they need to their best validation NDCG@20, if we reach it."""
    return [
        (epoch, other.record.epochs)
        for mine, other in pairs
        if (epoch := first_reaching(mine, max(curve(other).values()))) is not None
    ]


def curve(run: Run) -> dict[int, float]:
    """Return the validation NDCG@20 of the epochs that were validated."""
    return {
        entry["epoch"]: entry[SELECTION_METRIC] for entry in run.log if SELECTION_METRIC in entry
    }


def first_reaching(run: Run, value: float) -> int | None:
    """Return the first epoch that reaches a value; None if none does."""
    return next((epoch for epoch, found in curve(run).items() if found >= value), None)


def growth(options: argparse.Namespace) -> None:
    """Time steps on generated graphs of growing size."""
    sizes, steps, repeats = options.sizes, options.steps, options.repeats
    preset = read_config(ROOT / "configs" / paper_rows.REFERENCE / "guided.toml")
    config = build_config(with_settings(preset, ["train.optimizer=rows"]))
    tasks = {f"{size:,} nodes": stepper(config, generated(size), steps) for size in sizes}
    seconds = interleaved(tasks, repeats)
    milliseconds = {name: 1000 * median(times) / steps for name, times in seconds.items()}
    smallest = next(iter(tasks))
    ratios = {name: median_ratio(seconds, name, smallest) for name in tasks}
    rows = [
        (f"step at {name}", f"{milliseconds[name]:.1f} ms, {ratios[name]:.2f} of the smallest")
        for name in tasks
    ]
    figures = {"milliseconds": milliseconds, "ratios": ratios}
    report("growth", rows, figures, save=options.save)


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
