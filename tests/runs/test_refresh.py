"""New pairs for a trained recommender: its scores follow them, and nothing is trained."""

import json
import math
from collections import defaultdict
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import scipy.sparse as sp
import torch

from mgformer.data.dataset import read_dataset
from mgformer.data.options import DataConfig
from mgformer.errors import ConfigError, DataError
from mgformer.ranking.scorers import HistoryScorer, SumScorer, vectors_of
from mgformer.recommend.recommender import Recommender
from mgformer.runs.bundle import Bundle
from mgformer.runs.bundle_files import load_bundle, save_bundle
from mgformer.runs.config import build_config
from mgformer.runs.refit import refit
from mgformer.runs.refresh import read_new, refresh
from mgformer.runs.train import train, untrained_model
from tests.command import assert_one_line, mgformer, succeed

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
            scores += histories @ item_weights(before.scorer.history)
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


def test_weights_stay_only_if_no_users_are_added(caplog: pytest.LogCaptureFixture) -> None:
    before = trained("prior", "times")
    same_users = NEW.filter(pl.col("user").is_in(USERS))
    assert refreshed(before, same_users, "times").weights is before.weights
    assert "are left out because they have no rows for new users" not in caplog.text
    after = refreshed(before, NEW, "times")
    assert after.weights == {}
    assert "are left out because they have no rows for new users" in caplog.text
    with pytest.raises(ConfigError, match="does not have the training graph any more"):
        untrained_model(after)


@pytest.mark.parametrize(
    ("new", "message"),
    [
        (NEW.drop("time"), "data: got no times, expected times because .*; add a time column"),
        (NEW.with_columns(item=pl.lit("other")), "data: got .* pairs, none with an item that"),
        (pl.DataFrame({"user": [1], "item": ["i01"], "time": [5]}),
         "user ids are text in the old run but whole numbers in data"),
        (pl.DataFrame({"user": ["u"], "item": [1], "time": [5]}),
         "item ids are text in the old run but whole numbers in data"),
    ],
    ids=["times", "unknown items", "users", "items"],
)  # fmt: skip
def test_data_that_cannot_be_added(new: pl.DataFrame, message: str) -> None:
    with pytest.raises(DataError, match=f"^{message}") as caught:
        Recommender(trained("ease", "times")).refresh(new)
    assert "\n" not in str(caught.value)


def test_times_of_another_unit_are_noticed(caplog: pytest.LogCaptureFixture) -> None:
    refreshed(trained("ease", "times"), NEW, "times")
    assert "in the same unit" not in caplog.text
    refreshed(trained("ease", "times"), NEW.with_columns(pl.col("time") * 1000), "times")
    assert "are they in the same unit?" in caplog.text


def test_new_data_are_read_with_the_options_of_the_run(tmp_path: Path) -> None:
    names = {"user": "who", "item": "what", "time": "when"}
    rated = OLD.rename(names).with_columns(rating=5.0)
    data = {"user": "who", "item": "what", "time": "when", "rating": "rating", "min_rating": 4}
    (tmp_path / "names.csv").write_text("i01,First\n")
    own = {**data, "k_core": 2, "items": str(tmp_path / "names.csv")}
    before = Recommender(fitted(rated, "itemknn", {}, data=own))
    (tmp_path / "names.csv").unlink()
    new = NEW.rename(names).with_columns(rating=pl.Series(np.arange(NEW.height) % 2 * 4.0))
    after = before.refresh(new)
    kept = NEW.filter(pl.arange(NEW.height) % 2 == 1)
    assert after.bundle.train.fingerprint == before.refresh(
        kept, user="user", item="item", time="time", data={"min_rating": None, "rating": None}
    ).bundle.train.fingerprint  # fmt: skip
    assert after.bundle.name_of(1) == "First"
    with pytest.raises(ConfigError, match=r"data\.tim: unknown option; did you mean time\?"):
        before.refresh(new, data={"tim": "when"})


@pytest.fixture
def run(tmp_path: Path) -> Path:
    save_bundle(trained("guided", "times"), tmp_path / "run")
    NEW.group_by("user", "item").agg(pl.max("time")).write_csv(tmp_path / "new.csv")
    return tmp_path / "run"


