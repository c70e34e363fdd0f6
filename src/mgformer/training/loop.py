"""The only training loop: epochs of shuffled batches, validation, and the best weights kept.

A training resumes from a checkpoint exactly where it stopped. A checkpoint holds all state that
passes from one epoch to the next: parameters, optimizer state, both generators and the history.
"""

import logging
import math
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, TypedDict

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from torch import Tensor

from mgformer.data.interactions import Interactions
from mgformer.data.sampling import Batch, num_batches, shuffled_batches
from mgformer.device import double_on, generator_on, resolve
from mgformer.errors import ConfigError
from mgformer.models.base import TrainableModel
from mgformer.progress import phase
from mgformer.ranking.metrics import SELECTION_METRIC, SELECTION_METRICS
from mgformer.ranking.scorers import Scorer
from mgformer.training.checkpoint import Checkpoint, apart
from mgformer.training.log import Entry
from mgformer.training.memory import keep_freed_memory
from mgformer.training.optimizers import (
    build_optimizers,
    load_state_tensors,
    rows_of_tables,
    set_learning_rate,
    state_tensors,
)
from mgformer.training.options import Precision, TrainConfig
from mgformer.world import World, current

CHECKPOINT_SECONDS = 30.0
"""Seconds between checkpoints, so that short epochs do not spend their time on writing."""

Validate = Callable[[Scorer, Sequence[Entry]], Entry]
"""Returns the figures of a model's scorer, given the log entries of earlier validations."""
log = logging.getLogger("mgformer")


class Hooks(TypedDict, total=False):
    """Callbacks of a training."""

    write: Callable[[Entry], None]
    """Receives the log entry of each epoch. An exception that it raises ends the training."""
    save: Callable[[Checkpoint], None]
    """Receives a checkpoint from time to time. Its tensors are those of the training, without a
    copy: the next step changes their values."""
    start: Checkpoint | None
    """A checkpoint of the same run to resume from."""
    until: float
    """A time of `time.monotonic()` at which training ends, even within an epoch."""


@dataclass
class Fit:
    """The progress of a training."""

    epochs: int = 0
    """Finished epochs."""
    best_epoch: int = 0
    """The epoch whose weights are kept: the best on validation, or the last without validation."""
    best_value: float = -math.inf
    history: list[Entry] = field(default_factory=list)
    """The log entry of each epoch."""


def fit(
    model: TrainableModel,
    pairs: Interactions,
    options: TrainConfig,
    rng: np.random.Generator,
    *,
    chances: NDArray[np.float64] | None = None,
    validate: Validate | None = None,
    epochs: int | None = None,
    write: Callable[[Entry], None] = lambda entry: None,
    save: Callable[[Checkpoint], None] | None = None,
    start: Checkpoint | None = None,
    until: float = math.inf,
) -> Fit:
    """Train the model in place; it keeps the weights that are best on validation.

    The model moves to the device of the options and stays there.

    Args:
        model: The model; its graph is that of `pairs`.
        pairs: Training pairs.
        options: Epochs, batches, learning rate, patience.
        rng: Source of everything random.
        chances: [E] the chance of each pair to be drawn; by default an epoch has every pair once.
        validate: Returns figures; `ndcg@20` among them selects the epoch. Without it all epochs are
            trained, and the last weights are kept.
        epochs: Stop after so many epochs. The learning rate still follows the epochs of `options`.
        write: As in `Hooks`.
        save: As in `Hooks`.
        start: As in `Hooks`.
        until: As in `Hooks`. The epoch that it interrupts does not count.
    """
    keep_freed_memory()
    shuffling, seeding = rng.spawn(2)
    device = resolve(options.device)
    check_precision(model, options)
    world = current()
    if world.size > 1:
        model.shard(world)
    model.on(device)
    generator = generator_on(device, int(seeding.integers(2**63)))
    optimizers = build_optimizers(model, options)
    steps = num_batches(pairs, options.batch_size)
    last = (options.epochs if epochs is None else epochs) if steps else 0
    done, best = Fit(), dict[str, Tensor]()  # empty before the first validation
    if start is not None:
        done, best = _restore(start, model, optimizers, shuffling, generator)
    saved_at = time.monotonic()
    late = False
    with phase("training", last * steps) as advance:
        advance(done.epochs * steps)
        while done.epochs < last and not _out_of_patience(done, options):
            began = time.perf_counter()
            model.train()
            model.on_epoch(shuffling)
            # The sum stays on the device: a step does not wait for its loss.
            total = torch.zeros((), dtype=double_on(device), device=device)
            batches = shuffled_batches(pairs, options.batch_size, shuffling, chances, device)
            for number, batch in enumerate(batches):
                late = until < math.inf and world.agreed(time.monotonic()) >= until
                if late:
                    break
                progress = (done.epochs * steps + number) / (options.epochs * steps)
                set_learning_rate(optimizers, options, progress)
                loss = step_on(batch, model, optimizers, generator, precision=options.precision)
                total += loss.to(total.dtype) * len(batch.users)
                advance(1)
            if late:
                break
            done.epochs += 1
            total = world.summed(total)
            entry: Entry = {"epoch": done.epochs, "loss": total.item() / len(pairs)}
            if not math.isfinite(entry["loss"]):
                raise ConfigError(
                    f"training diverged: the loss is {entry['loss']} in epoch {done.epochs};"
                    f" lower train.lr, which is {options.lr:g}"
                )
            entry["seconds"] = round(time.perf_counter() - began, 3)
            if validate is not None and done.epochs % options.evaluate_every == 0:
                model.eval()
                began = time.perf_counter()
                with torch.no_grad():
                    before = [e for e in done.history if SELECTION_METRIC in e]
                    entry |= validate(model.scorer(), before)
                entry["validation_seconds"] = round(time.perf_counter() - began, 3)
                if entry[SELECTION_METRIC] > done.best_value:
                    done.best_value, done.best_epoch = entry[SELECTION_METRIC], done.epochs
                    best = _own_weights(model)
                is_best = done.best_epoch == done.epochs
                log.info("epoch %d: %s", done.epochs, _shown(entry, is_best))
            done.history.append(entry)
            write(entry)
            if save is not None and (
                world.agreed(time.monotonic() - saved_at) >= CHECKPOINT_SECONDS
            ):
                save(_checkpoint(done, model, best, optimizers, shuffling, generator))
                saved_at = time.monotonic()
    if done.best_epoch:
        model.load_state_dict(best)
    else:
        done.best_epoch = done.epochs
    model.eval()
    return done


