"""Take generated graphs of growing size through all phases, with the time and the memory of each.

    python -m benchmarks.large [--nodes 10000 100000 1000000] [--steps 100] [--save]

Half of the nodes are users, and there are ten pairs per node. Each size has a process of its own,
which reads a Parquet file, splits it, trains guided with the optimizer that updates only the rows
of a step, evaluates a sample of users, and makes lists. The peak of a phase is that of the whole
process while the phase runs, with everything that earlier phases hold. The slope is that of a line
through the logarithms of pairs and seconds.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from benchmarks.generated import write_generated
from benchmarks.measure import report
from benchmarks.training import generated
from mgformer.data.dataset import open_dataset
from mgformer.data.interactions import Interactions
from mgformer.data.options import SplitConfig
from mgformer.data.sampling import num_batches, shuffled_batches
from mgformer.data.splits import split_dataset
from mgformer.graph.bipartite import Graph
from mgformer.models.guided import Guided
from mgformer.progress import Advance, reporting
from mgformer.ranking.evaluation import EvaluationConfig, evaluate_part
from mgformer.ranking.score import Ingredients, Weights
from mgformer.ranking.selection import sample_users
from mgformer.ranking.topk import top_k
from mgformer.training.loop import step_on
from mgformer.training.memory import keep_freed_memory, peak_mb, reset_peak, use_large_pages
from mgformer.training.optimizers import build_optimizers
from mgformer.training.options import TrainConfig

PAIRS_PER_NODE = 10
STEP_BASE = 100_000
"""Nodes of the graph that steps on larger ones are compared with."""
SLOPE_UP_TO = 1_000_000
"""Nodes of the largest graph on the line of preparing: ten million pairs."""
WARM_UP = 20
"""Steps before those that are timed."""
INSIDE = ("item neighbors", "item regression", "guide lists")
"""Phases that the library announces while it builds the model."""
PREPARING = (*INSIDE, "attention and tokens")


class Marks:
    """Seconds and peak memory of phases."""

    def __init__(self) -> None:
        self.phases: dict[str, dict[str, float]] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Measure the block. Phases within it take their time from it."""
        reset_peak()
        began, before = time.perf_counter(), sum(p["seconds"] for p in self.phases.values())
        yield
        inside = sum(p["seconds"] for p in self.phases.values()) - before
        seconds = time.perf_counter() - began - inside
        own = self.phases.setdefault(name, {"seconds": 0.0, "peak_mb": 0})
        own["seconds"] = round(own["seconds"] + seconds, 2)
        own["peak_mb"] = max(own["peak_mb"], peak_mb() or 0)
        print(f"{name}: {seconds:.1f} s, {peak_mb()} MB", file=sys.stderr, flush=True)

    @contextmanager
    def reporter(self, name: str, total: float | None) -> Iterator[Advance]:
        """Measure the phases that the library announces, as far as they are of interest."""
        if name not in INSIDE:
            yield lambda amount: None
            return
        with self.phase(name):
            yield lambda amount: None


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", nargs="*", type=int, default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--neighbors", type=int, default=16, help="K, of attention")
    parser.add_argument("--predictors", type=int, default=32, help="N, of the regression")
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--users", type=int, default=2_000, help="users to evaluate")
    parser.add_argument("--lists", type=int, default=2_000, help="users to make lists for")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--folder", type=Path, help="where generated files are kept")
    parser.add_argument("--save", action="store_true", help="write results/benchmarks")
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.one:
        print(json.dumps(one_size(options.one, options)))
        return
    described = {name: getattr(options, name) for name in ("dim", "neighbors", "predictors")}
    described |= {"batch": options.batch, "steps": options.steps}
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for nodes in options.nodes:  # what was measured is kept if a larger graph fails
            found.append(measured(nodes, options.folder or Path(folder)))
            table, figures = summary(found)
            columns = ["", *(f"{one['nodes']:,} nodes" for one in found)]
            report("large", table, {**described, **figures}, save=options.save, columns=columns)


