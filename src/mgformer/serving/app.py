"""The HTTP service: loads bundles, follows their folders, answers requests, and serves the page.

`mgformer serve` runs it. Any other ASGI server can: `create_app(Path("runs/mine"))`.
"""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import FileResponse, HTMLResponse, PlainTextResponse, Response
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException

from mgformer.data.formats.feedback import PREFIX
from mgformer.recommend.answer import Answer
from mgformer.recommend.finding import find_items
from mgformer.recommend.shown import described
from mgformer.serving import schemas
from mgformer.serving.card import model_card
from mgformer.serving.failures import FAILURES, handlers
from mgformer.serving.feedback import Exposures, add_feedback
from mgformer.serving.gate import Gate
from mgformer.serving.journal import Journal
from mgformer.serving.limits import Limits
from mgformer.serving.models import DEFAULT, Models
from mgformer.serving.monitoring import MODEL, Metrics
from mgformer.serving.parameters import ModelName, SearchLimit, SearchText, first_id
from mgformer.serving.reference import Reference
from mgformer.serving.search import EXACT, Search
from mgformer.serving.security import LOOPBACK, Access
from mgformer.serving.short_way import answer_plainly
from mgformer.serving.users import NO_USERS, add_users, refuse_users
from mgformer.version import __version__

JSON = "application/json"
PAGE = Path(__file__).parent / "page"
DEFAULT_LIMITS = Limits()