def step_on(
    batch: Batch,
    model: TrainableModel,
    optimizers: Sequence[torch.optim.Optimizer],
    generator: torch.Generator,
    timed: Callable[[str], AbstractContextManager[None]] = lambda stage: nullcontext(),
    precision: Precision = "fp32",
) -> Tensor:
    """Make one training step and return the loss before it, without waiting for it.

    `timed` measures the stages of the step, for the profiler.
    """
    lower: AbstractContextManager[Any] = nullcontext()
    if precision == "bf16":
        lower = torch.autocast(batch.users.device.type, torch.bfloat16)
    with timed("loss"), lower:
        loss = model.loss(batch, generator)
    with timed("gradient"):
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        if model.shards is not None:
            _sum_gradients(model, model.shards.world)
    with timed("update"):
        for optimizer in optimizers:
            optimizer.step()
    return loss.detach()


def check_precision(model: TrainableModel, options: TrainConfig) -> None:
    """Refuse bf16 where it saves nothing or costs quality."""
    if options.precision == "bf16" and not model.bf16:
        raise ConfigError(
            f"train.precision: got bf16, but {type(model).__name__} has no products that gain by"
            " it; leave it out"
        )


def _shown(entry: Entry, is_best: bool) -> str:
    """Return an epoch as one short line; the log of the run has everything."""
    figures = "  ".join(
        f"{name} {entry[name]:.4f}" for name in ("loss", *SELECTION_METRICS) if name in entry
    )
    seconds = entry["seconds"] + entry["validation_seconds"]
    return f"{figures}  {seconds:.1f} s{'  best' if is_best else ''}"


def _out_of_patience(done: Fit, options: TrainConfig) -> bool:
    validated = sum(SELECTION_METRIC in entry for entry in done.history[done.best_epoch :])
    return done.best_epoch > 0 and validated >= options.patience


def weights_of(model: TrainableModel) -> dict[str, Tensor]:
    """Return the weights of all nodes in the memory of the processor, copied only if need be."""
    return _whole(apart(_own_weights(model, copy=False)), model)


def _own_weights(model: TrainableModel, *, copy: bool = True) -> dict[str, Tensor]:
    """Return the weights, of tables those rows that this process has."""
    return {name: v.detach().to("cpu", copy=copy) for name, v in model.state_dict().items()}


def _whole(weights: dict[str, Tensor], model: TrainableModel) -> dict[str, Tensor]:
    """Return weights with the rows of all processes."""
    shards = model.shards
    if shards is None:
        return weights
    return {n: shards.whole(v) if n in model.sharded else v for n, v in weights.items()}


