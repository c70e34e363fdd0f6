"""The optimizer of each parameter.

Weight decay applies to matrices and tables. It does not apply to vectors and scalars: they are
scales, and zero is not neutral for them. Dense Adam updates every row of a table at every step; its
momentum also moves rows without a gradient. `rows` updates only the rows that the batch touched, so
the cost of a step does not grow with the number of users and items. The two are different
algorithms: an untouched row keeps its momentum and does not decay.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.optim import Adam, Optimizer
from torch.optim.adam import adam

from mgformer.device import on_host
from mgformer.errors import ConfigError
from mgformer.models.base import TrainableModel
from mgformer.training.options import TrainConfig

ADAM_STATE = {"step", "exp_avg", "exp_avg_sq"}
ROW_STATE = {"step", "mean", "square"}


class RowAdam(Optimizer):
    """Adam for tables with sparse gradients; it updates only the rows with a gradient."""

    BETAS, EPSILON = (0.9, 0.999), 1e-8

    def __init__(self, tables: Sequence[nn.Parameter], lr: float, weight_decay: float) -> None:
        super().__init__(tables, {"lr": lr, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update the rows with a gradient in every table."""
        for group in self.param_groups:
            for table in group["params"]:
                if table.grad is not None:
                    self._update(table, group["lr"], group["weight_decay"])

    def _update(self, table: nn.Parameter, lr: float, weight_decay: float) -> None:
        state = self.state[table]
        if not state:
            step = torch.zeros((), device=table.device)
            state |= {"step": step, "mean": torch.zeros_like(table)}
            state["square"] = torch.zeros_like(table)
        assert table.grad is not None
        rows, gradients = _rows_of(table.grad)
        kept = [table, state["mean"], state["square"]]
        values, mean, square = parts = [whole.index_select(0, rows) for whole in kept]
        adam(
            [values],
            [gradients],
            [mean],
            [square],
            [],
            [state["step"]],
            fused=_has_fused(table),
            foreach=False,
            amsgrad=False,
            beta1=self.BETAS[0],
            beta2=self.BETAS[1],
            lr=lr,
            weight_decay=weight_decay,
            eps=self.EPSILON,
            maximize=False,
        )
        for whole, part in zip(kept, parts, strict=True):
            whole.index_copy_(0, rows, part)


def _rows_of(gradient: Tensor) -> tuple[Tensor, Tensor]:
    """Return the distinct rows [r] of a sparse gradient, ascending, and their values [r, d].

    If they are in order already, as after one lookup of distinct rows, nothing is sorted or copied.
    """
    if on_host(gradient):
        (rows,), values = gradient._indices(), gradient._values()
        if bool((rows[1:] > rows[:-1]).all()):
            return rows, values
    gradient = gradient.coalesce()
    (rows,), values = gradient.indices(), gradient.values()
    return rows, values


def build_optimizers(model: TrainableModel, options: TrainConfig) -> list[Optimizer]:
    """Return optimizers that together cover all parameters of the model."""
    apart = options.optimizer == "rows"
    model.sparse_gradients = apart
    tables = model.tables() if apart else []
    if apart and not tables:
        raise ConfigError(
            f"optimizer = rows: every step of {type(model).__name__} reaches all rows of its"
            " tables; set train.optimizer to adam"
        )
    in_tables = {id(table) for table in tables}
    others = [p for p in model.parameters() if id(p) not in in_tables and p.requires_grad]
    optimizers: list[Optimizer] = []
    if tables:
        optimizers.append(RowAdam(tables, options.lr, options.weight_decay))
    if others:
        groups = [
            {"params": kind, "weight_decay": decay}
            for kind, decay in (
                ([p for p in others if p.ndim > 1], options.weight_decay),
                ([p for p in others if p.ndim <= 1], 0.0),
            )
            if kind
        ]
        optimizers.append(Adam(groups, lr=options.lr, fused=_has_fused(others[0])))
    return optimizers


def _has_fused(table: Tensor) -> bool:
    """Return whether torch has Adam as one operation on the device of a table."""
    return table.device.type in ("cpu", "cuda", "mps")


def set_learning_rate(
    optimizers: Sequence[Optimizer], options: TrainConfig, progress: float
) -> None:
    """Set the learning rate of a step, given the share of all steps done so far."""
    factor = 0.5 * (1 + math.cos(math.pi * progress)) if options.decay == "cosine" else 1.0
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = options.lr * factor


def state_tensors(optimizers: Sequence[Optimizer]) -> dict[str, Tensor]:
    """Return the optimizer state as named tensors in the memory of the processor.

    A state that is there already is not copied.
    """
    tensors = {}
    for number, optimizer in enumerate(optimizers):
        for place, memory in optimizer.state_dict()["state"].items():
            for name, value in memory.items():
                tensors[f"{number}.{place}.{name}"] = value.to("cpu")
    return tensors


def rows_of_tables(optimizers: Sequence[Optimizer], tables: set[int]) -> set[str]:
    """Return which state tensors have a row per row of the tables with these ids."""
    found = set()
    for number, optimizer in enumerate(optimizers):
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        names = (ROW_STATE if isinstance(optimizer, RowAdam) else ADAM_STATE) - {"step"}
        found |= {
            f"{number}.{place}.{name}"
            for place, parameter in enumerate(parameters)
            if id(parameter) in tables
            for name in names
        }
    return found


def load_state_tensors(optimizers: Sequence[Optimizer], tensors: dict[str, Tensor]) -> None:
    """Restore what `state_tensors` returned; other tensors are a ValueError."""
    for number, optimizer in enumerate(optimizers):
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        names = ROW_STATE if isinstance(optimizer, RowAdam) else ADAM_STATE
        state: dict[int, dict[str, Tensor]] = {}
        for key, value in tensors.items():
            owner, place, name = key.split(".")
            if int(owner) == number:
                shape = parameters[int(place)].shape if name != "step" else torch.Size()
                if value.shape != shape or not value.is_floating_point():
                    raise ValueError(f"{key}: got {value.dtype} of {list(value.shape)}")
                state.setdefault(int(place), {})[name] = value
        for owned, memory in state.items():
            if {*memory} != names:
                raise ValueError(f"{number}.{owned}: got {sorted(memory)}, expected {names}")
        optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
