"""How two embeddings make a score: dot product, cosine, or cosine with a prior of popularity.

Losses such as alignment and uniformity train directions, not lengths. Ranking by the raw product
lets the lengths act as a prior of popularity that nobody chose; ranking by the cosine has none.
cosine(u, i) · deg(i)^γ and cosine(u, i) + γ log deg(i) have the one that serves validation best.
Both stay a product of two matrices: a factor goes into the item's, a summand into a channel in
which every user has a one.

Shapes: U users, I items, D channels.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Literal, NamedTuple

import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor
from torch.nn import functional

from mgformer.ranking.scorers import DotScorer

Kind = Literal["dot", "cosine", "degree", "prior"]


class Grid(NamedTuple):
    """Where γ is looked for: from `start`, which it is where there is no validation, in steps."""

    start: float
    step: float
    stop: float


GRIDS = {"degree": Grid(0.25, 0.05, 1.5), "prior": Grid(0.1, 0.02, 0.5)}


class ScoreConfig(BaseModel):
    """How embeddings are compared."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    kind: Literal["auto", "dot", "cosine", "degree", "prior"] = "auto"
    """dot: u·i; cosine: u·i / ‖u‖‖i‖; degree: cosine × deg(i)^gamma; prior: cosine + gamma log
    deg(i); auto: what is usual for the model, the best on validation if that is more than one."""
    gamma: float | None = Field(None, ge=-2, le=2)
    """The weight of popularity; chosen on validation if not given."""

    @model_validator(mode="after")
    def _gamma_has_a_use(self) -> "ScoreConfig":
        if self.gamma is not None and self.kind in ("dot", "cosine"):
            raise ValueError(f"gamma has no use with kind = {self.kind}; leave it out")
        return self


def rescored(scorer: DotScorer, kind: Kind, gamma: float, item_degrees: Tensor) -> DotScorer:
    """Return the scorer whose dot products are the scores of the kind; degrees are [I]."""
    if kind == "dot":
        return scorer
    users, items = functional.normalize(scorer.users), functional.normalize(scorer.items)
    # An item nobody has counts as had once. Degrees are taken as shares of the largest, which
    # leaves every ranking as it is, and scores at most 1.
    degrees = item_degrees.clamp_min(1).to(items.dtype)[:, None]  # [I, 1]
    degrees = degrees / degrees.max()
    if kind == "degree":
        items = items * degrees.pow(gamma)
    if kind == "prior":
        users = torch.cat([users, torch.ones_like(users[:, :1])], dim=1)
        items = torch.cat([items, gamma * degrees.log()], dim=1)
    return replace(scorer, users=users, items=items, unit=True, constant=int(kind == "prior"))


def best_gamma(measure: Callable[[float], float], grid: Grid) -> float:
    """Walk over the grid, uphill from its start, to the nearest maximum."""
    known: dict[int, float] = {}

    def value(step: int) -> float:
        if step not in known:
            known[step] = measure(round(step * grid.step, 4))
        return known[step]

    step, last = round(grid.start / grid.step), round(grid.stop / grid.step)
    for direction in (1, -1):
        while 0 <= step + direction <= last and value(step + direction) > value(step):
            step += direction
    return round(step * grid.step, 4)
