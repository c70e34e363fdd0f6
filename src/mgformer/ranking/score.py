"""How two embeddings make a score: dot product, cosine, or cosine with a popularity prior.

Losses such as alignment and uniformity train directions, not lengths. In a raw dot product the
lengths act as a popularity prior that nobody chose. A cosine has no such prior. The kinds `degree`,
cosine(u, i) · deg(i)^γ, and `prior`, cosine(u, i) + γ log deg(i), have one whose weight γ is chosen
on validation. Both remain products of two matrices: a factor scales the item vectors, and a summand
becomes one more channel in which every user has a 1.

A guide may add δ times its own score: that of a history and an item-item matrix. What it knows
about pairs of items does not fit into the vectors.

Where the order of interactions is known, two more factors follow time. Trend tells how much more
often than expected an item occurs among recent pairs. η log trend(i) is added to products of
vectors, and trend(i)^η multiplies the scores of `degree`, of histories and of popularity. The guide
follows the trend too (`TREND_OF_GUIDE`). Recency ages a history: an item at position p of it counts
exp(−κ (1 − p)). It concerns models and guides that score by histories.

γ, δ, η and κ are chosen on validation.

Shapes: U users, I items, D channels.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Literal, NamedTuple

import torch
from pydantic import BaseModel, Field, model_validator
from torch import Tensor

from mgformer.data.chronology import Chronology
from mgformer.data.options import OPTIONS
from mgformer.ranking.devices import device_of, moved
from mgformer.ranking.scorers import DotScorer, HistoryScorer, Scorer, SumScorer

Kind = Literal["dot", "cosine", "degree", "prior"]


class Weights(NamedTuple):
    """What a score is made of. A weight that has no use is None."""

    kind: Kind | None = None
    """How embeddings are compared; None if the model has none."""
    gamma: float | None = None
    """Weight of popularity."""
    delta: float | None = None
    """Weight of the guide."""
    eta: float | None = None
    """Weight of the trend."""
    kappa: float | None = None
    """How fast the items of a history age."""


class Chosen(NamedTuple):
    """What a run chose on validation, so that a refit can do the same."""

    epochs: int = 0
    weights: Weights = Weights()


class Scored(NamedTuple):
    """A scorer, and what its scores are made of."""

    scorer: Scorer
    weights: Weights = Weights()


class Grid(NamedTuple):
    """The values of γ to try: multiples of `step` up to `stop`, beginning at `start`.

    Without validation γ is `start`.
    """

    start: float
    step: float
    stop: float

    def values(self, parts: int = 1) -> list[float]:
        """Return the values; `parts` divides the step between them."""
        step = self.step / parts
        return [round(place * step, 4) for place in range(round(self.stop / step) + 1)]


GRIDS = {"degree": Grid(0.25, 0.05, 1.5), "prior": Grid(0.1, 0.02, 0.5)}


DELTAS = (0.0, *(2.0**n for n in range(-3, 10)))
"""The values of δ to try."""
DELTA = 2.0
"""δ without validation, and where the search for it starts."""
ADDED_TREND = Grid(0.0, 0.02, 0.5)
"""The values of η to try where it weighs a summand."""
TREND_FACTOR = Grid(0.0, 0.1, 1.5)
"""The values of η to try where it is a power."""
TREND_OF_GUIDE = 3.0
"""Where η weighs a summand, the scores of a guide are multiplied by trend^(3 η). Adding η log trend
to a cosine c has about the effect of the factor trend^(η / c), and c is well below 1. With 3, a
search for η alone did as well on validation as a search for a power of its own."""
KAPPAS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)
"""The values of κ to try."""


class ScoreConfig(BaseModel):
    """How embeddings are compared, and what a guide adds."""

    model_config = OPTIONS

    kind: Literal["auto", "dot", "cosine", "degree", "prior"] = "auto"
    """dot: u·i; cosine: u·i / ‖u‖‖i‖; degree: cosine × deg(i)^gamma; prior: cosine + gamma log
    deg(i); auto: the model's own kind, or the best on validation if the model has several."""
    gamma: float | None = Field(None, ge=-2, le=2)
    """Weight of popularity. It is chosen on validation if not given."""
    guide: Literal["auto", "none", "ridge", "gfcf"] = "auto"
    """A closed-form model whose scores are added. auto: the guide of the model, if it has one."""
    delta: float | None = Field(None, ge=0)
    """Weight of the guide. It is chosen on validation if not given."""
    time: Literal["auto", "on", "off"] = "auto"
    """Whether trend and recency are part of the score. on: if times or an order are known; auto:
    only if held-out pairs are later than the others."""
    eta: float | None = Field(None, ge=-2, le=2)
    """Weight of the trend. It is chosen on validation if not given."""
    kappa: float | None = Field(None, ge=0, le=50)
    """How fast the items of a history age. It is chosen on validation if not given."""

    cold: bool = True
    """Predict the scores of items without interactions from their attributes, if there are any."""

    @model_validator(mode="after")
    def _gamma_has_a_use(self) -> "ScoreConfig":
        if self.gamma is not None and self.kind in ("dot", "cosine"):
            raise ValueError(f"gamma has no use with kind = {self.kind}; leave it out")
        for name in ("eta", "kappa"):
            if getattr(self, name) is not None and self.time == "off":
                raise ValueError(f"{name} has no use with time = off; leave it out")
        return self

    @property
    def given_weights(self) -> tuple[float | None, float | None, float | None, float | None]:
        """γ, δ, η and κ as they are given."""
        return self.gamma, self.delta, self.eta, self.kappa


