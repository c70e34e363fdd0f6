"""The models in service, by name: which one answers a request, and how each is replaced.

A user always meets the same model: a hash of the id decides, by the shares of the traffic. If the
share of a model grows at the end of the list, those who had it keep it.
"""

import asyncio
import hashlib
import logging
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from fastapi import Request
from starlette.exceptions import HTTPException

from mgformer.data.ids import ExternalId
from mgformer.errors import ConfigError, MgformerError, did_you_mean
from mgformer.recommend.answer import Answer
from mgformer.recommend.query import Query
from mgformer.serving.engine import Engine
from mgformer.serving.monitoring import MODEL, Metrics
from mgformer.serving.search import EXACT, Search

DEFAULT = "default"
"""Name of the model of a service that has only one."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

log = logging.getLogger("mgformer.serving")


@dataclass(frozen=True)
class Served:
    """A model in service."""

    name: str
    engine: Engine
    share: float
    """Share of the users who get this model if a request names none."""


class Models:
    """The models in service. The first is the default."""

    def __init__(
        self,
        folders: Mapping[str, Path],
        shares: Mapping[str, float] | None,
        metrics: Metrics,
        *,
        key: bytes | None = None,
        rules: Path | None = None,
        search: Search = EXACT,
    ) -> None:
        complete = check_shares(folders, shares or {})
        self._metrics, self._compute = metrics, ThreadPoolExecutor(1, thread_name_prefix="compute")
        self._served = {
            name: Served(
                name,
                Engine(folder, compute=self._compute, key=key, rules=rules, search=search),
                complete[name],
            )
            for name, folder in folders.items()
        }
        self.default = next(iter(self._served.values()))
        self._ends = list(zip(accumulate(complete.values()), self._served.values(), strict=True))
        self._is_split = max(complete.values()) < 1

    def __iter__(self) -> Iterator[Served]:
        return iter(self._served.values())

    def __len__(self) -> int:
        return len(self._served)

    @property
    def names(self) -> list[str]:
        """The names of all models."""
        return list(self._served)

    def named(self, name: str) -> Served:
        """Return the model of a name."""
        if name not in self._served:
            listed = ", ".join(self._served)
            name = name[:64]  # the search for a similar name takes long for long text
            hint = did_you_mean(name, self._served)
            raise HTTPException(404, f"unknown model {name!r}: this service has {listed}{hint}")
        return self._served[name]

    def of_user(self, user: ExternalId | None) -> Served:
        """Return the model of a user. Requests that name no user get the default."""
        if user is None or not self._is_split:
            return self.default
        # The 64 bits of the hash as a number from 0 to 1.
        digest = hashlib.blake2b(str(user).encode(), digest_size=8).digest()
        place = int.from_bytes(digest) / 2**64
        return next((served for end, served in self._ends if place < end), self._ends[-1][1])

    def choose(self, request: Request, name: str | None, user: ExternalId | None = None) -> Served:
        """Return the model that a request names, or that of its user; the answer names it."""
        served = self.of_user(user) if name is None else self.named(name)
        request.scope[MODEL] = served.name  # the gate adds it to the answer, metrics and the log
        return served

    async def answer_all(
        self, request: Request, name: str | None, queries: Sequence[Query]
    ) -> list[Answer]:
        """Answer queries, each with the named model or with that of its user."""
        places: dict[str, list[int]] = {}
        for place, query in enumerate(queries):
            served = self.choose(request, name, query.user)
            places.setdefault(served.name, []).append(place)
        request.scope[MODEL] = ",".join(sorted(places))
        answers: dict[int, Answer] = {}
        for own, numbers in places.items():
            found = await self.named(own).engine.ask_all([queries[place] for place in numbers])
            answers.update(zip(numbers, found, strict=True))
        return [answers[place] for place in range(len(queries))]

    async def reload(self, name: str | None = None) -> bool:
        """Load the bundles that are in the folders now; return whether one is new.

        If some cannot be used, the others are loaded, and the first error is raised.
        """
        errors, changed = [], False
        for served in [self.named(name)] if name is not None else self:
            try:
                changed |= await self._reload(served)
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0]
        return changed

    async def watch(self, seconds: float) -> None:
        """Look for new bundles again and again."""
        while True:
            await asyncio.sleep(seconds)
            await self.try_reload(requested=False)

    async def try_reload(self, *, requested: bool = True) -> None:
        """Load new bundles. One that cannot be used is logged, and the old one stays."""
        for served in self:
            about = "" if len(self) == 1 else f" of {served.name}"
            try:
                # A bundle that could not be loaded is not tried again before its files change.
                if requested or await served.engine.has_new_files():
                    await self._reload(served, requested=requested)
            except MgformerError as error:
                message = "cannot use the new bundle%s, keeping the old one: %s"
                log.error(message, about, error, extra={MODEL: served.name})
            except Exception:
                message = "cannot load the new bundle%s, keeping the old one"
                log.exception(message, about, extra={MODEL: served.name})

    async def _reload(self, served: Served, *, requested: bool = True) -> bool:
        try:
            changed = await served.engine.reload()
        except Exception:
            self._metrics.count_reload(served.name, "failed")
            raise
        if changed:
            bundle = served.engine.loaded.checksum
            log.info("loaded", extra={MODEL: served.name, "bundle": bundle})
        if changed or requested:
            self._metrics.count_reload(served.name, "loaded" if changed else "unchanged")
        return changed

    def metrics_text(self) -> bytes:
        """Return all figures in the text format of Prometheus."""
        for served in self:
            engine = served.engine
            index = engine.bundle.index
            recall = None if index is None else index.recall
            self._metrics.show_state(served.name, engine.waiting, engine.loaded.since, recall)
        return self._metrics.text()

    def close(self) -> None:
        """Finish the current computation and stop the thread."""
        self._compute.shutdown(wait=True)


def check_shares(names: Mapping[str, object], shares: Mapping[str, float]) -> dict[str, float]:
    """Return the share of each model; without shares, the first gets all users."""
    for name in names:
        if not NAME.fullmatch(name):
            raise ConfigError(
                f"model name {name!r}: expected letters, digits, '.', '_' and '-', at most 64"
            )
    for name, share in shares.items():
        if name not in names:
            raise ConfigError(
                f"--share {name}: unknown model; this service has {', '.join(names)}"
                f"{did_you_mean(name, names)}"
            )
        if not 0 <= share <= 1:
            raise ConfigError(f"--share {name}={share:g}: expected a number from 0 to 1")
    if not shares:
        shares = {next(iter(names)): 1.0}
    if not math.isclose(sum(shares.values()), 1, abs_tol=1e-6):
        raise ConfigError(f"--share: the shares add up to {sum(shares.values()):g}, expected 1")
    return {name: shares.get(name, 0.0) for name in names}
