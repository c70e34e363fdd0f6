"""Questions, and their answers: those asked together share one pass over the items."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mgformer.data.ids import ExternalId
from mgformer.errors import MgformerError
from mgformer.recommend.answer import Answer, History, Reason
from mgformer.recommend.recommender import Recommender

MOST_REASONS = 3
MOST_EXPLAINED = 50
"""Recommendations of a list that come with reasons, from the first on."""


@dataclass(frozen=True, eq=False)
class Question:
    """For whom, and how many."""

    k: int
    user: ExternalId | None = None
    history: tuple[ExternalId, ...] | None = None
    """Items of somebody new or, beside a user, items that the user has taken since."""
    exclude_seen: bool = True
    candidates: tuple[ExternalId, ...] | None = None
    exclude: tuple[ExternalId, ...] = ()
    """Items never to recommend."""
    explain: bool = False
    """Whether to say which items of the history speak for each recommendation."""


def answer_all(
    recommender: Recommender, questions: Sequence[Question]
) -> list[Answer | MgformerError]:
    """Answer questions together; what is wrong with one does not touch the others."""
    answers: dict[int, Answer | MgformerError] = {}
    groups: dict[tuple[bool, bool, tuple[ExternalId, ...]], list[int]] = {}
    for place, question in enumerate(questions):
        if question.candidates is not None:
            answers[place] = _alone(recommender, question)
        else:
            group = (question.history is None, question.exclude_seen, question.exclude)
            groups.setdefault(group, []).append(place)
    for (known, _, _), places in groups.items():
        asked = [questions[place] for place in places]
        found = (_of_users if known else _of_histories)(recommender, asked)
        answers.update(zip(places, found, strict=True))
    return [
        _explained(recommender, question, answers[place])
        for place, question in enumerate(questions)
    ]


def _alone(recommender: Recommender, question: Question) -> Answer | MgformerError:
    try:
        if question.history is not None:
            return recommender.recommend_for(
                question.history,
                question.k,
                user=question.user,
                exclude_seen=question.exclude_seen,
                candidates=question.candidates,
                exclude=question.exclude,
            )
        assert question.user is not None
        return next(
            recommender.answers(
                [question.user],
                question.k,
                exclude_seen=question.exclude_seen,
                candidates=question.candidates,
                exclude=question.exclude,
            )
        )
    except MgformerError as error:
        return error


def _of_users(
    recommender: Recommender, questions: Sequence[Question]
) -> list[Answer | MgformerError]:
    """Answer for users of the training data, who leave out the same.

    The longest list asked for is cut for the others.
    """
    users = [question.user for question in questions if question.user is not None]
    numbers = recommender.bundle.users.encode(users)
    asked: NDArray[np.int32] = numbers[numbers >= 0]
    k = max(question.k for question in questions)
    found, sources = recommender.rank(
        asked,
        k,
        exclude_seen=questions[0].exclude_seen,
        exclude=recommender.excluded_numbers(questions[0].exclude),
    )
    answers: list[Answer | MgformerError] = []
    row = 0
    for number, question in zip(numbers, questions, strict=True):
        if number < 0:
            answers.append(_alone(recommender, question))  # says what is wrong, with a suggestion
            continue
        user = recommender.bundle.users.values[int(number)]
        answers.append(recommender.answer(user, found, row, sources[row], k=question.k))
        row += 1
    return answers


def _of_histories(
    recommender: Recommender, questions: Sequence[Question]
) -> list[Answer | MgformerError]:
    """Answer for people known by items, who leave out the same, folded in together."""
    answers: dict[int, Answer | MgformerError] = {}
    people: dict[int, History] = {}
    for place, question in enumerate(questions):
        try:
            people[place] = recommender.history_of(question.history or (), question.user)
        except MgformerError as error:
            answers[place] = error
    if people:
        found, sources = recommender.rank_histories(
            recommender.rows_of([somebody.telling for somebody in people.values()]),
            recommender.rows_of([somebody.owned for somebody in people.values()]),
            max(questions[place].k for place in people),
            exclude_seen=questions[0].exclude_seen,
            exclude=recommender.excluded_numbers(questions[0].exclude),
        )
        for row, (place, somebody) in enumerate(people.items()):
            question = questions[place]
            answers[place] = recommender.answer(
                somebody.user, found, row, sources[row], somebody.unknown, k=question.k
            )
    return [answers[place] for place in range(len(questions))]


def _explained(
    recommender: Recommender, question: Question, answer: Answer | MgformerError
) -> Answer | MgformerError:
    """Return the answer with the items that speak most for each recommendation, if asked for."""
    if not question.explain or isinstance(answer, MgformerError) or answer.source == "popularity":
        return answer
    bundle = recommender.bundle
    own = recommender.history_of(question.history or (), question.user).telling
    shown = answer.items[:MOST_EXPLAINED]
    numbers = bundle.items.encode([item.item for item in shown])
    items = []
    for item, weights in zip(shown, bundle.scorer.contributions(own, numbers).T, strict=True):
        order = np.argsort(-weights, kind="stable")[:MOST_REASONS]
        because = (
            Reason(bundle.items.values[int(own[n])], bundle.name_of(int(own[n])), float(weights[n]))
            for n in order
            if weights[n] > 0
        )
        items.append(replace(item, because=tuple(because)))
    return replace(answer, items=[*items, *answer.items[MOST_EXPLAINED:]])
