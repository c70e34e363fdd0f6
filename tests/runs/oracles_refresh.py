"""Recommenders with old pairs, new pairs for them, and the scores that follow, by loops."""

import math
from collections import defaultdict
from dataclasses import replace
from functools import cache

import numpy as np
import polars as pl
import scipy.sparse as sp
import torch

from mgformer.data.dataset import read_dataset
from mgformer.ranking.scorers import HistoryScorer, SumScorer, vectors_of
from mgformer.runs.bundle import Bundle
from mgformer.runs.config import build_config
from mgformer.runs.refresh import read_new, refresh
from mgformer.runs.train import train

ITEMS = [f"i{n:02}" for n in range(24)]
VECTORS = {"dim": 6, "encoder": "mf"}
CASES = {
    "popularity": ("popularity", {}, {}),
    "ease": ("ease", {}, {}),
    "ridge": ("ridge", {"num_predictors": 8, "l2": 5.0}, {}),
    "gfcf": ("gfcf", {"rank": 4}, {}),
    "prior": ("directau", VECTORS, {"kind": "prior", "gamma": 0.3}),
    "degree": ("directau", VECTORS, {"kind": "degree", "gamma": 0.7}),
    "cosine": ("directau", VECTORS, {"kind": "cosine"}),
    "dot": ("directau", VECTORS, {"kind": "dot"}),
    "guided": ("guided", {"dim": 6, "num_neighbors": 4, "num_predictors": 8, "l2": 5.0},
               {"kind": "prior", "gamma": 0.3, "delta": 1.5}),
    "guided-degree": ("guided", {"dim": 6, "num_neighbors": 4, "num_predictors": 8, "l2": 5.0},
                      {"kind": "degree", "gamma": 0.4, "delta": 0.7}),
}  # fmt: skip
ORDERS = ("times", "places", "none")
TIME = {"time": "on", "eta": 0.4, "kappa": 2.0}
NO_TEST = {"kind": "ratio", "valid": 0.0, "test": 0.0}


def drawn(seed: int, users: list[str], items: list[str], start: int, count: int) -> pl.DataFrame:
    """Rows in order of time, several at one moment; some items are on the rise."""
    rng = np.random.default_rng(seed)
    places = rng.integers(0, len(items), count)
    rising = rng.random(count) < np.linspace(0, 0.5, count)
    places[rising] %= 5
    return pl.DataFrame(
        {
            "user": rng.choice(users, count),
            "item": [items[place] for place in places],
            "time": start + np.arange(count) // 3,
        }
    )


USERS = [f"u{n:02}" for n in range(30)]
OLD = drawn(0, USERS, ITEMS, 1000, 420)
# Ids of new users come before, between and after those of the others.
NEW = drawn(1, [*USERS[:12], "a", "u07x", "zz"], [*ITEMS, "i05x", "new"], 1130, 150)
NEWER = drawn(2, ["b", "u07x", "zz", *USERS[8:16]], ITEMS, 1200, 60)


def as_ordered(frame: pl.DataFrame, order: str) -> pl.DataFrame:
    return frame if order == "times" else frame.drop("time")


def fitted(frame: pl.DataFrame, name: str, options: dict, **sections: object) -> Bundle:
    config = build_config({"model": {"name": name, **options}, **sections})
    return train(config, read_dataset(frame, config.data))


@cache
def trained(case: str, order: str, split: str = "ratio", seed: int = 0) -> Bundle:
    name, options, score = CASES[case]
    return fitted(
        as_ordered(OLD, order),
        name,
        options,
        seed=seed,
        score=score if order == "none" else {**score, **TIME},
        data={"order": "file"} if order == "places" else {},
        split={"kind": "ratio"} if split == "ratio" else NO_TEST,
        evaluation={"ks": [5]},
        train={"epochs": 2},
    )


def refreshed(bundle: Bundle, frame: pl.DataFrame, order: str) -> Bundle:
    return refresh(bundle, read_new(bundle, as_ordered(frame, order)))


def scores_of(bundle: Bundle) -> np.ndarray:
    return bundle.scorer.scores(torch.arange(len(bundle.users))).numpy()


