"""Queries that are answered together get the answers that they get alone."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mgformer.errors import MgformerError
from mgformer.recommend.lists import answer_all
from mgformer.recommend.query import Query
from mgformer.recommend.recommender import Recommender


@pytest.fixture(scope="module", params=["ials", "ease"])
def recommender(request) -> Recommender:
    return Recommender.fit("demo", request.param)


@settings(max_examples=25)
@given(data=st.data())
def test_queries_answered_together_get_the_answers_they_get_alone(recommender: Recommender, data):
    items = recommender.bundle.items.values
    users = recommender.bundle.users.values

    def draw() -> Query:
        some = st.lists(st.integers(0, len(items) - 1), max_size=6).map(
            lambda numbers: tuple(items[n] for n in numbers)
        )
        return Query(
            k=data.draw(st.integers(1, 30)),
            user=data.draw(st.none() | st.integers(0, 799).map(lambda n: users[n])),
            history=data.draw(some),
            exclude_seen=data.draw(st.booleans()),
            candidates=data.draw(st.none() | some.filter(bool)),
            exclude=data.draw(st.just(()) | some),
        )

    queries = [draw() for _ in range(data.draw(st.integers(1, 6)))]
    for query, answer in zip(queries, answer_all(recommender.bundle, queries), strict=True):
        alone = recommender.answer(query)
        assert [i.item for i in answer.items] == [i.item for i in alone.items]
        assert [i.score for i in answer.items] == pytest.approx([i.score for i in alone.items])
        assert (answer.source, answer.unknown, answer.user) == (
            alone.source,
            alone.unknown,
            alone.user,
        )


def test_items_that_are_not_in_the_training_set_are_ignored_in_batches_too(
    recommender: Recommender,
):
    train, item = recommender.bundle.train, recommender.bundle.items.values[4]
    kept = train.indices != 4
    bundle = replace(recommender.bundle, train=train.subset(kept), history=train.subset(~kept))
    without = Recommender(bundle)
    histories = [(item,), ("jazz-03", item), ()]
    answers = answer_all(without.bundle, [Query(k=9, history=history) for history in histories])
    assert [answer.source for answer in answers] == ["popularity", "history", "popularity"]
    assert [answer.unknown for answer in answers] == [(item,), (item,), ()]
    for history, answer in zip(histories, answers, strict=True):
        alone = without.recommend_for(history, 9)
        assert [i.item for i in answer.items] == alone["item"].to_list()
        assert not set(history) & {i.item for i in answer.items}


def test_a_wrong_query_does_not_affect_the_others(recommender: Recommender):
    user = recommender.bundle.users.values[0]
    right = [
        Query(user=user, k=3),
        Query(history="jazz-03", k=4),
        Query(user=user, k=2, candidates="jazz-04"),
    ]
    wrong = {
        Query(user="nobody"): "unknown user 'nobody'",
        Query(user="nobody", history="jazz-03"): "unknown user 'nobody'",
        Query(user=user, candidates="nothing"): "unknown item 'nothing'",
        Query(history="jazz-03", candidates=["jazz-04", "nothing"]): "unknown item 'nothing'",
    }
    answers = answer_all(recommender.bundle, [*wrong, *right])
    for message, error in zip(wrong.values(), answers, strict=False):
        assert isinstance(error, MgformerError)
        assert message in str(error)
    for query, answer in zip(right, answers[len(wrong) :], strict=True):
        alone = recommender.answer(query)
        assert (answer.user, answer.k, answer.source) == (alone.user, alone.k, alone.source)
        assert [i.item for i in answer.items] == [i.item for i in alone.items]
