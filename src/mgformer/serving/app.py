"""The HTTP service: loads a bundle, follows its folder, reports its state, and serves the page.

`mgformer serve` runs it. Any other ASGI server can: `create_app(Path("runs/mine"))`.
"""

import asyncio
import contextlib
import logging
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.responses import FileResponse, PlainTextResponse
from fastapi.staticfiles import StaticFiles

from mgformer.errors import MgformerError
from mgformer.serving.engine import Engine
from mgformer.serving.failures import FAILURES, HANDLERS
from mgformer.serving.limits import Gate, Limits
from mgformer.serving.metrics import Metrics
from mgformer.serving.routes import add_routes
from mgformer.serving.schemas import Reloaded
from mgformer.version import __version__

PAGE = Path(__file__).parent / "page"
DEFAULT_LIMITS = Limits()

log = logging.getLogger("mgformer.serving")


def create_app(
    folder: Path,
    *,
    limits: Limits = DEFAULT_LIMITS,
    api_key: str | None = None,
    watch_seconds: float | None = 2.0,
) -> FastAPI:
    """Return the service for the bundle in a folder.

    Args:
        folder: A trained recommender.
        limits: Limits of a request.
        api_key: If given, every request except health checks needs it in the header X-API-Key.
        watch_seconds: How often to look for a new bundle in the folder; None to never look.
    """
    metrics, engine = Metrics(), Engine(folder)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        watching = None if watch_seconds is None else loop.create_task(watch(watch_seconds))
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
            # Signal handlers exist on Unix, in the main thread only.
            loop.add_signal_handler(signal.SIGHUP, lambda: loop.create_task(try_reload()))
        yield
        if watching is not None:
            watching.cancel()
        engine.close()

    async def reload(*, requested: bool = True) -> bool:
        try:
            changed = await engine.reload()
        except Exception:
            metrics.count_reload("failed")
            raise
        if changed or requested:
            metrics.count_reload("loaded" if changed else "unchanged")
        return changed

    async def try_reload(*, requested: bool = True) -> None:
        try:
            # A bundle that could not be loaded is not tried again before its files change.
            if requested or await engine.has_new_files():
                await reload(requested=requested)
        except MgformerError as error:
            log.error("cannot use the new bundle, keeping the old one: %s", error)
        except Exception:
            log.exception("cannot load the new bundle, keeping the old one")

    async def watch(seconds: float) -> None:
        while True:
            await asyncio.sleep(seconds)
            await try_reload(requested=False)

    app = FastAPI(
        title="mgformer",
        version=__version__,
        description="Recommendations from a trained bundle.",
        lifespan=lifespan,
        responses=FAILURES,
        exception_handlers=HANDLERS,
        docs_url=None,
        redoc_url=None,
    )
    app.add_middleware(Gate, limits=limits, metrics=metrics, api_key=api_key)
    app.state.engine = engine
    add_routes(app, engine, limits)

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
        return PlainTextResponse(metrics.text(engine.waiting, engine.loaded.since))

    @app.post("/admin/reload")
    async def admin_reload() -> Reloaded:
        """Load the bundle that is in the folder now; running requests finish on the old one."""
        return Reloaded(changed=await reload(), bundle=engine.loaded.checksum)

    @app.get("/", include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(PAGE / "index.html")

    app.mount("/page", StaticFiles(directory=PAGE), name="page")
    if api_key is not None:
        document = app.openapi()  # FastAPI keeps this object and answers with it
        scheme = {"type": "apiKey", "in": "header", "name": "X-API-Key"}
        document["components"]["securitySchemes"] = {"key": scheme}
        document["security"] = [{"key": []}]
    return app