class Reference:
    """The slow and obvious way: everything by loops over the rows of the files."""

    def __init__(self, before: Bundle, frames: list[pl.DataFrame], order: str) -> None:
        self.before, self.order = before, order
        self.moments: dict[tuple[str, str], int] = {}
        place = 0
        for frame in frames:
            for user, item, moment in frame.rows():
                if item in ITEMS:
                    now = moment if order == "times" else place
                    self.moments[user, item] = max(now, self.moments.get((user, item), -1))
                    place += 1
        self.users = sorted({user for user, _ in self.moments})
        self.own = defaultdict(list)
        for (user, item), moment in self.moments.items():
            self.own[user].append((moment, ITEMS.index(item)))
        self.degrees = np.zeros(len(ITEMS))
        for _, item in self.moments:
            self.degrees[ITEMS.index(item)] += 1

    def position(self, user: str, moment: int) -> float:
        own = [other for other, _ in self.own[user]]
        return sum(other <= moment for other in own) / len(own)

    def trend(self) -> np.ndarray:
        got, expected = np.zeros(len(ITEMS)), np.zeros(len(ITEMS))
        ordered = sorted(self.moments.values())
        cut = ordered[math.floor((len(ordered) - 1) * 0.8)]
        for user in self.users:
            if self.order == "times":
                recent = [moment > cut for moment, _ in self.own[user]]
                share = sum(moment > cut for moment in ordered) / len(ordered)
            else:
                recent = [self.position(user, m) > 0.8 + 1e-6 for m, _ in self.own[user]]
                share = sum(recent) / len(recent)
            for is_recent, (_, item) in zip(recent, self.own[user], strict=True):
                got[item] += is_recent
                expected[item] += share
        return (got + 5) / (expected + 5)

    def history(self, user: str, kappa: float | None) -> np.ndarray:
        row = np.zeros(len(ITEMS))
        for moment, item in self.own[user]:
            row[item] = math.exp(-(kappa or 0) * (1 - self.position(user, moment)))
        return row

    def scores(self) -> np.ndarray:
        before, record = self.before, self.before.record
        eta, kappa = record.eta or 0.0, record.kappa
        trend = np.ones(len(ITEMS)) if self.order == "none" else self.trend()
        histories = np.stack([self.history(user, kappa) for user in self.users])
        if record.model == "popularity":
            return np.tile(self.degrees * trend**eta, (len(self.users), 1))
        if isinstance(before.scorer, HistoryScorer):
            return histories @ item_weights(before.scorer) * trend**eta
        users, items = learned_vectors(before)
        size = 1.0
        if record.score == "dot":
            size = np.linalg.norm(users, axis=1).mean() * np.linalg.norm(items, axis=1).mean()
        else:
            users, items = (v / np.linalg.norm(v, axis=1, keepdims=True) for v in (users, items))
        popularity = np.maximum(self.degrees, 1) / max(self.degrees)
        added = np.zeros(len(ITEMS))
        if record.score == "degree":
            items = items * (popularity**record.gamma * trend**eta)[:, None]
        else:
            added = eta * size * np.log(trend)
        if record.score == "prior":
            added = added + record.gamma * np.log(popularity)
        rows = []
        known = dict(zip(before.users.values, users, strict=True))
        for user, history in zip(self.users, histories, strict=True):
            vector = known[user] if user in known else self.folded(items, history)
            rows.append(items @ vector + added)
        scores = np.stack(rows)
        if isinstance(before.scorer, SumScorer):
            power = eta if record.score == "degree" else 3 * eta
            scores += histories @ item_weights(before.scorer.history) * trend**power
        return scores

    def folded(self, items: np.ndarray, history: np.ndarray) -> np.ndarray:
        """Solve the normal equations of a new user in full."""
        scorer = vectors_of(self.before.scorer)
        matrix = (
            scorer.l2
            * (history.sum() + scorer.unobserved_weight * len(items))
            * np.eye(items.shape[1])
        )
        for vector, count in zip(items, history, strict=True):
            matrix += (count + scorer.unobserved_weight) * np.outer(vector, vector)
        user = np.linalg.solve(matrix, items.T @ history)
        return user if self.before.record.score == "dot" else user / np.linalg.norm(user)


def item_weights(scorer: HistoryScorer) -> np.ndarray:
    """What a history of one item alone adds to the score of every item."""
    alone = sp.csr_array(np.eye(len(ITEMS), dtype=np.float32))
    plain = replace(scorer, item_factors=None).fold_in(alone)
    return plain.scores(torch.arange(len(ITEMS))).numpy().astype(np.float64)


def learned_vectors(bundle: Bundle) -> tuple[np.ndarray, np.ndarray]:
    """The embeddings as training left them."""
    if "embeddings" in bundle.weights:
        table = bundle.weights["embeddings"].numpy().astype(np.float64)
    else:  # of guided; lengths have no part in its scores
        vectors = vectors_of(bundle.scorer)
        table = torch.cat([vectors.users, vectors.items])[:, : vectors.num_varying].numpy()
    return table[: len(bundle.users)], table[len(bundle.users) :]
