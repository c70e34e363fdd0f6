"""The recommender in Python: the same lists whichever way they are asked for."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest

import mgformer
from mgformer.errors import ConfigError, DataError
from mgformer.models import model_class
from mgformer.recommend import lists
from mgformer.recommend.answer import Answer
from mgformer.recommend.query import Query
from mgformer.recommend.recommender import Recommender


@pytest.fixture(scope="module", params=["ease", "ials"])
def recommender(request) -> Recommender:
    return Recommender.fit("demo", request.param, split={"kind": "ratio"})


def ask(recommender: Recommender, history, k: int = 20, **options) -> Answer:
    return recommender.answer(Query(history=history, k=k, **options))


def test_fit_on_a_frame_recommend_save_and_load(tmp_path: Path):
    rows = [(f"u{u}", f"i{i}") for u in range(20) for i in range(20) if (u + i) % 2 == 0 and u != i]
    frame = pd.DataFrame(rows, columns=["user", "item"])
    # Held-out items are never recommended either.
    trained = mgformer.Recommender.fit(frame, "ease", split={"valid": 0.0, "test": 0.1})
    found = trained.recommend(["u3", "u4"], k=1)
    assert list(found.columns) == ["user", "rank", "item", "score"]
    assert found["user"].to_list() == ["u3", "u4"]
    assert found["item"].to_list() == ["i3", "i4"]
    trained.save(tmp_path / "run")
    again = Recommender.load(tmp_path / "run", frame="pandas").recommend(["u3", "u4"], k=1)
    assert again.equals(found)


def test_polars_frames_and_arrays_give_the_same(tmp_path: Path):
    rng = np.random.default_rng(0)
    users, items = rng.integers(0, 30, 400), rng.integers(0, 25, 400)
    frame = pl.DataFrame({"user": users, "item": items})
    ways = [frame, frame.to_pandas(), (users, items)]
    fits = [Recommender.fit(way, "itemknn", frame="polars") for way in ways]
    lists = [fitted.recommend([3, 7], 5) for fitted in fits]
    assert lists[0].equals(lists[1])
    assert lists[0].equals(lists[2])


def test_answers_and_tables_agree(recommender: Recommender):
    users = recommender.bundle.users.values[:7].to_list()
    table = recommender.recommend(users, 6)
    assert table.columns == ["user", "rank", "item", "name", "score"]
    for answer in recommender.answers(users, 6):
        own = table.filter(pl.col("user") == answer.user)
        assert [i.item for i in answer.items] == own["item"].to_list()
        assert [i.name for i in answer.items] == own["name"].to_list()
        assert [i.score for i in answer.items] == own["score"].to_list()
        assert answer.source == "model"


def test_histories_and_answers_agree(recommender: Recommender):
    history = recommender.bundle.items.values[[1, 5, 9]].to_list()
    user = recommender.bundle.users.values[0]
    for named in (None, user):
        table = recommender.recommend_for(history, 6, user=named, exclude=history)
        assert table.schema == recommender.recommend(user, 6).schema
        assert table["user"].to_list() == [named] * 6
        assert table["rank"].to_list() == [1, 2, 3, 4, 5, 6]
        answer = ask(recommender, history, 6, user=named, exclude=history)
        assert [i.item for i in answer.items] == table["item"].to_list()
        assert [i.name for i in answer.items] == table["name"].to_list()
        assert [i.score for i in answer.items] == table["score"].to_list()


def test_a_query_is_checked_once_when_it_is_made():
    with pytest.raises(ConfigError, match="a query needs a user, a history, or both"):
        Query(k=3)
    with pytest.raises(ConfigError, match="k must be at least 1, got 0"):
        Query(user="u1", k=0)
    assert Query(history="i1", candidates=7) == Query(history=["i1"], candidates=(7,))


def test_items_of_the_user_are_left_out_by_default(recommender: Recommender):
    user = recommender.bundle.users.values[0]
    own = set(recommender.bundle.items.decode(recommender.bundle.known[[0]].indices))
    assert not own & set(recommender.recommend([user], 50)["item"])
    assert own & set(recommender.recommend([user], 50, exclude_seen=False)["item"])


def test_candidates_limit_the_choice(recommender: Recommender):
    user = recommender.bundle.users.values[0]
    some = recommender.recommend([user], 30)["item"].to_list()[5:30:6]
    found = recommender.recommend([user], 3, candidates=some)
    assert found["item"].to_list() == some[:3]
    by_history = ask(recommender, [some[0]], 9, candidates=some)
    assert {i.item for i in by_history.items} == set(some[1:])
    with pytest.raises(DataError, match="unknown item 'nothing'"):
        recommender.recommend([user], 3, candidates=["nothing"])


def test_a_new_user_is_scored_by_the_history(recommender: Recommender):
    history = recommender.bundle.items.values[[1, 5, 9]].to_list()
    answer = ask(recommender, [*history, "never heard of"], 10)
    assert answer.source == "history"
    assert answer.user is None
    assert answer.unknown == ("never heard of",)
    assert not set(history) & {i.item for i in answer.items}
    nobody = ask(recommender, ["never heard of"], 3)
    assert nobody.source == "popularity"
    counts = recommender.bundle.item_degrees
    items = recommender.bundle.items.encode([i.item for i in nobody.items])
    assert sorted(counts[items]) == sorted(np.sort(counts)[-3:])


def test_a_history_is_added_to_the_items_of_a_named_user(recommender: Recommender):
    user, bundle = recommender.bundle.users.values[0], recommender.bundle
    own = bundle.items.decode(bundle.known[[0]].indices).to_list()
    new = next(i for i in bundle.items.values if i not in own)
    together = ask(recommender, [*own, new], 10)
    added = ask(recommender, [new], 10, user=user)
    assert added.items == together.items
    assert added.user == user
    assert new not in {i.item for i in added.items}


def untrained(recommender: Recommender, user: int | None = None, item: int | None = None):
    """The same recommender, had all pairs of a user or of an item been held out."""
    train = recommender.bundle.train
    kept = train.indices != item if user is None else train.rows != user
    history = train.subset(~kept)
    return Recommender(replace(recommender.bundle, train=train.subset(kept), history=history))


def test_items_that_are_not_in_the_training_set_are_ignored(recommender: Recommender):
    item, other = recommender.bundle.items.values[[4, 9]].to_list()
    without = untrained(recommender, item=4)
    alone = ask(without, [item], 399)
    assert (alone.source, alone.unknown) == ("popularity", (item,))
    assert alone.items == ask(without, [], 400, exclude=[item]).items
    both = ask(without, [other, item, "unheard of"], 399)
    assert (both.source, both.unknown) == ("history", (item, "unheard of"))
    assert both.items == ask(without, [other], 399, exclude=[item]).items
    assert set(without.explain_history([other, item], item)["item"]) == {other}
    if recommender.bundle.record.model == "ials":
        np.testing.assert_array_equal(
            without.embed_user([other, item]), without.embed_user([other])
        )
        with pytest.raises(
            DataError, match=f"no item of the history is in the training set: {item}"
        ):
            without.embed_user([item])


def test_users_without_trained_items_get_popular_items(recommender: Recommender):
    bundle = recommender.bundle
    own = bundle.known[[0]].indices
    kept = ~np.isin(bundle.train.indices, own)
    held_out = bundle.train.subset(~kept)
    without = Recommender(replace(bundle, train=bundle.train.subset(kept), history=held_out))
    trained = int(np.diff(without.bundle.train.indptr).argmax())
    hermit, other = bundle.users.values[[0, trained]].to_list()
    answers = list(without.answers([other, hermit, other], 5))
    assert [answer.source for answer in answers] == ["model", "popularity", "model"]
    ids = bundle.items.decode(own).to_list()
    assert answers[1].items == ask(without, [], 5, exclude=ids).items
    assert answers[0] == answers[2] == next(without.answers([other], 5))


def test_items_and_users_without_anything_in_common_are_not_similar():
    pairs = [(f"u{u}", f"i{i}") for u in range(20) for i in range(20) if (u + i) % 2 == 0]
    frame = pl.DataFrame(pairs, schema=["user", "item"], orient="row")
    for name in ("itemknn", "ease"):
        found = Recommender.fit(frame, name, split={"valid": 0, "test": 0})
        like = found.similar_items("i4", 20)
        assert set(like["item"]) == {f"i{i}" for i in range(0, 20, 2)} - {"i4"}, name
        alike = found.similar_users("u3", 20)
        assert set(alike["user"]) == {f"u{u}" for u in range(1, 20, 2)} - {"u3"}, name


def test_items_that_are_not_in_the_training_set_have_no_similar_items(recommender: Recommender):
    like, item = recommender.bundle.items.values[[3, 4]].to_list()
    without = untrained(recommender, item=4)
    assert without.similar_items(item).is_empty()
    assert item in recommender.similar_items(like, 400)["item"].to_list()
    assert item not in without.similar_items(like, 400)["item"].to_list()


def test_popularity_cannot_find_similar_items():
    popularity = Recommender.fit("demo", "popularity")
    with pytest.raises(ConfigError, match="popularity cannot find similar items"):
        popularity.similar_items("jazz-03")
    with pytest.raises(ConfigError, match="popularity cannot find similar users"):
        popularity.similar_users("amir-186")


def test_similar_items_are_sorted_and_without_the_item(recommender: Recommender):
    item = recommender.bundle.items.values[3]
    found = recommender.similar_items(item, 12)
    assert found.height == 12
    assert item not in found["item"].to_list()
    assert found["score"].is_sorted(descending=True)
    every = recommender.similar_items(item, 400)
    assert 12 < every.height < 399
    assert every["score"].min() > 0
    with pytest.raises(DataError, match="unknown item"):
        recommender.similar_items("nothing")
    with pytest.raises(ConfigError, match="k must be at least 1, got 0"):
        recommender.similar_items(item, 0)


def test_similar_users_are_sorted_by_cosine(recommender: Recommender):
    user = recommender.bundle.users.values[3]
    found = recommender.similar_users(user, 5)
    assert user not in found["user"].to_list()
    assert found["score"].is_sorted(descending=True)
    assert found["score"].max() <= 1 + 1e-6


def test_cold_users_are_compared_by_their_items(recommender: Recommender):
    if recommender.bundle.record.model == "ease":
        pytest.skip("it has no vectors: all users are compared by their items")
    user, others = recommender.bundle.users.values[3], recommender.bundle.scorer.users.numpy()
    known = recommender.bundle.items.decode(recommender.bundle.known[[3]].indices).to_list()
    vector = recommender.embed_user(known)
    cosines = others @ vector / np.linalg.norm(others, axis=1) / np.linalg.norm(vector)
    cosines[3] = -1
    without = untrained(recommender, user=3)
    found = without.similar_users(user, 5)
    best = np.argsort(-cosines)[:5]
    assert found["user"].to_list() == recommender.bundle.users.decode(best).to_list()
    np.testing.assert_allclose(found["score"], cosines[best], rtol=1e-5)
    back = dict(without.similar_users(found["user"][0], 799).rows())
    assert back[user] == pytest.approx(found["score"][0], rel=1e-5)
    assert dict(recommender.similar_users(user, 5).rows()) != dict(found.rows())


def test_reasons_add_up_to_the_score(recommender: Recommender):
    history = recommender.bundle.items.values[[1, 5, 9, 30]].to_list()
    best = ask(recommender, history, 1).items[0]
    why = recommender.explain_history(history, best.item)
    assert set(why["item"]) == set(history)
    assert why["weight"].is_sorted(descending=True)
    # Popularity has no part in the scores of these two models.
    assert why["weight"].sum() == pytest.approx(best.score, rel=1e-4)


def test_reasons_are_items_of_the_user(recommender: Recommender):
    user = recommender.bundle.users.values[0]
    item = recommender.recommend([user], 1)["item"][0]
    own = recommender.bundle.items.decode(recommender.bundle.known[[0]].indices).to_list()
    assert set(recommender.explain(user, item)["item"]) == set(own)


def test_vectors_of_new_users(recommender: Recommender):
    history = recommender.bundle.items.values[[1, 5, 9]].to_list()
    if recommender.bundle.record.model == "ease":
        with pytest.raises(ConfigError, match="ease has no vectors"):
            recommender.embed_user(history)
        return
    vector = recommender.embed_user(history)
    best = ask(recommender, history, 1).items[0]
    item = recommender.bundle.items.encode([best.item])[0]
    assert vector @ recommender.bundle.scorer.items[item].numpy() == pytest.approx(best.score)
    with pytest.raises(DataError, match="no item of the history is in the training set: nothing"):
        recommender.embed_user(["nothing"])


def test_excluded_items_are_left_out(recommender: Recommender):
    user, some = recommender.bundle.users.values[0], recommender.bundle.items.values[:3].to_list()
    ranked = recommender.recommend([user], 30)["item"].to_list()
    for options in ({}, {"candidates": ranked[:12]}):
        never = [*ranked[:10:2], "never heard of"]
        found = recommender.recommend([user], 4, exclude=never, **options)
        assert found["item"].to_list() == ranked[1:9:2]
        assert [i.item for i in next(recommender.answers([user], 4, exclude=never)).items] == (
            ranked[1:9:2]
        )
    by_history = [i.item for i in ask(recommender, some, 9).items]
    found = ask(recommender, some, 4, exclude=by_history[:5]).items
    assert [i.item for i in found] == by_history[5:]


def test_a_single_id_is_taken_like_a_list_of_one(recommender: Recommender):
    user, items = recommender.bundle.users.values[0], recommender.bundle.items.values
    item = items[0]
    for call in (
        lambda ids: recommender.recommend(ids(user)),
        lambda ids: recommender.recommend_for(ids(item)),
        lambda ids: recommender.explain_history(ids(item), items[1]),
        lambda ids: recommender.recommend(user, candidates=ids(item)),
        lambda ids: recommender.recommend(user, exclude=ids(item)),
    ):
        assert call(lambda one: one).equals(call(lambda one: [one]))
    assert list(recommender.answers(user)) == list(recommender.answers([user]))
    if recommender.bundle.record.model == "ials":
        np.testing.assert_array_equal(recommender.embed_user(item), recommender.embed_user([item]))
    pairs = [(u, i) for u in range(9) for i in range(9) if (u + i) % 2]
    numbers = Recommender.fit(tuple(zip(*pairs, strict=True)), "itemknn")
    for number in (4, np.int64(4), "4"):
        assert numbers.recommend(number, 2).equals(numbers.recommend([4], 2))
        assert numbers.recommend_for(number, 2).equals(numbers.recommend_for([4], 2))


def test_answers_are_made_block_by_block(recommender: Recommender, monkeypatch):
    users, ranked, rank = recommender.bundle.users.values[:8].to_list(), [], lists.rank_users

    def noted(bundle, numbers, options):
        ranked.append(len(numbers))
        return rank(bundle, numbers, options)

    monkeypatch.setattr(lists, "rank_users", noted)
    answers = recommender.answers(users, 4, block_users=3)
    first = [next(answers) for _ in range(4)]
    assert ranked == [3, 3]
    table = recommender.recommend(users, 4)
    found = [item.item for answer in (*first, *answers) for item in answer.items]
    assert found == table["item"].to_list()


def test_a_model_class_from_outside_is_fitted():
    class Twice(model_class("popularity")):
        """Popularity under another name."""

    trained = Recommender.fit("demo", Twice)
    assert trained.bundle.record.model == f"{__name__}:{Twice.__qualname__}"
    builtin = Recommender.fit("demo", model_class("popularity"))
    assert builtin.bundle.record.model == "popularity"
    user = trained.bundle.users.values[0]
    assert trained.recommend(user, 5).equals(builtin.recommend(user, 5))


def test_unknown_users_get_suggestions(recommender: Recommender):
    known = recommender.bundle.users.values[0]
    with pytest.raises(DataError, match=f"unknown user .*did you mean .*{known}"):
        recommender.recommend([f"{known}x"])


def test_times_order_a_history():
    dated = Recommender.fit("demo", "ease", split={"kind": "ratio"}, score={"time": "off"})
    dated = Recommender(
        replace(dated.bundle, record=dated.bundle.record.model_copy(update={"kappa": 3.0}))
    )
    oldest_first = ["jazz-03", "sailing-02", "jazz-04"]
    expected = dated.recommend_for(oldest_first, k=5)
    assert not dated.recommend_for(oldest_first[::-1], k=5).equals(expected)
    assert dated.recommend_for(oldest_first[::-1], k=5, times=[30, 20.5, -1]).equals(expected)
    query = Query(history=oldest_first[::-1], times=(30, 20.5, -1), k=5)
    assert query == Query(history=oldest_first, k=5)
    assert [item.item for item in dated.answer(query).items] == expected["item"].to_list()


@pytest.mark.parametrize(
    ("times", "message"),
    [([1.0], "got 1 for a history of 2 items"), ([1.0, float("nan")], "infinite or missing")],
)
def test_times_that_do_not_fit_are_refused(times, message):
    with pytest.raises(ConfigError, match=message):
        Query(history=["jazz-03", "jazz-04"], times=times)
