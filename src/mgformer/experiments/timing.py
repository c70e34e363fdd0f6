"""Time models side by side: they run in turn, in one process, on one machine."""

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, count
from statistics import median

import numpy as np
import torch

from mgformer.data.interactions import Interactions
from mgformer.data.sampling import shuffled_batches
from mgformer.graph.bipartite import Graph
from mgformer.models import build_model
from mgformer.models.base import TrainableModel
from mgformer.progress import phase
from mgformer.runs.config import RunConfig
from mgformer.training.loop import step_on
from mgformer.training.optimizers import build_optimizers


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
    assert isinstance(model, TrainableModel), "only models that are trained step by step are timed"
    optimizers = build_optimizers(model, config.train)
    generator = torch.Generator().manual_seed(0)
    epochs = (shuffled_batches(pairs, config.train.batch_size, rng) for _ in count())
    batches = chain.from_iterable(epochs)
    model.train()

    def run() -> None:
        for _ in range(steps):
            step_on(next(batches), model, optimizers, generator)

    return run