def test_the_command_replaces_the_recommender(run: Path) -> None:
    before, new = load_bundle(run), run.with_name("new.csv")
    expected = refreshed(before, NEW, "times")
    done = mgformer("refresh", run, "--with", new, "--out", run.with_name("other"))
    assert done.returncode == 0, done.stderr
    counts = expected.record.refreshed
    assert f"new pairs: {counts.new_pairs}; new users: 3\n" in done.stdout
    assert f"their items are new: {counts.skipped_items_pairs}\n" in done.stdout
    assert f"saved in {run.with_name('other')}" in done.stdout
    assert "warning: new: " in done.stderr
    assert load_bundle(run).record == before.record
    shown = json.loads(succeed("refresh", run, "--with", new, "--json"))
    assert shown["run"] == str(run)
    wanted = counts.model_dump(exclude={"seconds"})
    assert wanted.items() < shown["refreshed"].items()
    for folder in (run, run.with_name("other")):
        np.testing.assert_array_equal(scores_of(load_bundle(folder)), scores_of(expected))
    listed = json.loads(succeed("recommend", run, "--user", "u07x", "-k", 2, "--json"))
    assert len(listed["users"][0]["items"]) == 2
    evaluated = json.loads(succeed("evaluate", run, "--json"))
    assert evaluated["test"] == before.record.test
    succeed("export", run, "--format", "card")
    card = (run / "export/MODEL_CARD.md").read_text()
    num_added = counts.pairs - counts.trained_pairs
    assert f"- refreshed: {num_added:,} of {counts.pairs:,} interactions were added" in card
    done = mgformer("train", new, "--from", run, "--out", run.with_name("next"))
    assert_one_line(done, "the run to continue from has no weights")
    assert "held out or added before" in succeed("refit", run, "--out", run.with_name("again"))
    again = load_bundle(run.with_name("again"))
    assert len(again.train) == counts.pairs
    assert (again.record.refreshed, len(again.folded_users)) == (None, 0)
    done = mgformer("refit", run.with_name("again"), "--out", run.with_name("more"))
    assert_one_line(done, "nothing was held out")


def test_a_report_on_a_refreshed_run(run: Path) -> None:
    pytest.importorskip("plotly")
    succeed("refresh", run, "--with", run.with_name("new.csv"))
    succeed("report", run, "--out", run.with_name("report.html"))
    assert "then refreshed with new pairs" in run.with_name("report.html").read_text()


def test_wrong_input_is_one_line(run: Path) -> None:
    before, new = load_bundle(run).record, run.with_name("new.csv")

    def refused(message: str, *arguments: object, folder: Path = run) -> None:
        assert_one_line(mgformer("refresh", folder, *arguments), message)

    refused("no trained recommender here", "--with", new, folder=run / "nowhere")
    refused("no dataset", "--with", run / "nothing.csv")
    refused("--set model: a refresh takes", "--with", new, "--set", "model.dim=3")
    refused("--set data: a refresh takes", "--with", new, "--set", "data=3")
    refused("expected 'when'", "--with", new, "--set", "data.time=when")
    refused("got no times, expected times", "--with", new, "--set", "data.time=''")
    refused("is a file, expected a folder", "--with", new, "--out", new / "x")
    parts = run.with_name("parts")
    parts.mkdir()
    for name in ("train", "test"):
        items = {"train": ("i01", "i02"), "test": ("i03",)}[name]
        rows = [(user, item, 1000) for user in USERS[:3] for item in items]
        if name == "train":
            rows += [(USERS[3], "i03", 1000)]
        pl.DataFrame(rows, OLD.schema, orient="row").write_csv(parts / f"{name}.csv")
    refused("has train and test parts, which cannot be joined", "--with", parts)
    assert mgformer("refresh", run).returncode == 2
    assert load_bundle(run).record == before


def test_data_options_of_an_old_record() -> None:
    before = trained("ease", "none")
    record = before.record.model_copy(update={"config": {"model": {"name": "ease"}}})
    new = read_new(replace(before, record=record), NEW.drop("time"))
    assert new.fingerprint == read_dataset(NEW.drop("time"), DataConfig()).fingerprint
