"""Items and users that come after the training: they get what their attributes predict."""

from functools import cache
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

from mgformer.data.attribute_features import features_of
from mgformer.errors import ConfigError, DataError
from mgformer.graph.feature_ridge import PENALTIES
from mgformer.ranking.scorers import HistoryScorer, SumScorer, vectors_of
from mgformer.recommend.recommender import Recommender
from mgformer.runs.bundle import Bundle
from mgformer.runs.bundle_files import load_bundle, save_bundle
from mgformer.runs.forget import forget
from mgformer.runs.histories import without_histories
from mgformer.runs.refit import refit
from mgformer.runs.refresh import read_new, refresh
from mgformer.runs.warm_start import adopt, together

TASTES, EACH, NUM_USERS = 4, 9, 48
CASES = {
    "ease": ("ease", {}),
    "ridge": ("ridge", {}),
    "dot": ("directau", {"kind": "dot"}),
    "prior": ("directau", {"kind": "prior", "gamma": 0.2}),
    "degree": ("directau", {"kind": "degree", "gamma": 0.6}),
    "guided": ("guided", {"kind": "prior", "gamma": 0.2, "delta": 1.0}),
}
NEW_ITEMS = pl.DataFrame(
    {  # before, between and after those that are known, and one that is known
        "item": ["a", "i05x", "z", "i20", "nothing"],
        "name": ["First", None, "Last", None, None],
        "taste": ["t0", "t1", "t3", None, None],
        "price": [1.5, 40.0, None, 7.0, None],
    }
)
NEW_USERS = pl.DataFrame(
    {"user": ["a", "u05x", "z", "u20"], "group": ["g0", "g2", None, None], "age": [20, 28, None, 5]}
)


def pairs_of(seed: int = 1) -> list[tuple[str, str]]:
    """Pairs of users with items of their taste; the last items of a taste have few."""
    rng = np.random.default_rng(seed)
    chances = np.linspace(1, 0.02, EACH) ** 2
    return [
        (f"u{user:02}", f"i{EACH * (user % TASTES) + item:02}")
        for user in range(NUM_USERS)
        for item in rng.choice(EACH, 5, replace=False, p=chances / chances.sum())
    ]


