"""What answers requests: the loaded recommender, replaceable while it works, and micro-batches.

One thread computes. While it is busy, requests gather, and the next batch takes all of them: alone,
a request waits for nobody; under load, many share one pass over the items. What takes little more
than the way to that thread and back is computed at once.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from mgformer.errors import BundleError, MgformerError
from mgformer.ranking.scorers import DotScorer
from mgformer.recommend.answer import Answer
from mgformer.recommend.recommender import Recommender
from mgformer.runs.bundle import Bundle
from mgformer.runs.bundle_files import manifest_checksum, stamp_of
from mgformer.serving.questions import Question, answer_all

QUICK_PRODUCTS = 20_000_000
"""So many multiplications take two or three milliseconds, and the service may stand still."""
Result = Answer | MgformerError
Returned = TypeVar("Returned")

log = logging.getLogger("mgformer.serving")


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
        self._stamp = stamp_of(folder)
        self.loaded = self._load()
        self._compute = ThreadPoolExecutor(1, thread_name_prefix="compute")
        self._waiting: list[tuple[Question, asyncio.Future[Result]]] = []
        self._busy, self._running = False, 0
        self._worker: asyncio.Task[None] | None = None
        self._reloading = asyncio.Lock()

    def _load(self) -> Loaded:
        stamp, checksum = stamp_of(self.folder), manifest_checksum(self.folder)
        try:
            recommender = Recommender.load(self.folder)
        except BundleError:
            # By its stamp: one that was replaced and put back has the checksum it had before.
            if stamp_of(self.folder) == stamp:
                raise
            return self._load()  # it was replaced while it was read
        recommender.warm_up()
        return Loaded(recommender, checksum, time.time())

    async def reload(self) -> bool:
        """Take up what is in the folder now; return whether it is another bundle than before.

        Requests under way keep the one they began with. If the new one cannot be used, the error is
        raised and the old one stays.
        """
        loop = asyncio.get_running_loop()
        async with self._reloading:
            self._stamp = await loop.run_in_executor(None, stamp_of, self.folder)
            found = await loop.run_in_executor(None, manifest_checksum, self.folder)
            if found == self.loaded.checksum:
                return False
            self.loaded = await loop.run_in_executor(None, self._load)
        log.info("loaded", extra={"bundle": self.loaded.checksum})
        return True

    async def has_news(self) -> bool:
        """Say whether files of the bundle have changed since it was last read, for good or bad."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(None, stamp_of, self.folder) != self._stamp

    async def ask(self, question: Question) -> Answer:
        """Return the answer, computed together with those of others who ask at the same time."""
        if self.waiting >= self.queue_limit:
            raise Overloaded
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting.append((question, future))
        if not self._busy:
            self._busy = True
            self._worker = asyncio.get_running_loop().create_task(self._work())
        result = await future
        if isinstance(result, MgformerError):
            raise result
        return result

    async def ask_all(self, questions: Sequence[Question]) -> list[Answer]:
        """Return the answers to many questions of one request, all from the same bundle."""
        recommender, answers = self.loaded.recommender, []
        for start in range(0, len(questions), self.batch_limit):
            part = questions[start : start + self.batch_limit]
            for result in await self.run(answer_all, recommender, part):
                if isinstance(result, MgformerError):
                    raise result
                answers.append(result)
        return answers

    async def _work(self) -> None:
        """Answer until nobody waits; begun when those who ask at the same moment have asked."""
        try:
            while self._waiting:
                batch = self._waiting[: self.batch_limit]
                del self._waiting[: self.batch_limit]
                try:
                    results = await self._answers([question for question, _ in batch])
                except Exception as error:
                    for _, future in batch:
                        if not future.done():
                            future.set_exception(error)
                    continue
                for (_, future), result in zip(batch, results, strict=True):
                    if not future.done():  # else, whoever asked has gone
                        future.set_result(result)
                await asyncio.sleep(0)  # answers are sent, and others heard, before the next batch
        finally:
            self._busy = False

    async def _answers(self, questions: Sequence[Question]) -> Sequence[Result]:
        recommender = self.loaded.recommender
        if _are_quick(recommender, questions):
            return answer_all(recommender, questions)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._compute, answer_all, recommender, questions)

    @property
    def bundle(self) -> Bundle:
        """What is in service."""
        return self.loaded.recommender.bundle

    @property
    def waiting(self) -> int:
        """Requests that wait to be computed."""
        return len(self._waiting) + self._running

    async def run(self, function: Callable[..., Returned], *arguments: object) -> Returned:
        """Run something else on the thread that computes."""
        if self.waiting >= self.queue_limit:
            raise Overloaded
        loop = asyncio.get_running_loop()
        self._running += 1
        try:
            return await loop.run_in_executor(self._compute, function, *arguments)
        finally:
            self._running -= 1

    def close(self) -> None:
        """Finish what is being computed and stop."""
        self._compute.shutdown(wait=True)


def _are_quick(recommender: Recommender, questions: Sequence[Question]) -> bool:
    scorer = recommender.bundle.scorer
    return (
        isinstance(scorer, DotScorer)
        and scorer.items.numel() * len(questions) <= QUICK_PRODUCTS
        and not any(q.explain or q.candidates or q.exclude for q in questions)
    )
