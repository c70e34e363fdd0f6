"""mgformer serve: a trained recommender as an HTTP service with a web page."""

import os

from typer import Option

from mgformer.cli.console import err, working
from mgformer.cli.options import RunFolder, Signed, key_in
from mgformer.errors import ConfigError


def command(
    run: RunFolder,
    host: str = Option("127.0.0.1", help="Address to listen on; 0.0.0.0 for all interfaces."),
    port: int = Option(8000, min=0, max=65_535, help="Port to listen on."),
    workers: int = Option(1, min=1, help="Number of processes."),
    max_k: int = Option(1_000, min=1, help="Largest k of a request."),
    max_body: int = Option(1_000_000, min=1, help="Largest body of a request, in bytes."),
    signed: Signed = None,
) -> None:
    """Serve recommendations over HTTP, with a web page to try them.

    Set MGFORMER_API_KEY to require this key in the header X-API-Key of every request. If a new
    model is trained into the same folder, the service loads it without a pause.
    """
    try:
        import uvicorn

        from mgformer.runs.bundle_files import load_bundle
        from mgformer.serving import worker
        from mgformer.serving.monitoring import LOGGING
    except ImportError:
        raise ConfigError("serving needs an extra: pip install 'mgformer[serve]'") from None
    with working():
        load_bundle(
            run, key_in(signed)
        )  # a broken bundle is reported once, before any worker starts
    # Workers are separate processes. They read from the environment what to serve.
    os.environ[worker.RUN] = str(run)
    os.environ[worker.SIGNED] = "" if signed is None else str(signed.absolute())
    os.environ[worker.LIMITS] = f"{max_k} {max_body}"
    err.print(f"serving {run} at http://{host}:{port}  (press Ctrl-C to stop)", style="dim")
    uvicorn.run(
        "mgformer.serving.worker:app",
        host=host,
        port=port,
        workers=workers,
        factory=True,
        log_config=LOGGING,
        access_log=False,
        timeout_graceful_shutdown=10,
        # A worker does not answer health checks while it imports torch and loads the bundle. On a
        # slow machine that takes a minute, and a shorter timeout would kill it in a loop.
        timeout_worker_healthcheck=120,
    )
