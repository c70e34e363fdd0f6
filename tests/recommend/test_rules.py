"""Rules and diversity against slow, obvious versions of both."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import scipy.sparse as sp
import torch

from mgformer.data.attributes import Attribute, Attributes
from mgformer.data.ids import Ids
from mgformer.data.interactions import Interactions
from mgformer.errors import ConfigError
from mgformer.ranking.scorers import DotScorer
from mgformer.recommend.query import Query
from mgformer.recommend.recommender import Recommender
from mgformer.recommend.reranking import POOL, similarities
from mgformer.recommend.tradeoff import tradeoff
from tests.crafted import NUM_USERS, whole_bundle
from tests.ranking import oracles_ranking as oracles

RULES = """
[[hide]]
where = "price > 95"
[[pin]]
items = [9, 33]
[[boost]]
where = "brand = b1"
factor = 3
[[boost]]
where = { genres = { has = "x" } }
factor = 0.5
[[at_most]]
attribute = "brand"
count = 2
"""
ITEMS = 40


@pytest.fixture(scope="module")
def recommender() -> Recommender:
    """Random vectors of forty items with attributes; each user has one item."""
    rng, made = np.random.default_rng(11), whole_bundle()
    own = np.arange(NUM_USERS, dtype=np.int32)
    ids = Ids(pl.Series("id", range(ITEMS), dtype=pl.Int64))
    pairs = Interactions.from_numbers(made.users, ids, own, own)
    genres = [[["x"], ["y"], ["x", "y"]][n % 3] for n in range(ITEMS)]
    about = {
        "brand": Attribute("category", pl.Series([f"b{n}" for n in rng.integers(0, 4, ITEMS)])),
        "genres": Attribute("categories", pl.Series(genres)),
        "price": Attribute("number", pl.Series(rng.integers(0, 100, ITEMS)), private=True),
    }
    users, items = (
        torch.from_numpy(rng.standard_normal((count, 3)).astype(np.float32))
        for count in (NUM_USERS, ITEMS)
    )
    plain = {"eta": None, "kappa": None, "gamma": None, "delta": None, "score": "dot"}
    return Recommender(
        replace(
            made,
            scorer=DotScorer(users, items),
            train=pairs,
            valid=pairs.no_pairs(),
            test=pairs.no_pairs(),
            history=None,
            record=made.record.model_copy(update=plain),
            about_items=Attributes(about),
            per_user=None,
            missing=None,
            folded_users=np.zeros(0, dtype=np.int64),
            predicted_users=np.zeros(0, dtype=np.int64),
            own_vectors=None,
            weights={},
        )
    )


def oracle(recommender: Recommender, user: int, k: int) -> list[int]:
    """What the rules say, item by item over the whole ranking."""
    bundle = recommender.bundle
    scores = bundle.scorer.scores(torch.tensor([user]))[0].double().tolist()
    rows = [{n: a.values[i] for n, a in bundle.about_items.items()} for i in range(ITEMS)]
    for item, row in enumerate(rows):
        factor = (3 if row["brand"] == "b1" else 1) * (0.5 if "x" in row["genres"] else 1)
        scores[item] = scores[item] * factor if scores[item] >= 0 else scores[item] / factor
    ranked = sorted(range(ITEMS), key=lambda item: (-scores[item], item))
    free = [i for i in ranked if rows[i]["price"] <= 95 and i != user]
    order = [i for i in (9, 33) if i in free] + [i for i in free if i not in (9, 33)]
    kept: list[int] = []
    for item in order:
        if sum(rows[i]["brand"] == rows[item]["brand"] for i in kept) < 2 and len(kept) < k:
            kept.append(item)
    return kept


@pytest.mark.parametrize("k", [1, 3, 8, ITEMS])
def test_lists_follow_the_rules(recommender: Recommender, tmp_path: Path, k: int):
    (tmp_path / "rules.toml").write_text(RULES)
    ruled = recommender.with_rules(tmp_path / "rules.toml")
    users = recommender.bundle.users.values.to_list()
    found = ruled.recommend(users, k)
    for number, user in enumerate(users):
        listed = found.filter(pl.col("user") == user)["item"].to_list()
        assert listed == oracle(recommender, number, k)
        assert [i.item for i in ruled.answer(Query(user=user, k=k)).items] == listed
    assert recommender.recommend(users, k)["item"].to_list() != found["item"].to_list()


def test_rules_are_kept_in_the_bundle(recommender: Recommender, tmp_path: Path):
    (tmp_path / "rules.toml").write_text(RULES)
    ruled = recommender.with_rules(tmp_path / "rules.toml")
    ruled.save(tmp_path / "run")
    again = Recommender.load(tmp_path / "run")
    users = again.bundle.users.values
    assert again.recommend(users, 5).equals(ruled.recommend(users, 5))
    assert again.with_rules(None).recommend(users, 5).equals(recommender.recommend(users, 5))


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ("[[hide]]\nwhere = 'brnd = a'", r"hide 1: where: .*did you mean brand\?"),
        ("[[boost]]\nwhere = 'brand > 1'\nfactor = 2.0", "boost 1: where: .*brand is a category"),
        (
            "[[boost]]\nwhere = 'brand = a'\nfactor = 0.0",
            "boost.1.factor: Input should be greater than 0, got 0.0",
        ),
        ("[[pin]]\nitems = [99]", "pin: unknown item '99'"),
        ("[[at_most]]\nattribute = 'brands'\ncount = 1", r"at_most: .*did you mean brand\?"),
        ("[[hides]]\nwhere = 'a'", r"hides: unknown option; did you mean hide\?"),
        ("[[hide]]\nwhen = 'a'", r"hide.1.when: unknown option; did you mean where\?"),
        ("[[boost]]\nwhere = 'a'", "boost.1.factor: got nothing, expected a value"),
        ("[hide]\nwhere = 'a'", r"hide: .* got \{'where': 'a'\}; write \[\[hide\]\]"),
        ("hide = ", "cannot be read as TOML"),
    ],
)
def test_wrong_rules_are_refused_in_one_line(
    recommender: Recommender, tmp_path: Path, rules: str, message: str
):
    path = tmp_path / "rules.toml"
    path.write_text(rules)
    with pytest.raises(ConfigError, match=message) as error:
        recommender.with_rules(path)
    assert str(error.value).startswith(str(path))
    assert "\n" not in str(error.value)
    with pytest.raises(ConfigError, match=r"no\.toml: cannot be read"):
        recommender.with_rules(tmp_path / "no.toml")


def test_the_lowest_of_several_counts_holds(recommender: Recommender):
    caps = [{"attribute": "genres", "count": count} for count in (4, 2, 3)]
    lowest = recommender.with_rules({"at_most": caps[1:2]}).recommend("u00", 9)
    assert recommender.with_rules({"at_most": caps}).recommend("u00", 9).equals(lowest)


@pytest.mark.parametrize(("rule", "wish"), [(3, 2), (2, 3)])
def test_the_lower_of_rule_and_wish_holds(recommender: Recommender, rule: int, wish: int):
    ruled = recommender.with_rules({"at_most": [{"attribute": "genres", "count": rule}]})
    lowest = recommender.recommend("u00", 9, at_most={"genres": 2})
    assert ruled.recommend("u00", 9, at_most={"genres": wish}).equals(lowest)
    assert not recommender.recommend("u00", 9, at_most={"genres": 3}).equals(lowest)


def test_pinned_items_stay_first_in_diverse_lists(recommender: Recommender):
    ruled = recommender.with_rules({"pin": [{"items": [39, 9, 33]}]})
    for user in recommender.bundle.users.values:
        found = ruled.recommend(user, 6, diversity=0.6)["item"].to_list()
        seen = recommender.items_of(user)["item"].to_list()
        pinned = [item for item in (39, 9, 33) if item not in seen]
        assert found[: len(pinned)] == pinned
        assert len({*found}) == 6


def marginal(recommender: Recommender, user: str, k: int, diversity: float) -> list[Any]:
    """Maximal marginal relevance, one item after the other."""
    pool = recommender.recommend(user, POOL * k)
    items, scores = pool["item"].to_list(), np.array(pool["score"].to_list(), dtype=np.float64)
    worth = (scores - scores.min()) / (scores.max() - scores.min())
    alike = similarities(recommender.bundle, items)
    kept: list[int] = []
    while len(kept) < k:
        gains = {}
        for place in range(len(items)):
            near = max((alike[place, other] for other in kept), default=0.0)
            gains[place] = (1 - diversity) * worth[place] - diversity * max(near, 0.0)
        rest = [place for place in gains if place not in kept]
        kept.append(max(rest, key=lambda place: (gains[place], -place)))
    return [items[place] for place in kept]


@pytest.mark.parametrize("diversity", [0.2, 0.7, 1.0])
def test_diversity_is_maximal_marginal_relevance(recommender: Recommender, diversity: float):
    changed = 0
    for user in recommender.bundle.users.values:
        found = recommender.recommend(user, 5, diversity=diversity)["item"].to_list()
        assert found == marginal(recommender, user, 5, diversity)
        changed += found != recommender.recommend(user, 5)["item"].to_list()
    assert changed


def test_at_most_so_many_of_a_kind(recommender: Recommender):
    about = recommender.bundle.about_items["genres"].values
    for user in recommender.bundle.users.values:
        counts: dict[str, int] = {}
        kept = []
        for item in recommender.recommend(user, ITEMS)["item"]:
            if all(counts.get(genre, 0) < 3 for genre in about[item]):
                kept.append(item)
                counts |= {genre: counts.get(genre, 0) + 1 for genre in about[item]}
        found = recommender.recommend(user, 20, at_most={"genres": 3})
        assert found["item"].to_list() == kept
    for name in ("price", "prices"):  # private, and not there
        with pytest.raises(ConfigError, match=f"at_most: got the attribute '{name}', expected one"):
            recommender.recommend("u00", 4, at_most={name: 1})


def test_the_cost_of_diversity_is_that_of_the_lists_one_by_one(recommender: Recommender):
    """NDCG, similarity within lists and coverage on validation, whatever the rules say."""
    rng = np.random.default_rng(3)
    users = np.repeat(np.arange(0, NUM_USERS, 2, dtype=np.int32), 4)
    items = rng.integers(NUM_USERS, ITEMS, len(users)).astype(np.int32)  # nobody has them
    bundle = recommender.bundle
    valid = Interactions.from_numbers(bundle.users, bundle.items, users, items)
    ruled = recommender.with_rules({"hide": [{"where": "brand = b1"}]}).bundle
    found = tradeoff(replace(ruled, valid=valid), [0.0, 0.4], k=6)
    assert found is not None
    assert (found.k, found.num_users) == (6, len({*users.tolist()}))
    assert [point.diversity for point in found.points] == [0.0, 0.4]
    for point in found.points:
        gains, differences, shown = [], [], set()
        for number in range(0, NUM_USERS, 2):
            user, wanted = bundle.users.values[number], {*valid.items_of(number).tolist()}
            if point.diversity:
                listed = marginal(recommender, user, 6, point.diversity)
            else:
                listed = recommender.recommend(user, 6)["item"].to_list()
            gains.append(oracles.METRICS["ndcg"]([i in wanted for i in listed], len(wanted), 6))
            alike = similarities(bundle, listed)
            pairs = [1 - alike[a, b] for a in range(6) for b in range(6) if a < b]
            differences.append(np.mean(pairs))
            shown |= {*listed}
        assert point.ndcg == pytest.approx(np.mean(gains))
        assert point.intra_list == pytest.approx(np.mean(differences))
        assert point.coverage == pytest.approx(len(shown) / ITEMS)
    assert found.points[0].intra_list < found.points[1].intra_list


def test_the_cost_for_users_who_are_held_out_is_that_of_their_known_items(recommender: Recommender):
    """Nothing was trained on them: they are scored by the items that stay known."""
    bundle = recommender.bundle
    out = np.arange(0, NUM_USERS, 2, dtype=np.int32)
    train = bundle.train.subset(~np.isin(bundle.train.rows, out))
    history = bundle.train.subset(np.isin(bundle.train.rows, out))
    wanted = (ITEMS - 1 - np.arange(len(out))).astype(np.int32)
    valid = Interactions.from_numbers(bundle.users, bundle.items, out, wanted)
    found = tradeoff(replace(bundle, train=train, history=history, valid=valid), [0.0], k=8)
    assert found is not None
    (point,) = found.points
    gains = []
    for user, item in zip(out, wanted, strict=True):
        known = history.items_of(user).tolist()
        row = sp.csr_array(history.matrix[[user]])
        scores = bundle.scorer.fold_in(row).scores(torch.tensor([0]))[0].numpy().copy()
        scores[known] = -np.inf
        listed = np.argsort(-scores, kind="stable")[:8].tolist()
        gains.append(oracles.METRICS["ndcg"]([i == item for i in listed], 1, 8))
    assert 0 < np.mean(gains) < 1
    assert point.ndcg == pytest.approx(np.mean(gains))


def test_without_validation_pairs_there_is_no_cost_of_diversity(recommender: Recommender):
    assert tradeoff(recommender.bundle) is None
