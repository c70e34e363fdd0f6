"""The HTTP API and the page. Every bound on a request stands in its schema or in the gate.

Run by `mgformer serve`, or by any ASGI server: `create_app(Path("runs/mine"))`.
"""

import asyncio
import contextlib
import logging
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, Query
from fastapi import Path as PathParameter
from fastapi.responses import FileResponse, PlainTextResponse, Response
from fastapi.staticfiles import StaticFiles
from pydantic import ConfigDict, Field, model_validator

from mgformer.errors import MgformerError
from mgformer.serving import search
from mgformer.serving.engine import Engine
from mgformer.serving.failures import FAILURES, handle_failures
from mgformer.serving.keys import OPEN, document_key
from mgformer.serving.limits import Gate, Limits
from mgformer.serving.metrics import Metrics
from mgformer.serving.questions import Question
from mgformer.serving.schemas import (
    ID_LENGTH,
    Body,
    Id,
    Item,
    Listed,
    Owned,
    Reloaded,
    SimilarItem,
    SimilarUser,
    TextId,
    Whole,
    as_json,
    either,
    many_as_json,
)
from mgformer.version import __version__

PAGE = Path(__file__).parent / "page"
WATCH_SECONDS = 2.0
"""How often the folder is looked at for another bundle, so that all workers take it up."""
DEFAULT_LIMITS = Limits()

log = logging.getLogger("mgformer.serving")