def _own(weights: dict[str, Tensor], model: TrainableModel) -> dict[str, Tensor]:
    """Return weights of all nodes without the rows that other processes have."""
    shards = model.shards
    if shards is None:
        return weights
    return {n: v[shards.own] if n in model.sharded else v for n, v in weights.items()}


def _sum_gradients(model: TrainableModel, world: World) -> None:
    """Add up the gradients of parameters that every process has."""
    for name, parameter in model.named_parameters():
        if name not in model.sharded and parameter.grad is not None:
            parameter.grad = world.summed(parameter.grad)


def _checkpoint(
    done: Fit,
    model: TrainableModel,
    best: dict[str, Tensor],
    optimizers: list[torch.optim.Optimizer],
    shuffling: np.random.Generator,
    generator: torch.Generator,
) -> Checkpoint:
    memory = state_tensors(optimizers)
    if model.shards is not None:  # the checkpoint does not depend on the number of processes
        tables = {id(model.get_parameter(name)) for name in model.sharded}
        of_tables = rows_of_tables(optimizers, tables)
        memory = {n: model.shards.whole(v) if n in of_tables else v for n, v in memory.items()}
    parts = {"model": weights_of(model), "best": _whole(best, model), "optimizer": memory}
    tensors = {f"{part}/{name}": t for part, named in parts.items() for name, t in named.items()}
    tensors["generator"] = generator.get_state()
    # JSON has no infinity: without validation the best value is null.
    value = done.best_value if done.best_epoch else None
    state = {
        **vars(done),
        "best_value": value,
        "history": [*done.history],
        "shuffling": shuffling.bit_generator.state,
        "device": generator.device.type,
    }
    return Checkpoint(state, tensors)


def _restore(
    start: Checkpoint,
    model: TrainableModel,
    optimizers: list[torch.optim.Optimizer],
    shuffling: np.random.Generator,
    generator: torch.Generator,
) -> tuple[Fit, dict[str, Tensor]]:
    parts: dict[str, dict[str, Tensor]] = {"model": {}, "best": {}, "optimizer": {}}
    try:
        for key, tensor in start.tensors.items():
            part, _, name = key.partition("/")
            if name:
                parts[part][name] = tensor
        state = _State.model_validate(start.state)
        if model.shards is not None:
            tables = {id(model.get_parameter(name)) for name in model.sharded}
            of_tables, own = rows_of_tables(optimizers, tables), model.shards.own
            memory = parts["optimizer"]
            parts["optimizer"] = {n: v[own] if n in of_tables else v for n, v in memory.items()}
        for part in ("model", "best"):
            if part == "model" or state.best_epoch:
                parts[part] = _own(parts[part], model)
                _check_weights(parts[part], model)
        model.load_state_dict(parts["model"])
        load_state_tensors(optimizers, parts["optimizer"])
        drawn = start.tensors["generator"]
        if state.device == generator.device.type:
            generator.set_state(drawn)
        else:  # generators of devices differ: this one goes on with other numbers
            generator.manual_seed(int(drawn.sum()) + state.epochs)
        shuffling.bit_generator.state = state.shuffling
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(map(str, problem["loc"]))
        raise start.unusable(f"{where}: {problem['msg']}") from None
    except (KeyError, IndexError, TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise start.unusable(f"{type(error).__name__}: {error}") from None
    value = -math.inf if state.best_value is None else state.best_value
    return Fit(state.epochs, state.best_epoch, value, list(state.history)), parts["best"]


class _State(BaseModel):
    """The plain values of a checkpoint that the loop needs."""

    model_config = ConfigDict(strict=True)

    epochs: int = Field(ge=0)
    best_epoch: int = Field(ge=0)
    best_value: float | None
    history: list[Entry]
    shuffling: dict[str, Any]
    device: str = "cpu"

    @model_validator(mode="after")
    def _agrees(self) -> "_State":
        if len(self.history) != self.epochs or self.best_epoch > self.epochs:
            raise ValueError(
                f"{self.epochs} epochs, {len(self.history)} log entries, best {self.best_epoch}"
            )
        return self


def _check_weights(found: dict[str, Tensor], model: TrainableModel) -> None:
    """Refuse weights with other names, types or shapes than those of the model."""
    wanted = {name: (v.dtype, v.shape) for name, v in model.state_dict().items()}
    got = {name: (v.dtype, v.shape) for name, v in found.items()}
    for name in sorted({*wanted, *got}):
        if wanted.get(name) != got.get(name):
            raise ValueError(f"{name}: got {got.get(name)}, expected {wanted.get(name)}")
