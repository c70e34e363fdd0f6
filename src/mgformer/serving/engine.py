"""What answers requests: the loaded recommender, replaceable while it works, and micro-batches.

One thread computes. While it is busy, requests gather, and the next batch takes all of them: alone,
a request waits for nobody; under load, many share one pass over the items.
"""

import asyncio
import logging
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from mgformer.bundle import manifest_checksum
from mgformer.data.ids import ExternalId
from mgformer.errors import MgformerError
from mgformer.ranking.topk import top_k
from mgformer.recommender import Answer, Recommender

log = logging.getLogger("mgformer.serving")


@dataclass(frozen=True, eq=False)
class Question:
    """For whom, and how many."""

    k: int
    user: ExternalId | None = None
    history: tuple[ExternalId, ...] | None = None
    """Items of somebody new or, beside a user, items that the user has taken since."""
    exclude_seen: bool = True
    candidates: tuple[ExternalId, ...] | None = None


@dataclass(frozen=True, eq=False)
class Loaded:
    """A recommender in service."""

    recommender: Recommender
    checksum: str
    """Of its manifest: tells one bundle from another."""
    since: float


class Overloaded(Exception):
    """More requests wait than the service wants to keep waiting."""


class Engine:
    """Answers questions from the bundle in a folder, and takes up a new one without a pause."""

    def __init__(self, folder: Path, *, batch_limit: int = 64, queue_limit: int = 1024) -> None:
        self.folder, self.batch_limit, self.queue_limit = folder, batch_limit, queue_limit
        self.loaded = self._load()
        self._compute = ThreadPoolExecutor(1, thread_name_prefix="compute")
        self._waiting: list[tuple[Question, asyncio.Future[Answer | MgformerError]]] = []
        self._busy = False

    def _load(self) -> Loaded:
        checksum = manifest_checksum(self.folder)
        recommender = Recommender.load(self.folder)
        recommender.warm_up()
        return Loaded(recommender, checksum, time.time())

    async def reload(self) -> bool:
        """Take up what is in the folder now; return whether it is another bundle than before.

        Requests under way keep the one they began with. If the new one cannot be used, the error is
        raised and the old one stays.
        """
        loop = asyncio.get_running_loop()
        if await loop.run_in_executor(None, manifest_checksum, self.folder) == self.loaded.checksum:
            return False
        self.loaded = await loop.run_in_executor(None, self._load)
        log.info("loaded", extra={"bundle": self.loaded.checksum})
        return True

    async def ask(self, question: Question) -> Answer:
        """Return the answer, computed together with those of others who ask at the same time."""
        if len(self._waiting) >= self.queue_limit:
            raise Overloaded
        future: asyncio.Future[Answer | MgformerError] = asyncio.get_running_loop().create_future()
        self._waiting.append((question, future))
        if not self._busy:
            self._busy = True
            asyncio.get_running_loop().create_task(self._work())
        result = await future
        if isinstance(result, MgformerError):
            raise result
        return result

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._waiting:
                batch = self._waiting[: self.batch_limit]
                del self._waiting[: self.batch_limit]
                questions = [question for question, _ in batch]
                try:
                    results: Sequence[Answer | MgformerError | Exception]
                    results = await loop.run_in_executor(
                        self._compute, answer_all, self.loaded.recommender, questions
                    )
                except Exception as error:
                    results = [error] * len(batch)
                for (_, future), result in zip(batch, results, strict=True):
                    if future.done():  # whoever asked has gone
                        continue
                    if isinstance(result, Answer | MgformerError):
                        future.set_result(result)
                    else:
                        future.set_exception(result)
        finally:
            self._busy = False

    @property
    def waiting(self) -> int:
        """Requests that wait to be computed."""
        return len(self._waiting)

    async def run(self, function: object, *arguments: object) -> object:
        """Run something else on the thread that computes."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._compute, function, *arguments)  # type: ignore[arg-type]

    def close(self) -> None:
        """Finish what is being computed and stop."""
        self._compute.shutdown(wait=True)


def answer_all(
    recommender: Recommender, questions: Sequence[Question]
) -> list[Answer | MgformerError]:
    """Answer questions together; what is wrong with one does not touch the others."""
    answers: list[Answer | MgformerError | None] = [None] * len(questions)
    groups: dict[tuple[bool, bool], list[int]] = {}
    for place, question in enumerate(questions):
        if question.candidates is not None:
            answers[place] = _alone(recommender, question)
        else:
            known = question.history is None
            groups.setdefault((known, question.exclude_seen), []).append(place)
    for (known, exclude_seen), places in groups.items():
        asked = [questions[place] for place in places]
        found = (_of_users if known else _of_histories)(recommender, asked, exclude_seen)
        for place, answer in zip(places, found, strict=True):
            answers[place] = answer
    return [answer for answer in answers if answer is not None]


def _alone(recommender: Recommender, question: Question) -> Answer | MgformerError:
    try:
        seen, candidates = question.exclude_seen, question.candidates
        if question.history is not None:
            return recommender.recommend_for(
                question.history,
                question.k,
                user=question.user,
                exclude_seen=seen,
                candidates=candidates,
            )
        assert question.user is not None
        return next(
            recommender.answers(
                [question.user], question.k, exclude_seen=seen, candidates=candidates
            )
        )
    except MgformerError as error:
        return error


def _of_users(
    recommender: Recommender, questions: Sequence[Question], exclude_seen: bool
) -> list[Answer | MgformerError]:
    """Answer for users of the training data; the longest list asked for is cut for the others."""
    users = [question.user for question in questions if question.user is not None]
    numbers = recommender.bundle.users.encode(users)
    asked: NDArray[np.int32] = numbers[numbers >= 0]
    k = max(question.k for question in questions)
    found, sources = recommender.rank(asked, k, exclude_seen=exclude_seen)
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
    recommender: Recommender, questions: Sequence[Question], exclude_seen: bool
) -> list[Answer | MgformerError]:
    """Answer for people known by items, folded in together."""
    answers: list[Answer | MgformerError | None] = [None] * len(questions)
    rows, places = [], []
    for place, question in enumerate(questions):
        try:
            row, unknown = recommender.history_row(question.history or (), question.user)
        except MgformerError as error:
            answers[place] = error
            continue
        if row.nnz:
            rows.append(row)
            places.append((place, unknown))
        else:
            answers[place] = _alone(recommender, question)
    if rows:
        histories = sp.csr_array(sp.vstack(rows, format="csr"))
        k = max(questions[place].k for place, _ in places)
        scorer = recommender.bundle.scorer.fold_in(histories)
        seen = histories if exclude_seen else None
        found = top_k(scorer, np.arange(len(rows)), k, seen=seen)
        for number, (place, unknown) in enumerate(places):
            question = questions[place]
            answers[place] = recommender.answer(
                question.user, found, number, "history", unknown, k=question.k
            )
    return [answer for answer in answers if answer is not None]