@cache
def trained(case: str, folder: Path, test: float = 0.2) -> Recommender:
    name, score = CASES[case]
    items = [(f"i{n:02}", f"Item {n}", f"t{n // EACH}", n) for n in range(TASTES * EACH)]
    users = [(f"u{n:02}", f"g{n % TASTES}", 20 + 4 * (n % TASTES)) for n in range(NUM_USERS)]
    pl.DataFrame(items, ["item", "name", "taste", "price"], orient="row").write_csv(
        folder / "items.csv"
    )
    pl.DataFrame(users, ["user", "group", "age"], orient="row").write_csv(folder / "users.csv")
    data = {"items": str(folder / "items.csv"), "users": str(folder / "users.csv")}
    epochs = {"train": {"epochs": 40}} if name in ("directau", "guided") else {}
    options = {"dim": 8, "encoder": "mf"} if name == "directau" else {}
    options = {"dim": 8} if name == "guided" else options
    split = {"kind": "ratio", "valid": 0.0, "test": test}
    frame = pl.DataFrame(pairs_of(), ["user", "item"], orient="row")
    return Recommender.fit(
        frame, name, options=options, score=score, data=data, split=split, **epochs
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shop")


def scores_of(bundle: Bundle, users: list[str], items: list[str]) -> np.ndarray:
    rows = bundle.scorer.scores(torch.from_numpy(bundle.users.encode(users).astype(np.int64)))
    return rows.numpy()[:, bundle.items.encode(items)]


def solved(x: np.ndarray, y: np.ndarray, counts: np.ndarray, penalty: float) -> np.ndarray:
    """The normal equations of a ridge regression."""
    weighted = x * counts[:, None]
    return np.linalg.solve(weighted.T @ x + penalty * np.eye(x.shape[1]), weighted.T @ y)


def cross_validated(x: np.ndarray, y: np.ndarray, counts: np.ndarray) -> float:
    """The penalty that predicts left-out rows best."""
    folds = np.random.default_rng(0).permutation(len(x)) % 5

    def error(penalty: float) -> float:
        total = 0.0
        for out in (folds == fold for fold in range(5)):
            found = x[out] @ solved(x[~out], y[~out], counts[~out], penalty)
            total += (counts[out, None] * (found - y[out]) ** 2).sum()
        return total

    return min(PENALTIES, key=error)


def scaled(bundle: Bundle, part: str) -> tuple[np.ndarray, float]:
    """Features of items by the setting of a prediction, and its penalty."""
    assert bundle.record.cold is not None
    setting, found = bundle.record.cold[part], features_of(bundle.about_items, len(bundle.items))
    return found.scaled(setting.factor).toarray().astype(np.float64), setting.penalty


def expected_vectors(own: np.ndarray, bundle: Bundle) -> np.ndarray:
    """Blend the direction of each row with what attributes predict, one row after another."""
    x, penalty = scaled(bundle, "vectors")
    degrees = bundle.item_degrees
    warm = np.flatnonzero(degrees > 0)
    lengths = np.linalg.norm(own, axis=1)
    unit = own[warm] / lengths[warm, None]
    solution = solved(x[warm], unit, degrees[warm] / (degrees[warm] + 10), penalty)
    usual = np.mean([lengths[i] for i in warm if degrees[i] == degrees[warm].min()])
    found = own.copy()
    for row, count in enumerate(degrees):
        if count == 0:
            found[row] = usual * x[row] @ solution
        elif count <= 5:
            blend = (count * own[row] / lengths[row] + x[row] @ solution) / (count + 1)
            found[row] = lengths[row] * blend
    return found


def learned_items(bundle: Bundle) -> np.ndarray:
    """The varying channels of item vectors before the blend, float64."""
    vectors = vectors_of(bundle.scorer)
    assert vectors is not None
    own = vectors.items[:, : vectors.num_varying].double().numpy().copy()
    if bundle.own_vectors is not None:
        own[bundle.own_vectors.items] = bundle.own_vectors.vectors.double().numpy()
    return own


@pytest.mark.parametrize("case", CASES)
def test_nothing_changes_for_what_was_learned(case: str, folder: Path):
    recommender = trained(case, folder)
    before, after = recommender.bundle, recommender.add_items(NEW_ITEMS).bundle
    assert set(after.items.values) == {*before.items.values, *NEW_ITEMS["item"]}
    users = before.users.values.to_list()
    reliable = [i for i, n in zip(before.items.values, before.item_degrees, strict=True) if n > 5]
    assert len(reliable) > 10
    assert (scores_of(after, users, reliable) == scores_of(before, users, reliable)).all()
    for part in ("train", "test"):
        one, other = getattr(before, part), getattr(after, part)
        assert one.users.decode(one.rows).equals(other.users.decode(other.rows))
        assert one.items.decode(one.indices).equals(other.items.decode(other.indices))
    assert after.record.added is not None
    assert (after.record.added.items, after.record.added.users) == (4, 0)
    assert after.record.protocol.endswith("; then items or users were added, which is not tested")


@pytest.mark.parametrize("case", ["dot", "prior", "degree", "guided"])
def test_vectors_of_added_items_are_those_of_the_slow_way(case: str, folder: Path):
    after = trained(case, folder).add_items(NEW_ITEMS).bundle
    assert after.own_vectors is not None
    vectors = vectors_of(after.scorer)
    assert vectors is not None
    expected = expected_vectors(learned_items(after), after)
    np.testing.assert_allclose(vectors.items[:, : vectors.num_varying], expected, atol=2e-6)
    if vectors.constant:  # popularity, as that of the least popular items
        degrees = after.item_degrees
        least = vectors.items[degrees == degrees[degrees > 0].min(), -1].mean()
        np.testing.assert_allclose(vectors.items[degrees == 0, -1], least, rtol=1e-6)


@pytest.mark.parametrize("case", ["ease", "guided"])
def test_columns_of_added_items_are_those_of_the_slow_way(case: str, folder: Path):
    after = trained(case, folder).add_items(NEW_ITEMS).bundle
    scorer = after.scorer.history if isinstance(after.scorer, SumScorer) else after.scorer
    assert isinstance(scorer, HistoryScorer)
    weights = scorer.weights.numpy() if case == "ease" else scorer.weights.toarray()
    degrees = after.item_degrees
    x, penalty = scaled(after, "columns")
    warm, new = np.flatnonzero(degrees > 0), np.flatnonzero(degrees == 0)
    columns = weights.T[warm].astype(np.float64)
    lengths = np.linalg.norm(columns, axis=1, keepdims=True)
    unit = columns / np.maximum(lengths, 1e-12)
    solution = solved(x[warm], unit, degrees[warm] / (degrees[warm] + 10), penalty)
    expected = np.median(lengths) * x[new] @ solution
    np.testing.assert_allclose(weights.T[new], expected, atol=1e-6)
    assert np.abs(expected).max() > 1e-3


@pytest.mark.parametrize("case", CASES)
def test_added_items_are_recommended_to_those_who_like_their_kind(case: str, folder: Path):
    after = trained(case, folder).add_items(NEW_ITEMS)
    scores = scores_of(after.bundle, [f"u{n:02}" for n in range(NUM_USERS)], ["a", "i05x", "z"])
    means = [scores[taste::TASTES].mean(0) for taste in range(TASTES)]
    assert np.argmax(means, axis=0).tolist() == [0, 1, 3]
    listed = after.recommend("u00", 30, where="taste = t0", attributes=["price"])
    assert listed.filter(pl.col("item") == "a")["price"].to_list() == [1.5]
    assert after.find_items("last")["item"].to_list() == ["z"]


def test_added_one_by_one_or_at_once_in_any_form_is_the_same(folder: Path, tmp_path: Path):
    pandas = pytest.importorskip("pandas")
    recommender = trained("guided", folder)
    at_once = recommender.add_items(NEW_ITEMS)
    NEW_ITEMS.write_csv(tmp_path / "new.csv")
    forms = {
        "one by one": recommender.add_items(NEW_ITEMS[3:]).add_items(NEW_ITEMS[:3]),
        "file": recommender.add_items(str(tmp_path / "new.csv")),
        "pandas": recommender.add_items(pandas.DataFrame(NEW_ITEMS.to_dict(as_series=False))),
        "twice": at_once.add_items(NEW_ITEMS),
        "last row": recommender.add_items(
            pl.concat([NEW_ITEMS.with_columns(taste=pl.lit("t2")), NEW_ITEMS])
        ),
    }
    users, items = at_once.bundle.users.values.to_list(), at_once.bundle.items.values.to_list()
    expected = scores_of(at_once.bundle, users, items)
    for form, found in forms.items():
        assert found.bundle.items == at_once.bundle.items
        np.testing.assert_allclose(
            scores_of(found.bundle, users, items), expected, atol=1e-6, err_msg=form
        )
    save_bundle(at_once.bundle, tmp_path / "run")
    loaded = load_bundle(tmp_path / "run")
    assert (scores_of(loaded, users, items) == expected).all()
    assert loaded.own_vectors is not None
    assert torch.equal(loaded.own_vectors.vectors, at_once.bundle.own_vectors.vectors)


def test_values_of_the_table_replace_others_and_empty_ones_do_not(folder: Path):
    after = trained("ease", folder).add_items(NEW_ITEMS).bundle.about_items
    place = trained("ease", folder).add_items(NEW_ITEMS).bundle.items.encode(["i20"])[0]
    row = {name: own.values[int(place)] for name, own in after.items()}
    assert row == {"name": "Item 20", "taste": "t2", "price": 7.0}


@pytest.mark.parametrize("case", ["dot", "prior", "guided"])
def test_vectors_of_added_users_are_those_of_the_slow_way(case: str, folder: Path):
    recommender = trained(case, folder)
    after = recommender.add_users(NEW_USERS).bundle
    vectors, before = vectors_of(after.scorer), vectors_of(recommender.bundle.scorer)
    assert vectors is not None
    assert before is not None
    old = after.users.encode(recommender.bundle.users.values).astype(np.int64)
    assert torch.equal(vectors.users[torch.from_numpy(old)], before.users)
    degrees = np.diff(after.train.indptr)
    x = features_of(after.about_users, len(degrees)).table.toarray().astype(np.float64)
    own = vectors.users[:, : vectors.num_varying].double().numpy()[degrees > 0]
    lengths = np.linalg.norm(own, axis=1, keepdims=True)
    counts = degrees[degrees > 0]
    given = x[degrees > 0], own / lengths, counts / (counts + 10)
    penalty = cross_validated(*given)
    assert after.record.cold is not None
    assert after.record.cold["users"].penalty == penalty
    solution = solved(*given, penalty)
    asked = after.users.encode(["a", "u05x"])
    expected = lengths[counts == counts.min()].mean() * x[asked] @ solution
    np.testing.assert_allclose(vectors.users[asked, : vectors.num_varying], expected, atol=2e-6)
    assert (vectors.users[asked, vectors.num_varying :] == 1).all()
    assert after.predicted_users.tolist() == asked.tolist()  # nothing is known about "z"


@pytest.mark.parametrize("case", ["ease", "guided"])
def test_histories_of_added_users_are_those_of_the_slow_way(case: str, folder: Path):
    after = trained(case, folder).add_users(NEW_USERS).bundle
    scorer = after.scorer.history if isinstance(after.scorer, SumScorer) else after.scorer
    assert isinstance(scorer, HistoryScorer)
    degrees = np.diff(after.train.indptr)
    x = features_of(after.about_users, len(degrees)).table.toarray().astype(np.float64)
    rows, counts = after.train.matrix.toarray()[degrees > 0], degrees[degrees > 0]
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    assert after.record.cold is not None
    penalty = after.record.cold["histories"].penalty
    solution = solved(x[degrees > 0], rows / lengths, counts / (counts + 10), penalty)
    asked = after.users.encode(["a", "u05x"])
    expected = np.median(lengths) * x[asked] @ solution
    np.testing.assert_allclose(scorer.histories[asked].toarray(), expected, atol=1e-6)


@pytest.mark.parametrize("case", ["ease", "dot", "guided"])
def test_users_who_are_added_again_are_predicted_again(case: str, folder: Path):
    recommender = trained(case, folder)
    once = recommender.add_users(NEW_USERS).bundle
    other = NEW_USERS.with_columns(group=pl.lit("g1"))
    again = recommender.add_users(other[:2]).add_users(NEW_USERS).bundle
    users, items = once.users.values.to_list(), once.items.values.to_list()
    expected = scores_of(once, users, items)
    np.testing.assert_allclose(scores_of(again, users, items), expected, atol=1e-6)


@pytest.mark.parametrize("case", CASES)
def test_added_users_get_the_items_of_their_group(case: str, folder: Path):
    after = trained(case, folder).add_users(NEW_USERS)
    for user, taste in (("a", 0), ("u05x", 2)):
        answer = next(iter(after.answers(user, 5)))
        assert answer.source == "attributes"
        every = [f"i{n:02}" for n in range(TASTES * EACH)]
        means = scores_of(after.bundle, [user], every).reshape(TASTES, EACH).mean(1)
        assert means.argmax() == taste
    assert next(iter(after.answers("z", 5))).source == "popularity"
    assert next(iter(after.answers("u20", 5))).source == "model"
    both = after.add_items(NEW_ITEMS)
    scores = scores_of(both.bundle, ["a", "u05x"], ["a", "i05x", "z"])
    assert scores[0].argmax() == 0


@pytest.mark.parametrize("case", ["dot", "prior", "degree", "guided"])
def test_the_blend_follows_the_counts_of_a_refresh(case: str, folder: Path):
    before = trained(case, folder).add_items(NEW_ITEMS).bundle
    degrees = before.item_degrees
    few = before.items.decode(np.flatnonzero((degrees > 0) & (degrees <= 4)))
    assert len(few) > 3
    rows = [(f"fresh{n}", item) for at, item in enumerate(few) for n in range(1 + 3 * (at % 2))]
    rows += [(f"fresh{n}", "z") for n in range(7)]  # nobody has learned it
    new = pl.DataFrame(rows, ["user", "item"], orient="row")
    after = refresh(before, read_new(before, new))
    assert ((degrees <= 5) & (after.item_degrees > 5)).any()
    assert ((after.item_degrees > degrees) & (after.item_degrees <= 5)).any()
    assert after.item_degrees[after.items.encode(["z"])[0]] == 0
    learned, earlier = learned_items(after), learned_items(before)
    is_learned = after.item_degrees > 0
    directions = [own / np.linalg.norm(own, axis=1, keepdims=True) for own in (learned, earlier)]
    np.testing.assert_allclose(directions[0][is_learned], directions[1][is_learned], atol=1e-5)
    vectors = vectors_of(after.scorer)
    assert vectors is not None
    expected = expected_vectors(learned, after)
    np.testing.assert_allclose(vectors.items[:, : vectors.num_varying], expected, atol=2e-6)
    place = after.users.encode(["fresh1"])
    folded = vectors.fold_in(after.trained_items[place])
    np.testing.assert_allclose(vectors.users[place], folded.users, rtol=1e-6)


def test_the_blend_follows_the_counts_that_are_left_after_forgetting(folder: Path):
    before = trained("prior", folder).bundle
    after = forget(before, np.arange(12))
    vectors = vectors_of(after.scorer)
    assert vectors is not None
    expected = expected_vectors(learned_items(after), after)
    np.testing.assert_allclose(vectors.items[:, : vectors.num_varying], expected, atol=2e-6)
    assert (after.item_degrees < before.item_degrees).any()


@pytest.mark.parametrize("case", ["ease", "guided", "degree"])
def test_what_can_be_done_with_a_recommender_still_can(case: str, folder: Path):
    grown = trained(case, folder).add_items(NEW_ITEMS).add_users(NEW_USERS)
    new = pl.DataFrame({"user": ["u00", "u00", "a", "fresh"], "item": ["z", "i20", "i00", "i01"]})
    after = refresh(grown.bundle, read_new(grown.bundle, new))
    shown = Recommender(after)
    assert "z" not in shown.recommend("u00", 40)["item"].to_list()
    assert next(iter(shown.answers("a", 5))).source == "history"
    assert next(iter(shown.answers("u05x", 5))).source == "attributes"
    less = forget(after, after.users.encode(["u03", "a"]))
    assert next(iter(Recommender(less).answers("u05x", 5))).source == "attributes"
    again = refit(after)
    assert again.items == after.items
    assert again.record.added is None
    assert again.item_degrees[again.items.encode(["z"])[0]] == 1  # learned from its pair
    assert next(iter(Recommender(again).answers("u05x", 5))).source == "attributes"
    scores = scores_of(again, [f"u{n:02}" for n in range(NUM_USERS)], ["i05x"])
    assert np.argmax([scores[taste::TASTES].mean() for taste in range(TASTES)]) == 1


def test_training_goes_on_from_a_grown_recommender(folder: Path):
    grown = trained("dot", folder).add_items(NEW_ITEMS).bundle
    new = pl.DataFrame({"user": ["u00"], "item": ["z"]})
    whole = together(grown, read_new(grown, new))
    assert whole.about_items["taste"].values[-1] == "t3"
    (table,) = grown.weights.values()
    assert len(table) == len(grown.users) + len(grown.items)
    old = trained("dot", folder).bundle
    (before,) = old.weights.values()
    rows = torch.from_numpy(grown.items.encode(old.items.values) + len(old.users))
    assert torch.equal(table[: len(old.users)], before[: len(old.users)])
    assert torch.equal(table[rows.long()], before[len(old.users) :])


def test_a_warm_start_takes_over_only_what_was_learned(folder: Path):
    grown = trained("dot", folder).add_items(NEW_ITEMS).bundle
    ((name, table),) = grown.weights.items()
    model = torch.nn.Module()
    model.register_parameter(name, torch.nn.Parameter(torch.full(table.shape, 7.0)))
    adopt(model, grown, grown.users, grown.items)  # type: ignore[arg-type]
    found, num_users = model.state_dict()[name], len(grown.users)
    is_learned = torch.from_numpy(grown.item_degrees > 0)
    assert torch.equal(found[:num_users], table[:num_users])
    assert torch.equal(found[num_users:][is_learned], table[num_users:][is_learned])
    assert (found[num_users:][~is_learned] == 7).all()


def test_items_can_be_added_without_histories(folder: Path):
    bare = Recommender(without_histories(trained("guided", folder).bundle))
    after = bare.add_items(NEW_ITEMS)
    assert after.bundle.item_degrees.sum() == bare.bundle.item_degrees.sum()
    assert "a" in after.recommend_for(["i00", "i01", "i02"], 30)["item"].to_list()
    with pytest.raises(ConfigError, match=r"no attributes of users.*left out with"):
        bare.add_users(NEW_USERS)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tastes": ["t1"]}, "got the column 'tastes', expected columns .* did you mean taste"),
        ({"price": ["cheap"]}, "got 'cheap' in the column price, expected a number"),
        ({"item": []}, "got no rows, expected at least one item"),
        ({"item": [1.5]}, "got ids of type Float64 in the column item"),
        ({"year": [1999]}, "got the column 'year', expected columns that the recommender knows"),
    ],
)
def test_wrong_tables_are_refused_in_one_line(change: dict, message: str, folder: Path):
    columns = {"item": ["q"], "taste": ["t1"], **change}
    frame = pl.DataFrame(columns) if columns["item"] else pl.DataFrame({"item": [], "taste": []})
    with pytest.raises(DataError, match=message) as told:
        trained("ease", folder).add_items(frame)
    assert "\n" not in str(told.value)