def rescored(
    scorer: DotScorer,
    kind: Kind,
    gamma: float,
    item_degrees: Tensor,
    eta: float = 0.0,
    trend: Tensor | None = None,
) -> DotScorer:
    """Return the scorer whose dot products are the scores of the kind.

    Args:
        scorer: Vectors of users and items.
        kind: How they are compared.
        gamma: Weight of popularity; without effect on kinds that have none.
        item_degrees: [I] users of each item.
        eta: Weight of the trend.
        trend: [I] needed if η is not 0.
    """
    if kind == "dot" and not eta:
        return scorer
    has_channel = kind == "prior" or (eta != 0 and kind != "degree")
    users, items = (
        _copied(vectors, unit=kind != "dot", room=int(has_channel))
        for vectors in (scorer.users, scorer.items)
    )
    # An item without users counts as if it had one. Dividing by the largest degree does not change
    # any ranking, and it keeps scores at most 1.
    degrees = item_degrees.clamp_min(1).to(items)[:, None]  # [I, 1]
    degrees = degrees / degrees.max()
    added = gamma * degrees.log() if kind == "prior" else torch.zeros_like(degrees)
    if kind == "degree":
        items *= degrees.pow(gamma)
    if eta:
        assert trend is not None
        rising = trend.to(items)[:, None]
        if kind == "degree":
            items *= rising.pow(eta)
        else:
            # A dot product has no natural size: η is in units of the usual one.
            lengths = (vectors.norm(dim=1).mean() for vectors in (scorer.users, scorer.items))
            size = float(math.prod(lengths)) if kind == "dot" else 1.0
            added = added + eta * size * rising.log()
    if has_channel:
        users[:, -1] = 1
        items[:, -1:] = added
    return replace(scorer, users=users, items=items, unit=kind != "dot", constant=int(has_channel))


def _copied(vectors: Tensor, *, unit: bool, room: int) -> Tensor:
    """Return a copy with room for more channels, and rows of unit length if asked.

    Nothing else of its size is made: the vectors of a large graph take most of the memory.
    """
    copy = vectors.new_empty(len(vectors), vectors.shape[1] + room)
    own = copy[:, : vectors.shape[1]].copy_(vectors)
    if unit:
        own /= vectors.norm(dim=1, keepdim=True).clamp_min(1e-12)
    return copy


def guided(scorer: DotScorer, guide: HistoryScorer | None, delta: float | None) -> Scorer:
    """Return the scorer whose scores are those of `scorer` plus δ times those of the guide."""
    if guide is None or not delta:
        return scorer
    there = moved(guide.times(delta), device_of(scorer))
    assert isinstance(there, HistoryScorer)
    return SumScorer(scorer, there)


class Ingredients(NamedTuple):
    """What the scores of a trained model are composed from, beside the model."""

    item_degrees: Tensor
    """[I] users of each item."""
    guide: HistoryScorer | None = None
    chronology: Chronology | None = None
    """The order of the training pairs, if the score may use it."""

    def compose(self, scorer: Scorer, weights: Weights) -> Scored:
        """Return the scorer of a model with a score of these weights."""
        weights = self.useful(scorer, weights)
        trend = None
        if weights.eta and self.chronology is not None:
            trend = torch.from_numpy(self.chronology.trend)
        if isinstance(scorer, HistoryScorer):
            return Scored(
                _with_trend(self._aged(scorer, weights.kappa), weights.eta, trend), weights
            )
        assert isinstance(scorer, DotScorer)
        if weights.kind is None:  # one number per item: popularity
            factors = scorer.items.new_ones(1)
            if trend is not None:
                factors = trend.to(scorer.items).pow(weights.eta or 0.0)[:, None]
            return Scored(replace(scorer, items=scorer.items * factors), weights)
        vectors = rescored(
            scorer,
            weights.kind,
            weights.gamma or 0.0,
            self.item_degrees,
            weights.eta or 0.0,
            trend,
        )
        guide = None
        if self.guide is not None:
            power = (weights.eta or 0.0) * (1 if weights.kind == "degree" else TREND_OF_GUIDE)
            guide = _with_trend(self._aged(self.guide, weights.kappa), power, trend)
        return Scored(guided(vectors, guide, weights.delta), weights)

    def useful(self, scorer: Scorer, weights: Weights) -> Weights:
        """Return the weights; those without a use become None, missing ones get their defaults."""
        kind, gamma, delta, eta, kappa = weights
        has_history = isinstance(scorer, HistoryScorer) or self.guide is not None
        if isinstance(scorer, HistoryScorer):
            kind = None
        if kind in GRIDS and gamma is None:
            gamma = GRIDS[kind].start
        if delta is None:
            delta = DELTA
        has_order = self.chronology is not None
        return Weights(
            kind,
            gamma if kind in GRIDS else None,
            delta if self.guide is not None and kind is not None else None,
            (eta or 0.0) if has_order else None,
            (kappa or 0.0) if has_order and has_history else None,
        )

    def _aged(self, scorer: HistoryScorer, kappa: float | None) -> HistoryScorer:
        if not kappa or self.chronology is None:
            return scorer
        return scorer.fold_in(self.chronology.histories(kappa))


def _with_trend(scorer: HistoryScorer, eta: float | None, trend: Tensor | None) -> HistoryScorer:
    return scorer if trend is None else replace(scorer, item_factors=trend.pow(eta or 0.0))


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