def create_app(
    folder: Path | Mapping[str, Path],
    *,
    shares: Mapping[str, float] | None = None,
    limits: Limits = DEFAULT_LIMITS,
    api_key: str | None = None,
    hosts: Sequence[str] = LOOPBACK,
    list_users: bool = True,
    watch_seconds: float | None = 2.0,
    signature_key: bytes | None = None,
    feedback: Path | None = None,
    rules: Path | None = None,
    search: Search = EXACT,
) -> FastAPI:
    """Return the service for the bundle in a folder, or for several bundles.

    Args:
        folder: Folder of the bundle; or names and folders of several. The first is the default.
        shares: Shares of the users who get each model if a request names none. They add up to 1.
        limits: Limits of requests.
        api_key: Every request except health checks needs this key in the header X-API-Key.
        hosts: Names of the service that the header Host may have; "*" allows all.
        list_users: Answer requests that list or search users.
        watch_seconds: How often to look for a new bundle in the folder; None: never.
        signature_key: Load only bundles that are signed with this key.
        rules: A file of rules that all lists follow, instead of those of the bundles.
        search: Whether lists are exact, or made with an index.
        feedback: Folder for the log of `POST /feedback`; None: feedback is refused.
    """
    folders = {DEFAULT: folder} if isinstance(folder, Path) else folder
    metrics = Metrics()
    models = Models(folders, shares, metrics, key=signature_key, rules=rules, search=search)
    journal, exposures = None, None
    if feedback is not None:
        journal = Journal(feedback, PREFIX, most_waiting=limits.waiting_feedback)
        exposures = Exposures(feedback, limits) if len(models) > 1 else None

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        watching = None if watch_seconds is None else loop.create_task(models.watch(watch_seconds))
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
            # Signal handlers exist on Unix, in the main thread only.
            loop.add_signal_handler(signal.SIGHUP, lambda: loop.create_task(models.try_reload()))
        yield
        if watching is not None:
            watching.cancel()
        for log in (journal, exposures.journal if exposures else None):
            if log is not None:
                await log.close()
        models.close()

    app = FastAPI(
        title="mgformer",
        version=__version__,
        description="Recommendations from a trained bundle.",
        lifespan=lifespan,
        responses=FAILURES,
        exception_handlers=handlers(list_users=list_users),
        docs_url=None,
        redoc_url=None,
    )
    access = Access(api_key, tuple(hosts))
    app.add_middleware(Gate, limits=limits, metrics=metrics, access=access)
    app.state.models, app.state.engine = models, models.default.engine
    app.state.takes_feedback = feedback is not None
    _add_answers(app, models, limits, exposures, list_users=list_users)
    add_feedback(app, journal, models, metrics, limits)
    if list_users:
        add_users(app, models)
    else:
        refuse_users(app)

    without_key: dict[str, Any] = {"security": []}

    @app.get("/healthz", response_class=PlainTextResponse, openapi_extra=without_key)
    async def healthz() -> str:
        """Tell that the process is alive."""
        return "ok"

    @app.get("/readyz", response_class=PlainTextResponse, openapi_extra=without_key)
    async def readyz() -> str:
        """Tell that a bundle is loaded and requests are answered."""
        return "ready"

    @app.get("/metrics", response_class=PlainTextResponse)
    async def show_metrics() -> PlainTextResponse:
        """Return counters and latencies for Prometheus."""
        return PlainTextResponse(models.metrics_text())

    @app.post("/admin/reload")
    async def admin_reload(model: ModelName = None) -> schemas.Reloaded:
        """Load the bundles that are in the folders now; running requests finish on the old ones.

        With `model`, only this one is loaded. Without it, `bundle` is that of the default.
        """
        changed = await models.reload(model)
        served = models.default if model is None else models.named(model)
        return schemas.Reloaded(changed=changed, bundle=served.engine.loaded.checksum)

    @app.get("/", include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(PAGE / "index.html")

    app.mount("/page", StaticFiles(directory=PAGE), name="page")

    @app.get("/docs", include_in_schema=False)
    async def docs(request: Request) -> HTMLResponse:
        return HTMLResponse(reference.page(str(request.base_url).rstrip("/")))

    # After all routes: another route would make FastAPI write the document again.
    document = app.openapi()
    _complete_document(document, models.names, with_key=api_key is not None)
    reference = Reference(document, with_key=api_key is not None)
    return app


def _complete_document(document: dict[str, Any], names: Sequence[str], *, with_key: bool) -> None:
    """Add the names of the models and the API key to the OpenAPI document.

    FastAPI keeps this object and answers with it. The type of `model` does not have the names,
    because unknown names get a 404 that lists them, not a 422.
    """
    for path in document["paths"].values():
        for operation in path.values():
            for parameter in operation.get("parameters", ()):
                if parameter["name"] == MODEL:
                    parameter["schema"] = {"type": "string", "enum": [*names]}
    if with_key:
        scheme = {"type": "apiKey", "in": "header", "name": "X-API-Key"}
        document["components"]["securitySchemes"] = {"key": scheme}
        document["security"] = [{"key": []}]


def _add_answers(
    app: FastAPI, models: Models, limits: Limits, exposures: Exposures | None, *, list_users: bool
) -> None:
    """Add the routes that answer questions about one user, about items and about the models."""
    first = models.default.engine.bundle
    a_user, an_item = first_id(first.users, shown=list_users), first_id(first.items)
    bodies = schemas.request_bodies(limits, a_user, an_item, first.about_items)

    # The first two encode their answers themselves, and the first takes a short way: FastAPI would
    # need more time to validate and convert than the engine needs to make a list.

    @app.post("/recommend", response_model=Answer)
    async def recommend(
        body: bodies.recommend,  # type: ignore[name-defined]
        request: Request,
        model: ModelName = None,
    ) -> Response:
        """Recommend items to a user of the training data, or to a new user with a history.

        An unknown user without a history gets popular items. `source` and `unknown_user` say so.
        """
        served = models.choose(request, model, body.user)
        answer = await served.engine.ask(body.query())
        if exposures is not None:
            exposures.note(request, [served.name], [answer])
        return Response(schemas.ANSWER.dump_json(answer), media_type=JSON)

    answer_plainly(app, "/recommend", bodies.recommend, recommend)

    @app.post("/recommend/batch", response_model=list[Answer])
    async def recommend_batch(
        body: bodies.batch,  # type: ignore[name-defined]
        request: Request,
        model: ModelName = None,
    ) -> Response:
        """Recommend items to many users.

        Unknown users get popular items; `unknown_user` marks them.
        """
        answers = await models.answer_all(request, model, body.queries())
        if exposures is not None:
            names = [model or models.of_user(user).name for user in body.users]
            exposures.note(request, names, answers)
        content = await asyncio.to_thread(schemas.answers_as_json, answers)
        return Response(content, media_type=JSON)

    @app.post("/similar", response_model=list[schemas.SimilarItem] | list[schemas.SimilarUser])
    async def similar(
        body: bodies.similar,  # type: ignore[name-defined]
        request: Request,
        model: ModelName = None,
    ) -> Any:
        """Return the items most similar to an item, or the users most similar to a user."""
        engine = models.choose(request, model, body.user).engine
        recommender = engine.loaded.recommender
        if body.item is not None:
            found = await engine.run(recommender.similar_items, body.item, body.k)
        elif not list_users:
            raise HTTPException(403, NO_USERS)
        else:
            found = await engine.run(recommender.similar_users, body.user, body.k)
        return found.to_dicts()

    @app.get("/items", response_model=list[schemas.Item])
    async def items(
        request: Request, q: SearchText = "", limit: SearchLimit = 20, model: ModelName = None
    ) -> Any:
        """Find items by a part of their name or id; without `q`, return the most popular."""
        engine = models.choose(request, model).engine
        return (await engine.run(find_items, engine.bundle, q, limit)).to_dicts()

    @app.get("/attributes", response_model=list[schemas.Column])
    async def attributes(request: Request, model: ModelName = None) -> Any:
        """List the attributes of items by which requests may filter: kinds, ranges, top values."""
        engine = models.choose(request, model).engine
        return await engine.run(described, engine.bundle.about_items)

    @app.get("/model")
    async def describe(request: Request, model: ModelName = None) -> dict[str, Any]:
        """Describe a model in service: data, protocol, figures, training, config."""
        engine = models.choose(request, model).engine
        loaded = engine.loaded
        card = await asyncio.to_thread(model_card, loaded.recommender.bundle, engine.folder)
        return card | {
            "lists_users": list_users,
            "takes_feedback": request.app.state.takes_feedback,
            "max_k": limits.k,
            "bundle": loaded.checksum,
        }

    @app.get("/models")
    async def every_model() -> list[schemas.Model]:
        """List the models in service. Others are chosen with `?model=NAME`."""
        described = []
        for served in models:
            loaded = served.engine.loaded
            record = loaded.recommender.bundle.record
            described.append(
                schemas.Model(
                    name=served.name,
                    share=served.share,
                    default=served is models.default,
                    model=record.model,
                    dataset=record.dataset,
                    bundle=loaded.checksum,
                )
            )
        return described
