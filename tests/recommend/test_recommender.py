"""The Python face: answers in the caller's ids, equal whichever way they are asked for."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest

import mgformer
from mgformer.errors import ConfigError, DataError
from mgformer.recommend import recommender as recommender_module
from mgformer.recommend.recommender import Recommender


@pytest.fixture(scope="module", params=["ease", "ials"])
def recommender(request) -> Recommender:
    return Recommender.fit("demo", request.param)


def test_from_frame_to_list_and_back_from_disk(tmp_path: Path):
    rows = [(f"u{u}", f"i{i}") for u in range(20) for i in range(20) if (u + i) % 2 == 0 and u != i]
    frame = pd.DataFrame(rows, columns=["user", "item"])
    # Everything is for training: what is held out is no less known for that.
    trained = mgformer.Recommender.fit(frame, "ease", split={"valid": 0.0, "test": 0.1})
    found = trained.recommend(["u3", "u4"], k=1)
    assert found.columns == ["user", "rank", "item", "score"]
    assert found["user"].to_list() == ["u3", "u4"]
    assert found["item"].to_list() == ["i3", "i4"]
    trained.save(tmp_path / "run")
    again = Recommender.load(tmp_path / "run").recommend(["u3", "u4"], k=1)
    assert again.equals(found)


def test_polars_frames_and_arrays_give_the_same(tmp_path: Path):
    rng = np.random.default_rng(0)
    users, items = rng.integers(0, 30, 400), rng.integers(0, 25, 400)
    frame = pl.DataFrame({"user": users, "item": items})
    ways = [frame, frame.to_pandas(), (users, items)]
    lists = [Recommender.fit(way, "itemknn").recommend([3, 7], 5) for way in ways]
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


def test_what_a_user_has_is_left_out_unless_asked_for(recommender: Recommender):
    user = recommender.bundle.users.values[0]
    own = set(recommender.bundle.items.decode(recommender.bundle.known[[0]].indices))
    assert not own & set(recommender.recommend([user], 50)["item"])
    assert own & set(recommender.recommend([user], 50, exclude_seen=False)["item"])


def test_candidates_limit_the_choice(recommender: Recommender):
    user = recommender.bundle.users.values[0]
    some = recommender.recommend([user], 30)["item"].to_list()[5:30:6]
    found = recommender.recommend([user], 3, candidates=some)
    assert found["item"].to_list() == some[:3]
    by_history = recommender.recommend_for([some[0]], 9, candidates=some)
    assert {i.item for i in by_history.items} == set(some[1:])
    with pytest.raises(DataError, match="unknown item 'nothing'"):
        recommender.recommend([user], 3, candidates=["nothing"])


def test_somebody_new_is_known_by_items(recommender: Recommender):
    history = recommender.bundle.items.values[[1, 5, 9]].to_list()
    answer = recommender.recommend_for([*history, "never heard of"], 10)
    assert answer.source == "history"
    assert answer.user is None
    assert answer.unknown == ("never heard of",)
    assert not set(history) & {i.item for i in answer.items}
    nobody = recommender.recommend_for(["never heard of"], 3)
    assert nobody.source == "popularity"
    counts = recommender.bundle.item_degrees
    items = recommender.bundle.items.encode([i.item for i in nobody.items])
    assert sorted(counts[items]) == sorted(np.sort(counts)[-3:])


def test_new_items_of_a_known_user_are_added_to_what_the_user_has(recommender: Recommender):
    user, bundle = recommender.bundle.users.values[0], recommender.bundle
    own = bundle.items.decode(bundle.known[[0]].indices).to_list()
    new = next(i for i in bundle.items.values if i not in own)
    together = recommender.recommend_for([*own, new], 10)
    added = recommender.recommend_for([new], 10, user=user)
    assert added.items == together.items
    assert added.user == user
    assert new not in {i.item for i in added.items}


def untrained(recommender: Recommender, user: int | None = None, item: int | None = None):
    """The same recommender, had all pairs of a user or of an item been held out."""
    train = recommender.bundle.train
    kept = train.indices != item if user is None else train.rows != user
    history = train.subset(~kept)
    return Recommender(replace(recommender.bundle, train=train.subset(kept), history=history))


def test_items_without_training_pairs_tell_nothing(recommender: Recommender):
    item, other = recommender.bundle.items.values[[4, 9]].to_list()
    without = untrained(recommender, item=4)
    alone = without.recommend_for([item], 399)
    assert (alone.source, alone.unknown) == ("popularity", (item,))
    assert alone.items == without.recommend_for([], 400, exclude=[item]).items
    both = without.recommend_for([other, item, "unheard of"], 399)
    assert (both.source, both.unknown) == ("history", (item, "unheard of"))
    assert both.items == without.recommend_for([other], 399, exclude=[item]).items
    assert set(without.explain_history([other, item], item)["item"]) == {other}
    if recommender.bundle.record.model == "ials":
        np.testing.assert_array_equal(
            without.embed_user([other, item]), without.embed_user([other])
        )
        with pytest.raises(DataError, match=f"no item of the history is known: {item}"):
            without.embed_user([item])


def test_users_of_whose_items_nothing_was_learned_get_what_is_popular(recommender: Recommender):
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
    assert answers[1].items == without.recommend_for([], 5, exclude=ids).items
    assert answers[0] == answers[2] == next(without.answers([other], 5))


def test_what_has_nothing_in_common_is_not_similar():
    pairs = [(f"u{u}", f"i{i}") for u in range(20) for i in range(20) if (u + i) % 2 == 0]
    frame = pl.DataFrame(pairs, schema=["user", "item"], orient="row")
    for name in ("itemknn", "ease"):
        found = Recommender.fit(frame, name, split={"valid": 0, "test": 0})
        like = found.similar_items("i4", 20)
        assert set(like["item"]) == {f"i{i}" for i in range(0, 20, 2)} - {"i4"}, name
        alike = found.similar_users("u3", 20)
        assert set(alike["user"]) == {f"u{u}" for u in range(1, 20, 2)} - {"u3"}, name


def test_of_items_without_training_pairs_none_is_similar(recommender: Recommender):
    like, item = recommender.bundle.items.values[[3, 4]].to_list()
    without = untrained(recommender, item=4)
    assert without.similar_items(item).is_empty()
    assert item in recommender.similar_items(like, 400)["item"].to_list()
    assert item not in without.similar_items(like, 400)["item"].to_list()


def test_popularity_cannot_compare():
    popularity = Recommender.fit("demo", "popularity")
    with pytest.raises(ConfigError, match="popularity cannot tell which items are alike"):
        popularity.similar_items("jazz-03")
    with pytest.raises(ConfigError, match="popularity cannot tell which users are alike"):
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


def test_similar_users_are_by_cosine(recommender: Recommender):
    user = recommender.bundle.users.values[3]
    found = recommender.similar_users(user, 5)
    assert user not in found["user"].to_list()
    assert found["score"].is_sorted(descending=True)
    assert found["score"].max() <= 1 + 1e-6


def test_users_without_training_pairs_are_compared_by_their_items(recommender: Recommender):
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
    best = recommender.recommend_for(history, 1).items[0]
    why = recommender.explain_history(history, best.item)
    assert set(why["item"]) == set(history)
    assert why["weight"].is_sorted(descending=True)
    # Popularity has no part in the scores of these two models.
    assert why["weight"].sum() == pytest.approx(best.score, rel=1e-4)


def test_reasons_of_a_user_are_the_users_items(recommender: Recommender):
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
    best = recommender.recommend_for(history, 1).items[0]
    item = recommender.bundle.items.encode([best.item])[0]
    assert vector @ recommender.bundle.scorer.items[item].numpy() == pytest.approx(best.score)
    with pytest.raises(DataError, match="no item of the history is known: nothing"):
        recommender.embed_user(["nothing"])


def test_what_nobody_is_to_get_is_left_out(recommender: Recommender):
    user, some = recommender.bundle.users.values[0], recommender.bundle.items.values[:3].to_list()
    ranked = recommender.recommend([user], 30)["item"].to_list()
    for options in ({}, {"candidates": ranked[:12]}):
        never = [*ranked[:10:2], "never heard of"]
        found = recommender.recommend([user], 4, exclude=never, **options)
        assert found["item"].to_list() == ranked[1:9:2]
        assert [i.item for i in next(recommender.answers([user], 4, exclude=never)).items] == (
            ranked[1:9:2]
        )
    by_history = [i.item for i in recommender.recommend_for(some, 9).items]
    found = recommender.recommend_for(some, 4, exclude=by_history[:5]).items
    assert [i.item for i in found] == by_history[5:]


def test_one_id_is_not_taken_for_its_letters(recommender: Recommender):
    user, item = recommender.bundle.users.values[0], recommender.bundle.items.values[0]
    for ask in (
        lambda: recommender.recommend(user),
        lambda: list(recommender.answers(user)),
        lambda: recommender.recommend_for(item),
        lambda: recommender.explain_history(item, item),
        lambda: recommender.recommend([user], candidates=item),
        lambda: recommender.recommend([user], exclude=item),
        lambda: recommender.recommend_for(5),
    ):
        with pytest.raises(ConfigError, match=r"alone, expected several ids, such as \["):
            ask()
    if recommender.bundle.record.model == "ials":
        with pytest.raises(ConfigError, match=f"history: got '{item}' alone"):
            recommender.embed_user(item)


def test_lists_are_made_as_they_are_taken(recommender: Recommender, monkeypatch):
    monkeypatch.setattr(recommender_module, "ANSWERED_TOGETHER", 3)
    users, ranked, rank = recommender.bundle.users.values[:8].to_list(), [], recommender.rank
    monkeypatch.setattr(
        recommender,
        "rank",
        lambda numbers, *a, **o: ranked.append(len(numbers)) or rank(numbers, *a, **o),
    )
    answers = recommender.answers(users, 4)
    first = [next(answers) for _ in range(4)]
    assert ranked == [3, 3]
    table = recommender.recommend(users, 4)
    found = [item.item for answer in (*first, *answers) for item in answer.items]
    assert found == table["item"].to_list()


def test_unknown_users_get_suggestions(recommender: Recommender):
    known = recommender.bundle.users.values[0]
    with pytest.raises(DataError, match=f"unknown user .*did you mean .*{known}"):
        recommender.recommend([f"{known}x"])
