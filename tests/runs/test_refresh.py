"""New pairs for a trained recommender: its scores follow them, and nothing is trained."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

from mgformer.data.dataset import read_dataset
from mgformer.ranking.scorers import vectors_of
from mgformer.recommend.recommender import Recommender
from mgformer.runs.bundle import Bundle
from mgformer.runs.bundle_files import load_bundle, save_bundle
from mgformer.runs.refit import refit
from mgformer.runs.refresh import refresh
from tests.runs.oracles_refresh import (
    CASES,
    ITEMS,
    NEW,
    NEWER,
    OLD,
    ORDERS,
    TIME,
    USERS,
    VECTORS,
    Reference,
    as_ordered,
    refreshed,
    scores_of,
    trained,
)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("case", CASES)
def test_scores_are_those_of_all_pairs_with_what_was_learned(case: str, order: str) -> None:
    before = trained(case, order)
    after = refreshed(before, NEW, order)
    reference = Reference(before, [OLD, NEW], order)
    assert after.users.values.to_list() == reference.users
    assert set(reference.users) - set(USERS) == {"a", "u07x", "zz"}
    expected = reference.scores()
    np.testing.assert_allclose(scores_of(after), expected, rtol=2e-5, atol=2e-5)
    assert np.ptp(expected) > 0.1
    if order != "none":
        assert before.record.eta == 0.4
        assert np.ptp(np.log(reference.trend())) > 0.5


@pytest.mark.parametrize("order", ORDERS)
def test_the_reference_agrees_with_training(order: str) -> None:
    """Without new pairs the reference gives the scores that the training composed."""
    for case in CASES:
        before = trained(case, order, "nothing held out")
        expected = Reference(before, [OLD], order).scores()
        np.testing.assert_allclose(scores_of(before), expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("order", ["times", "none"])
@pytest.mark.parametrize("case", CASES)
def test_pairs_that_are_known_change_nothing(case: str, order: str) -> None:
    before = trained(case, order, "nothing held out")
    after = refreshed(before, OLD.sample(fraction=1, shuffle=True, seed=1), order)
    np.testing.assert_allclose(scores_of(after), scores_of(before), rtol=0, atol=1e-6)
    assert (after.record.refreshed.new_pairs, after.record.refreshed.new_users) == (0, 0)
    assert after.train.fingerprint == before.train.fingerprint
    np.testing.assert_array_equal(after.train.order, before.train.order)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("case", CASES)
def test_two_refreshes_are_one_with_all_pairs(case: str, order: str, tmp_path: Path) -> None:
    """New users of the first refresh have more items in the second, also after a save."""
    before = trained(case, order)
    save_bundle(refreshed(before, NEW, order), tmp_path)
    twice = refreshed(load_bundle(tmp_path), NEWER, order)
    once = refreshed(before, pl.concat([NEW, NEWER]), order)
    assert twice.users == once.users
    np.testing.assert_allclose(scores_of(twice), scores_of(once), rtol=0, atol=2e-6)
    np.testing.assert_array_equal(twice.folded_users, once.folded_users)
    assert twice.train.fingerprint == once.train.fingerprint
    assert twice.record.refreshed.trained_pairs == len(before.train)
    assert twice.record.protocol == once.record.protocol


@pytest.mark.parametrize("case", ["ease", "prior", "guided", "popularity"])
def test_a_refreshed_recommender_is_saved_and_loaded_whole(case: str, tmp_path: Path) -> None:
    after = refreshed(trained(case, "times"), NEW, "times")
    save_bundle(after, tmp_path)
    again = load_bundle(tmp_path)
    np.testing.assert_array_equal(scores_of(again), scores_of(after))
    np.testing.assert_array_equal(again.folded_users, after.folded_users)
    np.testing.assert_array_equal(again.train.times, after.train.times)
    assert again.record == after.record
    assert again.users == after.users


def test_what_the_record_says() -> None:
    before = trained("prior", "times")
    after = refreshed(before, NEW, "times")
    known = {(user, item) for user, item, _ in OLD.rows()}
    added = {(user, item) for user, item, _ in NEW.rows()}
    skipped = {pair for pair in added if pair[1] not in ITEMS}
    assert skipped
    done = after.record.refreshed
    assert done.pairs == len(known | added - skipped) == len(after.train)
    assert done.new_pairs == len(added - skipped - known)
    assert (done.new_users, done.skipped_items_pairs) == (3, len(skipped))
    assert done.trained_pairs == len(before.train) < len(known)
    assert after.record.protocol == (
        f"{before.record.protocol}; then refreshed with new pairs, which is not tested"
    )
    for name in ("test", "valid", "config", "score", "gamma", "eta", "fingerprint"):
        assert getattr(after.record, name) == getattr(before.record, name)
    assert (len(after.valid), len(after.test), after.history) == (0, 0, None)
    assert after.per_user is before.per_user


def test_the_bundle_before_is_not_changed() -> None:
    before = trained("guided", "times", seed=1)
    scores, pairs = scores_of(before), before.all_pairs.fingerprint
    refreshed(before, NEW, "times")
    np.testing.assert_array_equal(scores_of(before), scores)
    assert before.all_pairs.fingerprint == pairs


@pytest.mark.parametrize("case", ["ease", "prior", "guided", "popularity"])
def test_lists_of_new_and_known_users(case: str, caplog: pytest.LogCaptureFixture) -> None:
    before = Recommender(trained(case, "times"))
    after = before.refresh(NEW)
    assert "pairs are left out because the model has not learned their items" in caplog.text
    owned = {(user, item) for user, item, _ in pl.concat([OLD, NEW]).rows()}
    for user, source in (("u07x", "history"), ("u03", "model")):
        (answer,) = after.answers([user], k=24)
        assert answer.source == source
        listed = {one.item for one in answer.items}
        assert listed == {item for item in ITEMS if (user, item) not in owned}


@pytest.mark.parametrize("case", [case for case in CASES if case != "popularity"])
def test_a_new_user_is_scored_as_by_the_same_history(case: str) -> None:
    items = ["i17", "i03", "i11", "i08"]  # the latest last
    new = pl.DataFrame({"user": ["q"] * 4, "item": items, "time": [2000, 2001, 2002, 2003]})
    after = Recommender(trained(case, "times")).refresh(new)
    assert after.items_of("q")["item"].to_list() == items
    own, by_items = after.recommend("q", 20), after.recommend_for(items, 20)
    assert own["item"].equals(by_items["item"])
    np.testing.assert_allclose(own["score"], by_items["score"], rtol=1e-5)


def test_new_pairs_without_any_order_come_after_the_others_at_one_moment() -> None:
    before = trained("ease", "places")
    plain = read_dataset(as_ordered(NEW, "none"))
    assert plain.interactions.order is None
    after = refresh(before, plain)
    last = after.train.places.max()
    assert last == before.all_pairs.places.max() + 1
    added = {(user, item) for user, item, _ in NEW.rows() if item in ITEMS}
    assert (after.train.places == last).sum() == len(added)


def test_new_pairs_with_times_are_ordered_by_them() -> None:
    before = trained("ease", "places")
    shuffled = NEW.sample(fraction=1, shuffle=True, seed=3)
    by_time = refresh(before, read_dataset(shuffled))
    moments = {(user, item): 0 for user, item, _ in NEW.rows()}
    for user, item, moment in NEW.rows():
        moments[user, item] = max(moments[user, item], moment)
    own = by_time.train
    names = zip(own.users.decode(own.rows), own.items.decode(own.indices), strict=True)
    found = [
        (moments[pair], place)
        for pair, place in zip(names, own.places, strict=True)
        if pair in moments
    ]
    for moment, place in found:
        assert place > before.all_pairs.places.max()
        assert all((moment < m) == (place < p) for m, p in found)


LATE = pl.DataFrame({"user": ["u00", "u01", "w"], "item": ["late"] * 3, "time": [9999] * 3})


@pytest.mark.parametrize("case", ["ease", "prior"])
def test_items_that_were_not_learned_are_known_and_score_nobody(case: str) -> None:
    """An item that only test pairs have: the model was not trained on it."""
    name, options, score = CASES[case]
    data = pl.concat([OLD, LATE.head(2)])
    split = {"kind": "time", "valid": 0.0, "test": 0.02}
    before = Recommender.fit(data, name, options=options, score={**score, **TIME}, split=split)
    late = before.bundle.items.encode(["late"])[0]
    assert before.bundle.item_degrees[late] == 0
    after = before.refresh(pl.concat([NEW, LATE.tail(1)]))
    bundle = after.bundle
    assert bundle.item_degrees[late] == 0
    assert len(bundle.history) == 3
    assert bundle.record.refreshed.pairs == len(bundle.train) + 3
    for user in LATE["user"]:
        assert "late" not in after.recommend(user, 30)["item"].to_list()
    (answer,) = after.answers(["w"], k=3)
    assert answer.source == "popularity"
    again = after.refresh(NEWER).bundle
    assert len(again.history) == 3
    whole = refit(again)
    assert whole.item_degrees[late] == 3
    assert whole.record.refreshed is None
    assert whole.record.refit.held_out_before == len(whole.train) - len(before.bundle.train)


def test_popularity_counts_all_items() -> None:
    data = pl.concat([OLD, LATE.head(2)])
    split = {"kind": "time", "valid": 0.0, "test": 0.02}
    after = Recommender.fit(data, "popularity", split=split).refresh(LATE.tail(1)).bundle
    assert after.history is None
    late = after.items.encode(["late"])[0]
    assert scores_of(after)[:, late].tolist() == [3.0] * len(after.users)


def test_users_without_training_pairs_are_folded_in() -> None:
    """Held-out users, whose vectors training has left at their random start."""
    before = Recommender.fit(
        OLD.drop("time"), "directau", options=VECTORS, split={"kind": "users", "test": 0.2},
        train={"epochs": 1},
    ).bundle  # fmt: skip
    cold = before.cold_users
    assert len(cold) > 2
    after = refreshed(before, NEW, "none")
    numbers = after.users.encode(before.users.decode(cold))
    assert set(numbers) < set(after.folded_users)
    vectors = vectors_of(after.scorer)
    expected = vectors.fold_in(after.train.matrix[numbers]).users
    torch.testing.assert_close(vectors.users[torch.tensor(numbers)], expected)


def test_a_model_without_kinds_of_score_keeps_its_own_numbers() -> None:
    """Numbers per item that do not count users, as a model from outside may have."""
    popular = trained("popularity", "times")
    scorer = replace(popular.scorer, items=popular.scorer.items * 2 + 1)
    after = refreshed(replace(popular, scorer=scorer), NEW, "times")
    new, old = (
        Reference(popular, frames, "times").trend() ** 0.4
        for frames in ([OLD, NEW], [train_rows(popular)])
    )
    expected = scorer.items[:, 0].numpy() * new / old
    np.testing.assert_allclose(after.scorer.items[:, 0], expected, rtol=1e-5)


def train_rows(bundle: Bundle) -> pl.DataFrame:
    pairs = bundle.train
    users, items = pairs.users.decode(pairs.rows), pairs.items.decode(pairs.indices)
    return pl.DataFrame({"user": users, "item": items, "time": pairs.times})
