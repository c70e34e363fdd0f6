"""The HTTP API and the page. Every bound on a request stands in its schema or in the gate.

Run by `mgformer serve`, or by any ASGI server: `create_app(Path("runs/mine"))`.
"""

import asyncio
import contextlib
import logging
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import polars as pl
from fastapi import FastAPI, Query, Request
from fastapi import Path as PathParameter
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from fastapi.staticfiles import StaticFiles
from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr, model_validator
from starlette.exceptions import HTTPException

from mgformer.data.ids import ExternalId
from mgformer.errors import MgformerError, UnknownIdError
from mgformer.recommender import Answer, Recommender
from mgformer.serving.engine import Engine, Overloaded, Question
from mgformer.serving.limits import Gate, Limits
from mgformer.serving.metrics import Metrics
from mgformer.version import __version__

PAGE = Path(__file__).parent / "page"
WATCH_SECONDS = 2.0
"""How often the folder is looked at for another bundle, so that all workers take it up."""
DEFAULT_LIMITS = Limits()
MOST_REASONS = 3
MOST_EXPLAINED = 50
"""Recommendations of a list that come with reasons, from the first on."""
ID_LENGTH = 512

log = logging.getLogger("mgformer.serving")
Id = Annotated[StrictStr, Field(max_length=ID_LENGTH)] | StrictInt


