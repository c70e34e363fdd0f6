"""Where the time of a training step goes."""

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch

from mgformer.data.interactions import Interactions
from mgformer.data.sampling import num_batches, shuffled_batches
from mgformer.device import generator_on, resolve
from mgformer.models.base import TrainableModel
from mgformer.training.loop import check_precision, step_on
from mgformer.training.memory import keep_freed_memory
from mgformer.training.optimizers import build_optimizers
from mgformer.training.options import TrainConfig

WARM_UP = 3
"""Steps that are not counted: the first steps allocate memory and start threads."""
STAGES = ("batch", "loss", "gradient", "update")


@dataclass(frozen=True)
class Profile:
    """Mean milliseconds of one step."""

    stages: dict[str, float]
    """Stage of the step → milliseconds, in order."""
    operators: dict[str, tuple[float, float]]
    """Operator → its own milliseconds and number of calls, the longest first."""
    steps_per_epoch: int


def profile(
    model: TrainableModel,
    pairs: Interactions,
    options: TrainConfig,
    rng: np.random.Generator,
    steps: int = 20,
) -> Profile:
    """Time training steps; they change the model.

    The stages are timed without torch's profiler, which slows down code with many small calls. Then
    as many steps again run under the profiler, which counts the operators.
    """
    keep_freed_memory()
    device = resolve(options.device)
    check_precision(model, options)
    model.on(device)
    optimizers = build_optimizers(model, options)
    generator = generator_on(device, int(rng.integers(2**63)))
    seconds: dict[str, float] = defaultdict(float)

    @contextmanager
    def timed(stage: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        if device.type != "cpu":
            torch.accelerator.synchronize()
        seconds[stage] += time.perf_counter() - start

    model.train()
    model.on_epoch(rng)
    batches = shuffled_batches(pairs, options.batch_size, rng, device=device)

    def step() -> None:
        nonlocal batches
        with timed("batch"):
            batch = next(batches, None)
            if batch is None:
                batches = shuffled_batches(pairs, options.batch_size, rng, device=device)
                batch = next(batches)
        step_on(batch, model, optimizers, generator, timed, options.precision)

    for _ in range(WARM_UP):
        step()
    seconds.clear()
    for _ in range(steps):
        step()
    stages = {stage: 1000 * seconds[stage] / steps for stage in STAGES}
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as recorded:
        for _ in range(steps):
            step()
    events = sorted(recorded.key_averages(), key=lambda e: -e.self_cpu_time_total)
    operators = {
        event.key: (event.self_cpu_time_total / 1000 / steps, event.count / steps)
        for event in events
    }
    return Profile(stages, operators, num_batches(pairs, options.batch_size))