def create_app(
    folder: Path,
    *,
    limits: Limits = DEFAULT_LIMITS,
    api_key: str | None = None,
    watch: bool = True,
) -> FastAPI:
    """Return the service for the bundle in a folder.

    Args:
        folder: A trained recommender.
        limits: Bounds of a request.
        api_key: Wanted in the header X-API-Key of every request but health checks, if given.
        watch: Take up another bundle as soon as it is in the folder.
    """
    metrics, engine = Metrics(), Engine(folder)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(_watch(follow))] if watch else []
        loop = asyncio.get_running_loop()
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
            # Signals can be had in the main thread of Unix only.
            loop.add_signal_handler(signal.SIGHUP, lambda: loop.create_task(_quietly(reload)))
        yield
        for task in tasks:
            task.cancel()
        engine.close()

    async def reload(*, asked: bool = True) -> bool:
        try:
            changed = await engine.reload()
        except Exception:
            metrics.reloads["failed"] += 1
            raise
        if changed or asked:
            metrics.reloads["loaded" if changed else "unchanged"] += 1
        return changed

    async def follow() -> None:
        # What cannot be used is not read again, and reported again, until something is done to it.
        if await engine.has_news():
            await reload(asked=False)

    app = FastAPI(
        title="mgformer",
        version=__version__,
        description="Recommendations from a trained bundle.",
        lifespan=lifespan,
        responses=FAILURES,
        docs_url=None,
        redoc_url=None,
    )
    app.add_middleware(Gate, limits=limits, metrics=metrics, api_key=api_key)
    app.state.engine = engine
    handle_failures(app)
    if api_key is not None:
        document_key(app)

    k_field = Field(min(20, limits.k), ge=1, le=limits.k)
    # The document shows requests that can be sent as they stand.
    a_user, an_item = (
        ids.values[0] if len(ids) else "" for ids in (engine.bundle.users, engine.bundle.items)
    )

    class Ask(Body):
        """For whom, and how many. Say `user`, `history`, or both."""

        model_config = ConfigDict(
            json_schema_extra=either("anyOf", {"user": a_user, "k": 1}, {"history": [an_item]})
        )

        user: Id | None = None
        """A user of the training data."""
        history: list[Id] | None = Field(None, max_length=limits.history_items)
        """Items of somebody new; with `user`, items that the user has taken since."""
        k: Whole = k_field
        exclude_seen: bool = True
        """Leave out what is in the history."""
        candidates: list[Id] | None = Field(None, min_length=1, max_length=limits.candidates)
        """Items to choose from."""
        exclude: list[Id] = Field([], max_length=limits.candidates)
        """Items never to recommend; those that are not known never are."""
        explain: bool = False
        """Say which items of the history speak for each recommendation."""

        @model_validator(mode="after")
        def _says_for_whom(self) -> "Ask":
            if self.user is None and self.history is None:
                raise ValueError("say for whom: user, history, or both")
            return self

    class AskMany(Body):
        """For whom, and how many; not only each is bounded, but also the users times k."""

        users: list[Id] = Field(
            min_length=1, max_length=limits.batch_users, examples=[[a_user, a_user]]
        )
        k: Whole = k_field
        exclude_seen: bool = True
        exclude: list[Id] = Field([], max_length=limits.candidates)
        """Items never to recommend to any of them."""

        @model_validator(mode="after")
        def _is_not_too_much(self) -> "AskMany":
            asked = len(self.users) * self.k
            if asked > limits.batch_items:
                raise ValueError(
                    f"{len(self.users):,} users × {self.k:,} items are more than"
                    f" {limits.batch_items:,}; ask for fewer at a time"
                )
            return self

    class AskSimilar(Body):
        """Like which item, or like which user."""

        model_config = ConfigDict(
            json_schema_extra=either("oneOf", {"item": an_item, "k": 1}, {"user": a_user})
        )

        item: Id | None = None
        user: Id | None = None
        k: Whole = k_field

        @model_validator(mode="after")
        def _says_like_what(self) -> "AskSimilar":
            if (self.item is None) == (self.user is None):
                raise ValueError("say like what: either item or user")
            return self

    # Lists are encoded here: what FastAPI would do to them takes longer than to find them.

    @app.post("/recommend", response_model=Listed)
    async def recommend(ask: Ask) -> Response:
        """Recommend items to a user, or to somebody known by items."""
        question = Question(
            k=ask.k,
            user=ask.user,
            history=None if ask.history is None else tuple(ask.history),
            exclude_seen=ask.exclude_seen,
            candidates=None if ask.candidates is None else tuple(ask.candidates),
            exclude=tuple(ask.exclude),
            explain=ask.explain,
        )
        return _json(as_json(await engine.ask(question), ask.k))

    @app.post("/recommend/batch", response_model=list[Listed])
    async def recommend_batch(ask: AskMany) -> Response:
        """Recommend items to many users of the training data."""
        exclude = tuple(ask.exclude)
        questions = [
            Question(k=ask.k, user=user, exclude_seen=ask.exclude_seen, exclude=exclude)
            for user in ask.users
        ]
        answers = await engine.ask_all(questions)
        return _json(await asyncio.to_thread(many_as_json, answers, ask.k))

    @app.post("/similar")
    async def similar(ask: AskSimilar) -> list[SimilarItem] | list[SimilarUser]:
        """Return the items most like an item, or the users most like a user."""
        recommender = engine.loaded.recommender
        asked = recommender.similar_items if ask.item is not None else recommender.similar_users
        found: Any = await engine.run(asked, ask.item if ask.item is not None else ask.user, ask.k)
        kind = SimilarItem if ask.item is not None else SimilarUser
        return [kind(**row) for row in found.to_dicts()]  # type: ignore[return-value]

    @app.get("/items")
    async def items(
        q: Annotated[str, Query(max_length=200)] = "",
        limit: Annotated[int, Query(ge=1, le=200)] = 20,
    ) -> list[Item]:
        """Find items by a part of their name or id; without one, the most popular."""
        found: Any = await engine.run(search.find_items, engine.loaded.recommender, q, limit)
        return [Item(**row) for row in found.to_dicts()]

    @app.get("/users")
    async def users(
        q: Annotated[str, Query(max_length=200)] = "",
        limit: Annotated[int, Query(ge=1, le=200)] = 20,
    ) -> list[TextId]:
        """Find users by a part of their id."""
        found: Any = await engine.run(search.find_users, engine.loaded.recommender, q, limit)
        return found.to_list()

    @app.get("/users/{user_id:path}")
    async def user(
        user_id: Annotated[str, PathParameter(max_length=ID_LENGTH, examples=[str(a_user)])],
        limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
    ) -> Owned:
        """Return what a user has, by id: how many items, and the first of them."""
        recommender = engine.loaded.recommender
        number = int(recommender.numbers_of([user_id])[0])
        own = recommender.items_of(number)
        items = [Item(**row) for row in own.head(limit).to_dicts()]
        user = recommender.bundle.users.values[number]
        return Owned(user=user, total=own.height, items=items)

    @app.get("/model")
    async def model() -> dict[str, Any]:
        """Say what is in service: model, data, protocol, figures."""
        bundle = engine.bundle
        record = bundle.record.to_mapping()
        record.pop("groups")
        sizes = {"num_users": len(bundle.users), "num_items": len(bundle.items)}
        return {**record, **sizes, "bundle": engine.loaded.checksum}

    @app.get("/healthz", response_class=PlainTextResponse, openapi_extra=OPEN)
    async def healthz() -> str:
        """Say that the process lives."""
        return "ok"

    @app.get("/readyz", response_class=PlainTextResponse, openapi_extra=OPEN)
    async def readyz() -> str:
        """Say that a bundle is loaded and requests can be answered."""
        return "ready"

    @app.get("/metrics", response_class=PlainTextResponse)
    async def figures() -> str:
        """Return counters and latencies for Prometheus."""
        return metrics.text(engine.waiting, engine.loaded.since)

    @app.post("/admin/reload")
    async def admin_reload() -> Reloaded:
        """Take up the bundle that is in the folder now; requests under way are not disturbed."""
        changed = await reload()
        return Reloaded(changed=changed, bundle=engine.loaded.checksum)

    @app.get("/", include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(PAGE / "index.html")

    app.mount("/page", StaticFiles(directory=PAGE), name="page")
    return app


def _json(body: bytes) -> Response:
    return Response(body, media_type="application/json")


async def _watch(follow: Callable[[], Any]) -> None:
    while True:
        await asyncio.sleep(WATCH_SECONDS)
        await _quietly(follow)


async def _quietly(reload: Callable[[], Any]) -> None:
    try:
        await reload()
    except MgformerError as error:
        log.error("the new bundle cannot be used, the old one stays: %s", error)
    except Exception:
        log.exception("the new bundle could not be loaded, the old one stays")