def test_a_year_in_a_name_is_part_of_the_name_if_there_are_no_years(folder: Path):
    new = pl.DataFrame({"item": ["q"], "name": ["Last Year (1999)"], "taste": ["t1"]})
    after = trained("ease", folder).add_items(new).bundle.about_items
    assert {*after} == {"name", "taste", "price"}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"k_core": 5}, "k_core.*does nothing for new items, expected kinds or max_unpacked"),
        ({"kinds": {"price": "text"}}, "got text for price, expected ignore"),
        ({"kind": {}}, r"unknown option; did you mean kinds\?"),
    ],
)
def test_options_that_would_do_nothing_are_refused(data: dict, message: str, folder: Path):
    with pytest.raises(ConfigError, match=message) as told:
        trained("ease", folder).add_items(NEW_ITEMS, data=data)
    assert "\n" not in str(told.value)


def test_columns_that_the_training_ignored_are_ignored_again(tmp_path: Path):
    pl.DataFrame({"item": ["i00", "i01"], "taste": ["t0", "t0"], "price": [1, 2]}).write_csv(
        tmp_path / "items.csv"
    )
    data = {"items": str(tmp_path / "items.csv"), "kinds": {"price": "ignore"}}
    frame = pl.DataFrame(pairs_of(), ["user", "item"], orient="row")
    recommender = Recommender.fit(frame, "ease", data=data)
    new = pl.DataFrame({"item": ["q"], "taste": ["t0"], "price": [3], "note": ["good"]})
    after = recommender.add_items(new, data={"kinds": {"note": "ignore"}}).bundle
    assert [*after.about_items] == ["taste"]
    assert "q" in after.items.values


def test_recommenders_without_predictions_are_refused():
    plain = Recommender.fit(pl.DataFrame(pairs_of(), ["user", "item"], orient="row"), "ease")
    with pytest.raises(ConfigError, match=r"no attributes of items.*data=.*items"):
        plain.add_items(NEW_ITEMS)
    with pytest.raises(ConfigError, match=r"no attributes of users.*data=.*users"):
        plain.add_users(NEW_USERS)
    off = Recommender.fit("demo", "ease", score={"cold": False})
    with pytest.raises(ConfigError, match=r"score.cold = false"):
        off.add_items(pl.DataFrame({"item": ["x"], "taste": ["jazz"]}))
