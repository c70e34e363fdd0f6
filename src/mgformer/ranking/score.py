"""How two embeddings make a score: dot product, cosine, or cosine with a popularity prior.

Losses such as alignment and uniformity train directions, not lengths. In a raw dot product the
lengths act as a popularity prior that nobody chose. A cosine has no such prior. The kinds `degree`,
cosine(u, i) · deg(i)^γ, and `prior`, cosine(u, i) + γ log deg(i), have one whose weight γ is chosen
on validation. Both remain products of two matrices: a factor scales the item vectors, and a summand
becomes one more channel in which every user has a 1.

A guide may add δ times its own score: that of a history and an item-item matrix. What it knows
about pairs of items does not fit into the vectors. δ is chosen on validation, together with γ.

Shapes: U users, I items, D channels.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Literal, NamedTuple

import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor
from torch.nn import functional

from mgformer.ranking.scorers import DotScorer, HistoryScorer, Scorer, SumScorer

Kind = Literal["dot", "cosine", "degree", "prior"]


class Chosen(NamedTuple):
    """What a run chose on validation, so that a refit can do the same."""

    epochs: int = 0
    kind: Kind | None = None
    """How embeddings are compared; None if the model has none."""
    gamma: float | None = None
    delta: float | None = None
    """Weight of the guide; None without a guide."""


class Scored(NamedTuple):
    """A scorer with its kind of score, γ and δ; all None if it has no embeddings."""

    scorer: Scorer
    kind: Kind | None = None
    gamma: float | None = None
    delta: float | None = None


class Grid(NamedTuple):
    """The values of γ to try: multiples of `step` up to `stop`, beginning at `start`.

    Without validation γ is `start`.
    """

    start: float
    step: float
    stop: float


GRIDS = {"degree": Grid(0.25, 0.05, 1.5), "prior": Grid(0.1, 0.02, 0.5)}


DELTAS = (0.0, *(2.0**n for n in range(-3, 10)))
"""The values of δ to try."""
DELTA = 2.0
"""δ without validation, and where the search for it starts."""


class ScoreConfig(BaseModel):
    """How embeddings are compared, and what a guide adds."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    kind: Literal["auto", "dot", "cosine", "degree", "prior"] = "auto"
    """dot: u·i; cosine: u·i / ‖u‖‖i‖; degree: cosine × deg(i)^gamma; prior: cosine + gamma log
    deg(i); auto: the model's own kind, or the best on validation if the model has several."""
    gamma: float | None = Field(None, ge=-2, le=2)
    """Weight of popularity. It is chosen on validation if not given."""
    guide: Literal["auto", "none", "ridge", "gfcf"] = "auto"
    """A closed-form model whose scores are added. auto: the guide of the model, if it has one."""
    delta: float | None = Field(None, ge=0)
    """Weight of the guide. It is chosen on validation if not given."""

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
    # An item without users counts as if it had one. Dividing by the largest degree does not change
    # any ranking, and it keeps scores at most 1.
    degrees = item_degrees.clamp_min(1).to(items.dtype)[:, None]  # [I, 1]
    degrees = degrees / degrees.max()
    if kind == "degree":
        items = items * degrees.pow(gamma)
    if kind == "prior":
        users = torch.cat([users, torch.ones_like(users[:, :1])], dim=1)
        items = torch.cat([items, gamma * degrees.log()], dim=1)
    return replace(scorer, users=users, items=items, unit=True, constant=int(kind == "prior"))


def guided(scorer: DotScorer, guide: HistoryScorer | None, delta: float) -> Scorer:
    """Return the scorer whose scores are those of `scorer` plus δ times those of the guide."""
    return SumScorer(scorer, guide.times(delta)) if guide is not None and delta else scorer


def with_score(
    scorer: Scorer,
    kind: Kind | None,
    gamma: float | None,
    item_degrees: Tensor,
    guide: HistoryScorer | None = None,
    delta: float | None = None,
) -> Scored:
    """Return the scorer with a given kind of score; weights have their defaults, if not given."""
    if not isinstance(scorer, DotScorer) or kind is None:
        return Scored(scorer)
    if kind in GRIDS and gamma is None:
        gamma = GRIDS[kind].start
    best = rescored(scorer, kind, gamma or 0.0, item_degrees)
    gamma = gamma if kind in GRIDS else None
    if guide is None:
        return Scored(best, kind, gamma)
    delta = DELTA if delta is None else delta
    return Scored(guided(best, guide, delta), kind, gamma, delta)


def best_gamma(measure: Callable[[float], float], grid: Grid) -> float:
    """Climb from the start of the grid to the nearest maximum."""
    values = [round(step * grid.step, 4) for step in range(round(grid.stop / grid.step) + 1)]
    return climb(measure, values, values[round(grid.start / grid.step)])


def climb(measure: Callable[[float], float], values: Sequence[float], start: float) -> float:
    """Return the nearest maximum of a measure over ascending values, from the one nearest `start`.

    No value is measured twice.
    """
    measure = cache(measure)
    place = min(range(len(values)), key=lambda n: abs(values[n] - start))
    for direction in (1, -1):
        while 0 <= place + direction < len(values):
            if not measure(values[place + direction]) > measure(values[place]):
                break
            place += direction
    return values[place]
