"""Count the bytes that a process sends in a training step, on graphs of growing size.

    python -m benchmarks.scaling [--ranks 2] [--sizes 100000 1000000] [--steps 5]

Guided trains on generated graphs (10 pairs per user, items by a power law) in several processes,
with the optimizer that updates only the rows of a step. The time of a step is that of processes
that share this computer.
"""

import argparse
import os
import time
from statistics import median
from typing import NamedTuple

import numpy as np
import torch
from torch import multiprocessing as mp

from benchmarks.measure import report
from benchmarks.training import generated
from mgformer.data.sampling import shuffled_batches
from mgformer.graph.bipartite import Graph
from mgformer.models.guided import Guided
from mgformer.training.loop import step_on
from mgformer.training.optimizers import build_optimizers
from mgformer.training.options import TrainConfig
from mgformer.world import bounds, joined

PORT = 29_517


class Step(NamedTuple):
    """What a step of one process costs."""

    sent: int
    seconds: float
    rows: int


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--sizes", nargs="*", type=int, default=[100_000, 1_000_000])
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--neighbors", type=int, default=32)
    parser.add_argument("--save", action="store_true", help="write results/benchmarks")
    options = parser.parse_args()
    results: list[Step] = mp.get_context("spawn").Manager().list()  # type: ignore[assignment]
    mp.spawn(_rank, (options, results), nprocs=options.ranks)  # type: ignore[attr-defined,no-untyped-call]
    table, figures = [], []
    for size, step in zip(options.sizes, results, strict=True):
        table += [
            (f"bytes that a process sends in a step, {size:,} nodes", f"{step.sent:,}"),
            (f"step, {size:,} nodes", f"{1000 * step.seconds:.1f} ms"),
            (f"rows of tokens in a process, {size:,} nodes", f"{step.rows:,}"),
        ]
        figures.append({"nodes": size, **step._asdict()})
    described = {"ranks": options.ranks, "dim": options.dim, "batch": options.batch}
    report("scaling", table, {**described, "steps": figures}, save=options.save)


def _rank(rank: int, options: argparse.Namespace, results: list[Step]) -> None:
    torch.set_num_threads(1)
    settings = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": PORT, "RANK": rank}
    settings["WORLD_SIZE"] = options.ranks
    os.environ.update({name: str(value) for name, value in settings.items()})
    with joined() as world:
        for size in options.sizes:
            pairs = generated(size)
            config = Guided.Config(
                dim=options.dim, num_neighbors=options.neighbors, num_predictors=options.neighbors
            )
            model = Guided(config, Graph(pairs.matrix), np.random.default_rng(0))
            model.shard(world)
            optimizers = build_optimizers(model, TrainConfig(optimizer="rows"))
            batches = shuffled_batches(pairs, options.batch, np.random.default_rng(0))
            generator, seconds, sent = torch.Generator().manual_seed(0), [], set()
            for _ in range(options.steps):
                world.together()
                before, began = world.sent, time.perf_counter()
                step_on(next(batches), model, optimizers, generator)
                seconds.append(time.perf_counter() - began)
                sent.add(world.sent - before)
            (of_a_step,) = sent  # every step sends as much
            edges = bounds(model.num_users, world.size), bounds(model.num_items, world.size)
            assert len(model.tokens) == sum(e[rank + 1] - e[rank] for e in edges)
            if world.leads:
                results.append(Step(of_a_step, median(seconds), len(model.tokens)))


if __name__ == "__main__":
    main()
