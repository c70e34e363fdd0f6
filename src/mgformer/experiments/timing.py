"""Time models side by side: they run in turn, in one process, on one machine."""

import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median
from typing import NamedTuple

import numpy as np
import torch

from mgformer.data.interactions import Interactions
from mgformer.data.sampling import Batch, num_batches, shuffled_batches
from mgformer.errors import ConfigError
from mgformer.graph.bipartite import Graph
from mgformer.models import build_model
from mgformer.models.base import TrainableModel
from mgformer.progress import phase
from mgformer.runs.config import RunConfig
from mgformer.runs.train import prepare
from mgformer.training.loop import step_on
from mgformer.training.memory import keep_freed_memory
from mgformer.training.optimizers import build_optimizers


class EpochTime(NamedTuple):
    """How long an epoch takes."""

    seconds: float
    """Median over the rounds, scaled to the steps of an epoch."""
    ratio: float
    """Median over the rounds of the ratio to the reference within a round."""


def epoch_times(
    configs: Mapping[str, RunConfig], reference: str, *, steps: int = 10, repeats: int = 5
) -> dict[str, EpochTime]:
    """Time training epochs of runs on the same data, by some steps of each in turn.

    Args:
        configs: Name → run; all use the data and the split of the first.
        reference: The run that the others are compared with.
        steps: Steps in a round.
        repeats: Rounds, after a first one that warms up.
    """
    keep_freed_memory()
    pairs = prepare(next(iter(configs.values()))).split.train
    tasks = {name: stepper(config, pairs, steps) for name, config in configs.items()}
    seconds = interleaved(tasks, repeats)
    num_steps = {n: num_batches(pairs, config.train.batch_size) for n, config in configs.items()}
    return {
        name: EpochTime(
            median(seconds[name]) / steps * num_steps[name],
            median_ratio(seconds, name, reference) * num_steps[name] / num_steps[reference],
        )
        for name in configs
    }


def interleaved(tasks: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, list[float]]:
    """Run every task once per round and return its seconds; a first round warms up."""
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    with phase("rounds", (repeats + 1) * len(tasks)) as advance:
        for number in range(repeats + 1):
            for name, task in tasks.items():
                gc.collect()
                start = time.perf_counter()
                task()
                if number:
                    seconds[name].append(time.perf_counter() - start)
                advance(1)
    return seconds


def median_ratio(seconds: Mapping[str, Sequence[float]], ours: str, theirs: str) -> float:
    """Return the median over rounds of the ratio within a round: a noisy minute affects both."""
    return median(a / b for a, b in zip(seconds[ours], seconds[theirs], strict=True))


def stepper(config: RunConfig, pairs: Interactions, steps: int) -> Callable[[], None]:
    """Return a function that trains for `steps` steps and continues on the next call."""
    rng = np.random.default_rng(0)
    model = build_model(config.model_name, config.model, Graph(pairs.matrix), rng)
    if not isinstance(model, TrainableModel):
        raise ConfigError(
            f"{config.model_name} is not trained step by step, so it has no epochs to time"
        )
    optimizers = build_optimizers(model, config.train)
    generator = torch.Generator().manual_seed(0)
    batches = endless(pairs, config.train.batch_size, rng)
    model.train()

    def run() -> None:
        for _ in range(steps):
            step_on(next(batches), model, optimizers, generator)

    return run


def endless(pairs: Interactions, batch_size: int, rng: np.random.Generator) -> Iterator[Batch]:
    """Yield batches of one epoch after another."""
    while True:
        yield from shuffled_batches(pairs, batch_size, rng)
