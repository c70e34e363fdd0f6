"""The protocol: what is ranked, what is masked, and which users count.

All items are ranked for every user with held-out items. Items that the user is known to have are
masked. Nothing is sampled. Values are kept per user, so that two runs can be compared.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from pydantic import BaseModel, Field, field_validator

from mgformer.data.interactions import Interactions
from mgformer.data.options import OPTIONS
from mgformer.ranking import metrics
from mgformer.ranking.ages import AGES, UNSEEN, item_ages
from mgformer.ranking.scorers import Scorer
from mgformer.ranking.topk import top_k
from mgformer.world import current

GROUPS = ("unpopular", "normal", "popular")
GROUP_SHARES = (0.80, 0.15, 0.05)
"""Shares of the items, from the least to the most popular, as in the SimGCL paper which the
MGFormer paper follows for its figure."""


class EvaluationConfig(BaseModel):
    """Options of evaluation."""

    model_config = OPTIONS

    ks: tuple[int, ...] = (10, 20, 50)
    """Cut-offs: the lengths of lists at which metrics are computed."""
    memory_mb: int = Field(256, ge=1)
    """Bound on the working memory of ranking, in megabytes."""
    metrics: tuple[str, ...] | None = None
    """Metrics from outside to add, as `package.module:function`. The function gets hits [U, K], the
    number of held-out items [U] and k, and returns one value per user, as in ranking/metrics.py."""

    @field_validator("ks")
    @classmethod
    def _positive(cls, ks: tuple[int, ...]) -> tuple[int, ...]:
        if not ks or min(ks) < 1:
            raise ValueError(f"cut-offs must be at least 1, got {list(ks)}")
        return tuple(sorted(set(ks)))


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Metrics of one ranking."""

    users: NDArray[np.int64]
    """[V] users with held-out items, by number."""
    values: Mapping[str, NDArray[np.float64]]
    """metric@k → [V] one value per user."""
    catalogue: Mapping[str, float]
    """Coverage, Gini and novelty at each k, over all lists together."""
    groups: Mapping[str, Mapping[str, float]]
    """group → metric@k → the contribution of the group's items; contributions sum to the mean."""
    ages: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """age of items → metric@k → the contribution of these items, and as `possible` the recall of
    finding all of them; empty if ages are not known."""

    @property
    def means(self) -> dict[str, float]:
        """metric@k → mean over users, then the catalogue's figures."""
        return {name: float(v.mean()) for name, v in self.values.items()} | dict(self.catalogue)


def evaluate(
    scorer: Scorer,
    held_out: Interactions,
    seen: sp.csr_array,
    item_degrees: NDArray[np.int64],
    options: EvaluationConfig = EvaluationConfig(),  # noqa: B008 -- frozen
    known: sp.csr_array | None = None,
    missing: NDArray[np.int64] | None = None,
    candidates: NDArray[np.int64] | None = None,
    ages: NDArray[np.int8] | None = None,
) -> Evaluation | None:
    """Rank all items for the users of `held_out`, masking `seen`; None if there are no such users.

    Users without known items are left out: the model can only guess.

    Args:
        scorer: The trained recommender.
        held_out: Held-out pairs, which a good ranking finds.
        seen: [U, I] pairs that are not recommended.
        item_degrees: [I] users of each item in train, for novelty and the popularity groups.
        options: Cut-offs and memory.
        known: [U, I] pairs that the model knows; `seen` by default.
        missing: [U] held-out items of each user that the scorer does not have; none by default.
            They count as misses.
        candidates: Items that are ranked; all by default.
        ages: [I] place in `AGES` of each item; not known by default. Missing items are unseen.
    """
    known = seen if known is None else known
    wanted: NDArray[np.int64] = np.diff(held_out.indptr)
    if missing is not None:
        wanted = wanted + missing
    users = np.flatnonzero((wanted > 0) & (np.diff(known.indptr) > 0))
    if not len(users):
        return None
    ks = options.ks
    ranked = _ranked(scorer, users, seen, options, candidates)
    relevant = wanted[users]
    hits = hits_of(held_out, users, ranked)
    formulas = {**metrics.METRICS, **metrics.outside_metrics(options.metrics or ())}
    values = {
        f"{name}@{k}": formula(hits, relevant, k) for name, formula in formulas.items() for k in ks
    }
    catalogue = {}
    for k in ks:
        shown = ranked[:, :k]
        catalogue[f"coverage@{k}"] = metrics.coverage(shown, held_out.num_items)
        catalogue[f"gini@{k}"] = metrics.gini(shown, held_out.num_items)
        catalogue[f"novelty@{k}"] = metrics.novelty(shown, item_degrees, held_out.num_users)
    groups = _contributions(GROUPS, popularity_groups(item_degrees)[ranked], hits, relevant, ks)
    by_age: dict[str, dict[str, float]] = {}
    if ages is not None:
        by_age = _contributions(AGES, ages[ranked], hits, relevant, ks)
        for number, age in enumerate(AGES):
            counts = np.bincount(
                held_out.rows[ages[held_out.indices] == number], minlength=len(wanted)
            )
            if number == UNSEEN and missing is not None:
                counts = counts + missing
            by_age[age]["possible"] = float((counts[users] / relevant).mean())
    return Evaluation(users, values, catalogue, groups, by_age)


