"""Answers requests from a loaded bundle, in small batches, and replaces the bundle while running.

One thread computes. Requests that arrive while it is busy form the next batch and share one pass
over the items. A single request starts at once. Batches that take a few milliseconds are answered
on the event loop: two threads would contend for the interpreter, which makes both slower.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, TypeVar

from starlette.exceptions import HTTPException

from mgformer.errors import BundleError, MgformerError
from mgformer.ranking.scorers import vectors_of
from mgformer.recommend.answer import Answer
from mgformer.recommend.finding import find_items
from mgformer.recommend.lists import answer_all
from mgformer.recommend.query import Query
from mgformer.recommend.recommender import Recommender
from mgformer.runs.bundle import Bundle
from mgformer.runs.bundle_files import manifest_checksum, stamp_of
from mgformer.serving.search import EXACT, Search

Returned = TypeVar("Returned")


class Loaded(NamedTuple):
    """A recommender in service."""

    recommender: Recommender
    checksum: str
    """Checksum of the manifest, which identifies the bundle."""
    since: float
    rules: bytes = b""
    """The file of rules as it was, if there is one."""


class Overloaded(HTTPException):
    """The queue of waiting requests is full."""

    def __init__(self) -> None:
        super().__init__(503, "too many requests are waiting; try again", {"Retry-After": "1"})


class Engine:
    """Answers queries from the bundle in a folder, up to `batch_limit` of them together.

    At most `queue_limit` requests may wait; further ones are refused. Batches with at most
    `quick_products` multiplications are answered on the event loop. The default takes about twenty
    milliseconds. Engines of one process share the thread `compute`. With a key, only bundles that
    are signed with it are loaded.
    """

    def __init__(
        self,
        folder: Path,
        *,
        batch_limit: int = 64,
        queue_limit: int = 1024,
        quick_products: int = 200_000_000,
        compute: ThreadPoolExecutor | None = None,
        key: bytes | None = None,
        rules: Path | None = None,
        search: Search = EXACT,
    ) -> None:
        self.folder, self.batch_limit, self.queue_limit = folder, batch_limit, queue_limit
        self.quick_products, self._key, self._rules = quick_products, key, rules
        self._search = search
        self._stamp = self._stamp_now()
        self.loaded = self._load()
        self._compute = compute or ThreadPoolExecutor(1, thread_name_prefix="compute")
        self._queue: list[tuple[Query, asyncio.Future[Answer]]] = []
        self._worker: asyncio.Task[None] | None = None  # while the queue is being worked off
        self._running, self._reloading = 0, asyncio.Lock()

    def _load(self) -> Loaded:
        stamp, checksum = stamp_of(self.folder), manifest_checksum(self.folder)
        try:
            recommender = Recommender.load(self.folder, self._key)
        except BundleError:
            # The checksum cannot tell: a bundle that was replaced and put back has the same one.
            if stamp_of(self.folder) == stamp:
                raise
            return self._load()  # the bundle was replaced while it was read
        rules = self._rules_now()
        if self._rules is not None:
            recommender = recommender.with_rules(self._rules)
        recommender = self._search.prepared(recommender)
        # Compute what all answers share, so that the first request does not wait for it.
        users, items = recommender.bundle.users, recommender.bundle.items
        users.prepare()
        items.prepare()
        by_history = [Query(history=item, k=1) for item in items.values[:1]]
        by_user = [Query(user=user, k=1) for user in users.values[:1]]
        by_popularity = [Query(history=(), k=1)]
        answer_all(recommender.bundle, by_history + by_user + by_popularity)
        find_items(recommender.bundle, "", 1)
        return Loaded(recommender, checksum, time.time(), rules)

    async def reload(self) -> bool:
        """Load the bundle that is in the folder now; return whether it is a new one.

        Running requests finish on the old bundle. If the new bundle cannot be used, the error is
        raised and the old bundle stays in service.
        """
        async with self._reloading:
            self._stamp = await asyncio.to_thread(self._stamp_now)
            checksum = await asyncio.to_thread(manifest_checksum, self.folder)
            rules = await asyncio.to_thread(self._rules_now)
            if (checksum, rules) == (self.loaded.checksum, self.loaded.rules):
                return False
            self.loaded = await asyncio.to_thread(self._load)
        return True

    async def has_new_files(self) -> bool:
        """Return whether files of the bundle have changed since the last (re)load."""
        return await asyncio.to_thread(self._stamp_now) != self._stamp

    def _stamp_now(self) -> object:
        """Return a value that changes with the files of the bundle and that of the rules."""
        try:
            seen = None if self._rules is None else self._rules.stat()
        except OSError:
            seen = None
        return stamp_of(self.folder), seen and (seen.st_size, seen.st_mtime_ns, seen.st_ino)

    def _rules_now(self) -> bytes:
        """Return the content of the file of rules."""
        try:
            return b"" if self._rules is None else self._rules.read_bytes()
        except OSError:
            return b""  # loading them says what is wrong

    async def ask(self, query: Query) -> Answer:
        """Return the answer to a query. Queries that wait at the same time share a batch."""
        self._check_queue()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Answer] = loop.create_future()
        self._queue.append((query, future))
        if self._worker is None:
            self._worker = loop.create_task(self._work())
        return await future

    async def ask_all(self, queries: Sequence[Query]) -> list[Answer]:
        """Return the answers to all queries of one request, from the same bundle."""
        bundle, answers = self.bundle, []
        for start in range(0, len(queries), self.batch_limit):
            part = queries[start : start + self.batch_limit]
            for result in await self.run(answer_all, bundle, part):
                if isinstance(result, MgformerError):
                    raise result
                answers.append(result)
        return answers

    async def run(self, function: Callable[..., Returned], *arguments: object) -> Returned:
        """Run a function on the computing thread."""
        self._check_queue()
        self._running += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._compute, function, *arguments)
        finally:
            self._running -= 1

    async def _work(self) -> None:
        """Answer batches until the queue is empty."""
        results: Sequence[Answer | Exception]
        try:
            while self._queue:
                batch = self._queue[: self.batch_limit]
                del self._queue[: self.batch_limit]
                try:
                    results = await self._answer([query for query, _ in batch])
                except Exception as error:
                    results = [error] * len(batch)
                for (_, future), result in zip(batch, results, strict=True):
                    if future.done():  # the client has gone
                        continue
                    if isinstance(result, Exception):
                        future.set_exception(result)
                    else:
                        future.set_result(result)
                await asyncio.sleep(0)  # send these answers and read new requests first
        finally:
            self._worker = None

    async def _answer(self, queries: Sequence[Query]) -> Sequence[Answer | MgformerError]:
        bundle = self.bundle
        vectors = vectors_of(bundle.scorer)
        if (
            vectors is not None
            and vectors.items.numel() * len(queries) <= self.quick_products
            and not any(
                query.explain or query.candidates or query.exclude or query.where
                for query in queries
            )
        ):
            return answer_all(bundle, queries)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._compute, answer_all, bundle, queries)

    @property
    def bundle(self) -> Bundle:
        """The bundle in service."""
        return self.loaded.recommender.bundle

    @property
    def waiting(self) -> int:
        """Number of requests that wait for the computing thread, or use it."""
        return len(self._queue) + self._running

    def _check_queue(self) -> None:
        if self.waiting >= self.queue_limit:
            raise Overloaded

    def close(self) -> None:
        """Finish the current computation and stop the thread."""
        self._compute.shutdown(wait=True)