def measured(nodes: int, folder: Path) -> dict[str, Any]:
    """Generate a graph, unless it is there, and take it through the phases in a new process."""
    path = folder / f"generated-{nodes}.parquet"
    if not path.exists():
        write_generated(path, nodes // 2, nodes // 2, nodes * PAIRS_PER_NODE)
    command = [sys.executable, "-m", "benchmarks.large", "--one", str(path), *sys.argv[1:]]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found | {"nodes": nodes}


def one_size(path: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Take one file through all phases."""
    use_large_pages()
    keep_freed_memory()
    marks, rng = Marks(), np.random.default_rng(0)
    warm_up(rng)
    with marks.phase("reading"):
        dataset = open_dataset(path)
    with marks.phase("splitting"):
        split = split_dataset(dataset, SplitConfig(kind="ratio"), rng)
    train, num_pairs = split.train, len(dataset.interactions)
    dataset = dataset.without_pairs()  # as a run does
    with marks.phase("graph"):
        graph = Graph(train.matrix)
    config = Guided.Config(
        dim=options.dim, num_neighbors=options.neighbors, num_predictors=options.predictors, l2=60.0
    )
    with marks.phase("attention and tokens"), reporting(marks.reporter):
        model = Guided(config, graph, rng)
    train_config = TrainConfig(optimizer="rows", batch_size=options.batch)
    optimizers = build_optimizers(model, train_config)
    milliseconds, table_rows = steps_of(model, train, optimizers, options, marks)
    # A run also holds the best weights so far, and the optimizer keeps its memory.
    best = [parameter.detach().clone() for parameter in model.parameters()]
    with marks.phase("scorer"), torch.no_grad():
        degrees = torch.from_numpy(graph.item_degrees)
        composed = Ingredients(degrees, model.guide()).compose(model.scorer(), Weights("prior"))
    scorer = composed.scorer
    with marks.phase(f"evaluating {options.users:,} users"):
        sample = replace(split, valid=sample_users(split.valid, options.users))
        evaluated = evaluate_part(scorer, sample, "valid", EvaluationConfig(ks=(20,)))
        assert evaluated is not None
    users = np.linspace(0, train.num_users - 1, options.lists).astype(np.int64)
    with marks.phase(f"lists of {options.lists:,} users"):
        top_k(scorer, users, 20, seen=train.matrix)
    del best
    seconds_of = {name: own["seconds"] for name, own in marks.phases.items()}
    return {
        "pairs": num_pairs,
        "file_mb": round(path.stat().st_size / 1e6),
        "phases": marks.phases,
        "preparing_seconds": round(sum(seconds_of.get(name, 0.0) for name in PREPARING), 2),
        "step_ms": milliseconds,
        "step_rows": table_rows,
        "steps_of_an_epoch": num_batches(train, options.batch),
        "most_mb": max(own["peak_mb"] for own in marks.phases.values()),
    }


def warm_up(rng: np.random.Generator) -> None:
    """Build a small model: the first use of libraries and threads is no part of any size."""
    pairs = generated(1_000)
    Guided(Guided.Config(dim=8, num_neighbors=4, num_predictors=8), Graph(pairs.matrix), rng)


def steps_of(
    model: Guided,
    train: Interactions,
    optimizers: list[torch.optim.Optimizer],
    options: argparse.Namespace,
    marks: Marks,
) -> tuple[float, int]:
    """Make steps; return the median of their milliseconds, and the rows that the last reached."""
    with marks.phase(f"{options.steps:,} steps"):
        generator = torch.Generator().manual_seed(0)
        batches = shuffled_batches(train, options.batch, np.random.default_rng(0))
        moments = []
        for number, batch in enumerate(batches):
            if number >= WARM_UP:
                moments.append(time.perf_counter())
            if number >= WARM_UP + options.steps:
                break
            step_on(batch, model, optimizers, generator)
        taken = [later - earlier for earlier, later in pairwise(moments)]
    gradient = model.tokens.grad
    assert gradient is not None
    return round(1000 * median(taken), 3), len(gradient.coalesce().indices()[0])


def summary(found: list[dict[str, Any]]) -> tuple[list[list[str]], dict[str, Any]]:
    """Return the rows of the table, and the figures."""
    rows = [["pairs", *(f"{one['pairs']:,}" for one in found)]]
    for name in found[0]["phases"]:
        own = [one["phases"][name] for one in found]
        rows.append([name, *(f"{p['seconds']:.1f} s, {p['peak_mb']:,} MB" for p in own)])
    epochs = [one["step_ms"] * one["steps_of_an_epoch"] / 1000 for one in found]
    most = [one["most_mb"] for one in found]
    rows += [
        ["a step", *(f"{one['step_ms']:.2f} ms" for one in found)],
        ["rows of the table that a step reaches", *(f"{one['step_rows']:,}" for one in found)],
        ["a step, for each of these rows", *(f"{rate(one):.3f} µs" for one in found)],
        ["an epoch, extrapolated from the steps", *(f"{s / 60:,.1f} min" for s in epochs)],
        ["most memory", *(f"{mb:,} MB" for mb in most)],
        [
            "memory per node, beyond that of the smallest graph",
            *(
                "–"
                if one is found[0]
                else f"{1e6 * (mb - most[0]) / (one['nodes'] - found[0]['nodes']):,.0f} B"
                for one, mb in zip(found, most, strict=True)
            ),
        ],
    ]
    figures: dict[str, Any] = {"sizes": found}
    small = [one for one in found if one["nodes"] <= SLOPE_UP_TO]
    if len(small) > 1:
        both = ([one[name] for one in small] for name in ("pairs", "preparing_seconds"))
        x, y = (np.log(np.array(values, dtype=np.float64)) for values in both)
        slope = figures["preparing_slope"] = round(float(np.polyfit(x, y, 1)[0]), 3)
        first, last = small[0]["pairs"], small[-1]["pairs"]
        rows.append([f"slope of preparing, {first:,} to {last:,} pairs", f"{slope:.2f}"])
    for one in found:
        if one["nodes"] > STEP_BASE and (base := [o for o in found if o["nodes"] == STEP_BASE]):
            ratio = figures["step_ratio"] = round(one["step_ms"] / base[0]["step_ms"], 3)
            rows.append([f"step at {one['nodes']:,} nodes ÷ {STEP_BASE:,}", f"{ratio:.2f}"])
            figures["row_ratio"] = round(rate(one) / rate(base[0]), 3)
            rows.append(["the same, for each row", f"{figures['row_ratio']:.2f}"])
    return [[*row, *[""] * (len(found) + 1 - len(row))] for row in rows], figures


def rate(one: dict[str, Any]) -> float:
    """Return the microseconds of a step for each row of the table that it reaches."""
    return float(1000 * one["step_ms"] / one["step_rows"])


if __name__ == "__main__":
    main()