def _contributions(
    names: Sequence[str],
    group_of: NDArray[np.int8],
    hits: NDArray[np.bool_],
    relevant: NDArray[np.int64],
    ks: Sequence[int],
) -> dict[str, dict[str, float]]:
    """Return what the hits of each group add to recall and NDCG.

    Args:
        names: The groups.
        group_of: [U, K] the group of each ranked item.
        hits: [U, K] whether each ranked item is held out.
        relevant: [U] held-out items.
        ks: Cut-offs.
    """
    return {
        group: {
            f"{name}@{k}": float(
                metrics.METRICS[name](hits & (group_of == number), relevant, k).mean()
            )
            for name in ("recall", "ndcg")
            for k in ks
        }
        for number, group in enumerate(names)
    }


def _ranked(
    scorer: Scorer,
    users: NDArray[np.int64],
    seen: sp.csr_array,
    options: EvaluationConfig,
    candidates: NDArray[np.int64] | None,
) -> NDArray[np.int32]:
    """Return the lists of users; every process ranks a part of them, and all get all lists."""
    world = current()
    own = users[world.part_of(len(users))]
    lists = top_k(
        scorer,
        own,
        max(options.ks),
        seen=seen,
        candidates=candidates,
        memory_mb=options.memory_mb,
    ).items
    return world.concatenated(lists)


class Parts(Protocol):
    """Parts of a dataset, as a split or a trained recommender has them."""

    @property
    def train(self) -> Interactions: ...
    @property
    def valid(self) -> Interactions: ...
    @property
    def test(self) -> Interactions: ...
    @property
    def history(self) -> Interactions | None: ...
    @property
    def missing(self) -> NDArray[np.int64] | None: ...
    @property
    def cold_items(self) -> NDArray[np.int64] | None: ...


def evaluate_part(
    scorer: Scorer, parts: Parts, part: Literal["valid", "test"], options: EvaluationConfig
) -> Evaluation | None:
    """Evaluate on validation or test with the masks of the protocol; None if the part is empty.

    If whole items are held out for test, they are ranked among themselves.

    Validation masks train. Test masks train and validation. Held-out users are ranked by their
    history, and the history is masked.
    """
    train, history = parts.train, parts.history
    held_out = parts.valid if part == "valid" else parts.test
    if not len(held_out):
        return None
    degrees = np.bincount(train.indices, minlength=train.num_items)
    if history is not None:
        seen = known = history.matrix
        scorer = scorer.fold_in(seen)
    else:
        known = train.matrix
        seen = known if part == "valid" else sp.csr_array(known + parts.valid.matrix)
    missing, candidates = (parts.missing, parts.cold_items) if part == "test" else (None, None)
    ages = item_ages(train) if part == "test" else None
    return evaluate(scorer, held_out, seen, degrees, options, known, missing, candidates, ages)


def popularity_groups(item_degrees: NDArray[np.int64]) -> NDArray[np.int8]:
    """Return the group number of each item: the least popular 80 %, the next 15 %, the top 5 %."""
    order = np.argsort(item_degrees, kind="stable")
    bounds = np.round(np.cumsum(GROUP_SHARES) * len(order)).astype(np.int64)
    groups = np.empty(len(order), dtype=np.int8)
    groups[order] = np.searchsorted(bounds, np.arange(len(order)), side="right").clip(max=2)
    return groups


def hits_of(
    held_out: Interactions, users: NDArray[np.int64], ranked: NDArray[np.int32]
) -> NDArray[np.bool_]:
    """Return whether each ranked item is held out for its user; empty places count as misses."""
    if not len(held_out):
        return np.zeros(ranked.shape, dtype=bool)
    width = held_out.num_items
    known = held_out.rows.astype(np.int64) * width + held_out.indices  # ascending
    asked = users[:, None] * width + ranked
    places = np.minimum(np.searchsorted(known, asked), len(known) - 1)
    found: NDArray[np.bool_] = (known[places] == asked) & (ranked >= 0)
    return found
