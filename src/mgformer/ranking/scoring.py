"""How two embeddings make a score: dot product, cosine, or cosine times a power of popularity.

Losses such as alignment and uniformity train directions, not lengths. Ranking by the raw product
lets the lengths act as a prior of popularity that nobody chose; ranking by the cosine has none.
cosine(u, i) · deg(i)^γ has the one that serves validation best, and it stays a product of two
matrices: the factor goes into the item's.

Shapes: U users, I items, D channels.
"""

from collections.abc import Callable
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor
from torch.nn import functional

from mgformer.ranking.scorers import DotScorer

Kind = Literal["dot", "cosine", "degree"]
START_GAMMA = 0.25
"""Where the search for γ begins, and γ itself where there is no validation."""
STEP_GAMMA = 0.05
MAX_GAMMA = 1.5


class ScoreConfig(BaseModel):
    """How embeddings are compared."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    kind: Literal["auto", "dot", "cosine", "degree"] = "auto"
    """dot: u·i; cosine: u·i / ‖u‖‖i‖; degree: cosine × deg(i)^gamma; auto: what the model's
    authors or our measurements say."""
    gamma: float | None = Field(None, ge=-1, le=MAX_GAMMA)
    """The exponent of popularity; chosen on validation if not given."""

    @model_validator(mode="after")
    def _gamma_has_a_use(self) -> "ScoreConfig":
        if self.gamma is not None and self.kind in ("dot", "cosine"):
            raise ValueError(f"gamma belongs to kind = degree, and kind is {self.kind}")
        return self


def rescored(scorer: DotScorer, kind: Kind, gamma: float, item_degrees: Tensor) -> DotScorer:
    """Return the scorer whose dot products are the scores of the kind; degrees are [I]."""
    if kind == "dot":
        return scorer
    users, items = functional.normalize(scorer.users), functional.normalize(scorer.items)
    if kind == "degree":
        # An item nobody has would be multiplied by zero, or by infinity; it counts as had once.
        items = items * item_degrees.clamp_min(1).to(items.dtype).pow(gamma)[:, None]
    return DotScorer(users, items, scorer.unobserved_weight, scorer.l2)


def best_gamma(measure: Callable[[float], float]) -> float:
    """Walk over the grid of exponents, uphill from the start, to the nearest maximum."""
    known: dict[int, float] = {}

    def value(step: int) -> float:
        if step not in known:
            known[step] = measure(round(step * STEP_GAMMA, 2))
        return known[step]

    step = round(START_GAMMA / STEP_GAMMA)
    last = round(MAX_GAMMA / STEP_GAMMA)
    for direction in (1, -1):
        while 0 <= step + direction <= last and value(step + direction) > value(step):
            step += direction
    return round(step * STEP_GAMMA, 2)