class Body(BaseModel):
    """What a request says; unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class Item(BaseModel):
    """An item."""

    item: ExternalId
    name: str | None = None


class Reason(Item):
    """An item somebody has, and how much it speaks for a recommendation."""

    weight: float


class Recommended(Item):
    """An item recommended."""

    score: float
    because: list[Reason] | None = None


class Recommendations(BaseModel):
    """A list, best first."""

    user: ExternalId | None
    source: Literal["model", "history", "popularity"]
    unknown: list[ExternalId]
    items: list[Recommended]


class Failure(BaseModel):
    """What was wrong."""

    error: str


class SimilarItem(Item):
    """An item like another."""

    score: float


class SimilarUser(BaseModel):
    """A user like another."""

    user: ExternalId
    score: float


FAILURES: dict[int | str, dict[str, Any]] = {
    400: {"model": Failure, "description": "The request cannot be read."},
    401: {"model": Failure, "description": "The API key is missing or wrong."},
    404: {"model": Failure, "description": "A user or an item is not known."},
    413: {"model": Failure, "description": "The body is too large."},
    422: {"model": Failure, "description": "A value is not allowed."},
    503: {"model": Failure, "description": "Too many requests wait; try again."},
}


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
        tasks = [asyncio.create_task(_watch(reload))] if watch else []
        loop = asyncio.get_running_loop()
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
            # Signals can be had in the main thread of Unix only.
            loop.add_signal_handler(signal.SIGHUP, lambda: loop.create_task(_quietly(reload)))
        yield
        for task in tasks:
            task.cancel()
        engine.close()

    async def reload() -> bool:
        try:
            changed = await engine.reload()
        except MgformerError:
            metrics.reloads["failed"] += 1
            raise
        metrics.reloads["loaded" if changed else "unchanged"] += 1
        return changed

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
    _handle_failures(app)

    k_field = Field(20, ge=1, le=limits.k)

    class Ask(Body):
        """For whom, and how many. Say `user`, `history`, or both."""

        user: Id | None = None
        """A user of the training data."""
        history: list[Id] | None = Field(None, max_length=limits.history_items)
        """Items of somebody new; with `user`, items that the user has taken since."""
        k: int = k_field
        exclude_seen: bool = True
        """Leave out what is in the history."""
        candidates: list[Id] | None = Field(None, min_length=1, max_length=limits.candidates)
        """Items to choose from."""
        explain: bool = False
        """Say which items of the history speak for each recommendation."""

        @model_validator(mode="after")
        def _says_for_whom(self) -> "Ask":
            if self.user is None and self.history is None:
                raise ValueError("say for whom: user, history, or both")
            return self

    class AskMany(Body):
        """For whom, and how many."""

        users: list[Id] = Field(min_length=1, max_length=limits.batch_users)
        k: int = k_field
        exclude_seen: bool = True

    class AskSimilar(Body):
        """Like which item, or like which user."""

        item: Id | None = None
        user: Id | None = None
        k: int = k_field

        @model_validator(mode="after")
        def _says_like_what(self) -> "AskSimilar":
            if (self.item is None) == (self.user is None):
                raise ValueError("say like what: either item or user")
            return self

    @app.post("/recommend", response_model=Recommendations)
    async def recommend(ask: Ask) -> Any:
        """Recommend items to a user, or to somebody known by items."""
        question = Question(
            k=ask.k,
            user=ask.user,
            history=None if ask.history is None else tuple(ask.history),
            exclude_seen=ask.exclude_seen,
            candidates=None if ask.candidates is None else tuple(ask.candidates),
        )
        answer = await engine.ask(question)
        recommender = engine.loaded.recommender
        if not ask.explain or answer.source == "popularity":
            return _plain(answer)
        return await engine.run(_explained, recommender, answer, question)

    @app.post("/recommend/batch")
    async def recommend_batch(ask: AskMany) -> list[Recommendations]:
        """Recommend items to many users of the training data."""
        questions = [Question(k=ask.k, user=u, exclude_seen=ask.exclude_seen) for u in ask.users]
        answers = await asyncio.gather(*(engine.ask(question) for question in questions))
        return [_plain(answer) for answer in answers]

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
        found: Any = await engine.run(find_items, engine.loaded.recommender, q, limit)
        return [Item(**row) for row in found.to_dicts()]

    @app.get("/users")
    async def users(
        q: Annotated[str, Query(max_length=200)] = "",
        limit: Annotated[int, Query(ge=1, le=200)] = 20,
    ) -> list[ExternalId]:
        """Find users by a part of their id."""
        found: Any = await engine.run(find_users, engine.loaded.recommender, q, limit)
        return found.to_list()

    @app.get("/users/{user_id:path}")
    async def user(
        user_id: Annotated[str, PathParameter(max_length=ID_LENGTH)],
    ) -> dict[str, Any]:
        """Return what a user has."""
        recommender = engine.loaded.recommender
        number = int(recommender.numbers_of([user_id])[0])
        own = recommender.items_of(number)
        return {"user": recommender.bundle.users.values[number], "items": own.to_dicts()}

    @app.get("/model")
    async def model() -> dict[str, Any]:
        """Say what is in service: model, data, protocol, figures."""
        bundle = engine.loaded.recommender.bundle
        record = {name: value for name, value in bundle.record.items() if name != "groups"}
        sizes = {"num_users": len(bundle.users), "num_items": len(bundle.items)}
        return {**record, **sizes, "bundle": engine.loaded.checksum}

    @app.get("/healthz", response_class=PlainTextResponse)
    async def healthz() -> str:
        """Say that the process lives."""
        return "ok"

    @app.get("/readyz", response_class=PlainTextResponse)
    async def readyz() -> str:
        """Say that a bundle is loaded and requests can be answered."""
        return "ready"

    @app.get("/metrics", response_class=PlainTextResponse)
    async def figures() -> str:
        """Return counters and latencies for Prometheus."""
        return metrics.text(engine.waiting, engine.loaded.since)

    @app.post("/admin/reload")
    async def admin_reload() -> dict[str, Any]:
        """Take up the bundle that is in the folder now; requests under way are not disturbed."""
        changed = await reload()
        return {"changed": changed, "bundle": engine.loaded.checksum}

    @app.get("/", include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(PAGE / "index.html")

    app.mount("/page", StaticFiles(directory=PAGE), name="page")
    return app


def find_items(recommender: Recommender, text: str, limit: int) -> pl.DataFrame:
    """Return items whose name or id contains a text: item, name.

    The item of that very id comes first, then the most popular.
    """
    bundle = recommender.bundle
    table = pl.DataFrame({"item": bundle.items.values, "popularity": bundle.item_degrees})
    if bundle.item_names is not None:
        table = table.with_columns(bundle.item_names.rename("name"))
    shown = [name for name in ("item", "name") if name in table.columns]
    if text:
        table = table.filter(pl.any_horizontal(_contains(name, text) for name in shown))
    exact = pl.col("item").cast(pl.String) == text
    table = table.sort(exact, "popularity", descending=True, maintain_order=True)
    return table.head(limit).select(shown)


def find_users(recommender: Recommender, text: str, limit: int) -> pl.Series:
    """Return users whose id contains a text, the one of that very id first."""
    table = pl.DataFrame({"user": recommender.bundle.users.values})
    if text:
        table = table.filter(_contains("user", text))
        exact = pl.col("user").cast(pl.String) == text
        table = table.sort(exact, descending=True, maintain_order=True)
    return table["user"].head(limit)


def _contains(column: str, text: str) -> pl.Expr:
    lower = pl.col(column).cast(pl.String).str.to_lowercase()
    return lower.str.contains(text.lower(), literal=True)


def _plain(answer: Answer) -> Recommendations:
    items = [Recommended(item=i.item, name=i.name, score=i.score) for i in answer.items]
    return Recommendations(
        user=answer.user, source=answer.source, unknown=list(answer.unknown), items=items
    )


def _explained(recommender: Recommender, answer: Answer, question: Question) -> Recommendations:
    """Return the answer with the items that speak most for each recommendation."""
    plain = _plain(answer)
    row, _ = recommender.history_row(question.history or (), question.user)
    history = recommender.bundle.items.decode(row.indices).to_list()
    for item in plain.items[:MOST_EXPLAINED]:
        why = recommender.explain_history(history, item.item).head(MOST_REASONS)
        item.because = [Reason(**row) for row in why.to_dicts() if row["weight"] > 0]
    return plain


def _handle_failures(app: FastAPI) -> None:
    """Answer what goes wrong in one line; a fault of ours is logged and not shown."""

    def failure(status: int, message: str, **headers: str) -> JSONResponse:
        return JSONResponse({"error": message}, status, headers=headers)

    @app.exception_handler(MgformerError)
    async def unknown(request: Request, error: MgformerError) -> Response:
        return failure(404 if isinstance(error, UnknownIdError) else 422, str(error))

    @app.exception_handler(Overloaded)
    async def overloaded(request: Request, error: Overloaded) -> Response:
        return failure(503, "too many requests wait; try again", **{"Retry-After": "1"})

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        if first["type"] == "json_invalid":
            return failure(400, "the body is not valid JSON")
        where = ".".join(str(part) for part in first["loc"] if part != "body")
        message = first["msg"].removeprefix("Value error, ")
        return failure(422, f"{where}: {message}" if where else message)

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> Response:
        headers = dict(error.headers or {})
        return failure(error.status_code, str(error.detail), **headers)

    @app.exception_handler(Exception)
    async def fault(request: Request, error: Exception) -> Response:
        log.exception("fault", exc_info=error)
        return failure(500, "a fault of the service; it has been logged")


async def _watch(reload: Callable[[], Any]) -> None:
    while True:
        await asyncio.sleep(WATCH_SECONDS)
        await _quietly(reload)


async def _quietly(reload: Callable[[], Any]) -> None:
    try:
        await reload()
    except MgformerError as error:
        log.error("the new bundle cannot be used, the old one stays: %s", error)
