"""Which optimiser for which parameter.

Matrices and tables may decay, vectors and scalars do not: they are scales, and zero is no neutral
value for them. Dense Adam moves every row of a table at every step, also rows without a gradient,
by their momentum; `rows` updates the rows that the batch touched and no others, so that a step
costs the same however many users and items there are. The two are different algorithms.
"""

import math
from collections.abc import Sequence

import torch
from torch.optim import Adam, Optimizer, SparseAdam

from mgformer.models.base import TrainableModel
from mgformer.training.options import TrainConfig


def build_optimizers(model: TrainableModel, options: TrainConfig) -> list[Optimizer]:
    """Return optimisers that together cover all parameters of the model."""
    apart = options.optimizer == "rows"
    model.sparse_gradients = apart
    tables = model.tables() if apart else []
    in_tables = {id(table) for table in tables}
    others = [p for p in model.parameters() if id(p) not in in_tables and p.requires_grad]
    optimizers: list[Optimizer] = []
    if tables:
        optimizers.append(SparseAdam(tables, lr=options.lr))
    if others:
        groups = [
            {"params": kind, "weight_decay": decay}
            for kind, decay in (
                ([p for p in others if p.ndim > 1], options.weight_decay),
                ([p for p in others if p.ndim <= 1], 0.0),
            )
            if kind
        ]
        optimizers.append(Adam(groups, lr=options.lr, fused=True))
    return optimizers


def set_learning_rate(
    optimizers: Sequence[Optimizer], options: TrainConfig, progress: float
) -> None:
    """Set the learning rate for a step, from the share of all steps that are done."""
    factor = 0.5 * (1 + math.cos(math.pi * progress)) if options.decay == "cosine" else 1.0
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = options.lr * factor


def state_tensors(optimizers: Sequence[Optimizer]) -> dict[str, torch.Tensor]:
    """Return a copy of the optimisers' memory as named tensors."""
    tensors = {}
    for number, optimizer in enumerate(optimizers):
        for place, memory in optimizer.state_dict()["state"].items():
            for name, value in memory.items():
                tensors[f"{number}.{place}.{name}"] = torch.as_tensor(value).clone()
    return tensors


def load_state_tensors(optimizers: Sequence[Optimizer], tensors: dict[str, torch.Tensor]) -> None:
    """Put back what `state_tensors` returned."""
    for number, optimizer in enumerate(optimizers):
        state: dict[int, dict[str, object]] = {}
        for key, value in tensors.items():
            owner, place, name = key.split(".")
            if int(owner) == number:
                # SparseAdam counts its steps with a plain number.
                plain = name == "step" and isinstance(optimizer, SparseAdam)
                state.setdefault(int(place), {})[name] = int(value) if plain else value
        optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
