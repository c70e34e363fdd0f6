"""Time an epoch of MGFormer beside one of DirectAU, and steps on growing graphs.

    python -m benchmarks.training [--datasets amazon-beauty yelp2018] [--steps 10] [--repeats 5]

Both train with the batch size, channels and threads of the dataset's mgformer.toml; DirectAU has
two layers of LightGCN. A round is `steps` steps of each. MGFormer is also timed with all nodes as
keys. The runs of table 2 tell how many epochs each model needs to its best validation
NDCG@20; those of table 3 tell what more keys would add.
The growing graphs are generated, with 10 pairs per user and items by a power law. They are trained
with the preset of Beauty, and the optimizer that updates only the rows of a step.
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

OURS, THEIRS = "MGFormer", "DirectAU-LightGCN"
KERNELS = "MGFormer, kernel attention to all"
SIZES = (10_000, 100_000, 1_000_000)
ALL_KEYS = ["model.key_sample=none"]
WIDER = ("4,096 keys drawn",)
"""Forms that draw more keys than the preset, at a higher cost."""


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
    steps = options.steps
    preset = read_config(ROOT / "configs" / dataset / "mgformer.toml")
    ours = build_config(preset)
    theirs = build_config(
        {
            **{key: value for key, value in preset.items() if key not in ("model", "score")},
            "model": {"name": "directau", "dim": preset["model"]["dim"], "num_layers": 2},
        }
    )
    exact = build_config(with_settings(preset, ALL_KEYS))
    split = prepare(ours).split
    began = time.perf_counter()
    our_steps = stepper(ours, split.train, steps)
    preparing = time.perf_counter() - began
    tasks = {
        OURS: our_steps,
        THEIRS: stepper(theirs, split.train, steps),
        KERNELS: stepper(exact, split.train, 1),
    }
    seconds = interleaved(tasks, options.repeats)
    count = num_batches(split.train, ours.train.batch_size)
    epochs = {name: count * median(seconds[name]) / steps for name in (OURS, THEIRS)}
    epochs[KERNELS] = count * median(seconds[KERNELS])  # one step a round
    ratios = {
        f"{OURS} ÷ {THEIRS}": median_ratio(seconds, OURS, THEIRS),
        "the same with kernel attention to all": epochs[KERNELS] / epochs[THEIRS],
        f"{OURS}: preparing ÷ epoch": preparing / epochs[OURS],
    }
    runs = runs_of_both(options.runs / dataset)
    if runs:
        ratios[f"{OURS}: validation ÷ training, as logged"] = validation_share(runs)
    for label, (first, second) in epochs_to_best(runs).items():
        ratios[f"epochs {label}, {OURS} ÷ {THEIRS}"] = first / second
        time_ratio = ratios[f"{OURS} ÷ {THEIRS}"] * first / second
        ratios[f"time {label}, {OURS} ÷ {THEIRS}"] = time_ratio
    ratios |= quality_of(options.runs / dataset)
    rows = [
        *(
            (f"{name}, epoch of {count} steps on {dataset}", f"{value:.1f} s")
            for name, value in epochs.items()
        ),
        *((label, f"{value:.3f}") for label, value in ratios.items()),
    ]
    figures = {"dataset": dataset, "epoch_seconds": epochs, "ratios": ratios}
    report(f"training-{dataset}", rows, figures, save=options.save)


def runs_of_both(folder: Path) -> list[tuple[Run, Run]]:
    """Return the runs of MGFormer and DirectAU with the same seeds, and so the same splits."""
    rows = paper_rows.table2_rows(folder.name, ("mgformer", "directau"))
    found = paper_rows.find_all(rows, folder)  # with the protocol and options of the presets
    return of_same_seeds(found.get("mgformer", []), found.get("directau", []))


def of_same_seeds(ours: list[Run], theirs: list[Run]) -> list[tuple[Run, Run]]:
    return [
        (mine, other) for mine in ours for other in theirs if mine.record.seed == other.record.seed
    ]


def validation_share(pairs: list[tuple[Run, Run]]) -> float:
    """Return the time of MGFormer's validation, with its search for scores, divided by training."""
    entries = [entry for run, _ in pairs for entry in run.log]
    validating = sum(entry.get("validation_seconds", 0.0) for entry in entries)
    return float(validating / sum(entry["seconds"] for entry in entries))


def epochs_to_best(pairs: list[tuple[Run, Run]]) -> dict[str, tuple[float, float]]:
    """Return the epochs that both need to their own best validation NDCG@20, and to DirectAU's.

    Values are means over the seeds.
    """
    if not pairs:
        return {}
    found = {
        "to the best validation NDCG@20": (
            fmean(mine.record.epochs for mine, _ in pairs),
            fmean(other.record.epochs for _, other in pairs),
        )
    }
    reached = [
        (epoch, other.record.epochs)
        for mine, other in pairs
        if (epoch := first_reaching(mine, max(curve(other).values()))) is not None
    ]
    if reached:
        label = f"to the best of {THEIRS}, which {len(reached)} of {len(pairs)} seeds reach"
        first, second = (fmean(side) for side in zip(*reached, strict=True))
        found[label] = (first, second)
    return found


def quality_of(folder: Path) -> dict[str, float]:
    """Return the validation NDCG@20 of the preset divided by that of wider forms."""
    found = paper_rows.find_all(
        paper_rows.table3_rows(folder.name, (paper_rows.AS_IT_IS, *WIDER)), folder
    )
    ratios = {}
    for name in WIDER:
        pairs = of_same_seeds(found.get(paper_rows.AS_IT_IS, []), found.get(name, []))
        if pairs:
            mine, other = (
                fmean(run.record.valid[SELECTION_METRIC] for run in side)
                for side in zip(*pairs, strict=True)
            )
            ratios[f"validation NDCG@20 ÷ that with {name}, {len(pairs)} seeds"] = mine / other
    return ratios


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
    preset = read_config(ROOT / "configs" / paper_rows.REFERENCE / "mgformer.toml")
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
