"""One process of the service. Environment variables tell it what to serve."""

import gc
import json
import logging
import os
import sys
import time
from pathlib import Path

import prometheus_client
import torch
from fastapi import FastAPI
from threadpoolctl import threadpool_limits

from mgformer.errors import MgformerError
from mgformer.serving.app import create_app
from mgformer.serving.limits import Limits
from mgformer.serving.search import Search
from mgformer.signatures import read_key

KEY, OPTIONS = "MGFORMER_API_KEY", "MGFORMER_SERVE_OPTIONS"
RUNS = "MGFORMER_SERVE_RUNS"
"""Names and folders of the models, as JSON."""
SIGNED = "MGFORMER_SERVE_SIGNED"
"""Names the file with the key that bundles must be signed with; empty if they need not be."""
UNUSABLE = 2
"""Exit code of a worker without a usable bundle, as on the command line. Code 3 would make uvicorn
stop all workers."""

log = logging.getLogger("mgformer.serving")


def app(pause_seconds: float = 10.0) -> FastAPI:
    """Return the service that the environment describes.

    A worker that cannot load the bundle waits for `pause_seconds` before it exits, because starting
    the next one keeps a core busy for seconds.
    """
    # Requests are small, and more threads would cost more time than they save.
    torch.set_num_threads(1)
    threadpool_limits(1)
    # While the event loop waits, the computing thread may hold the interpreter for this long. The
    # default of Python is five times as long, which is more than most answers take.
    sys.setswitchinterval(0.001)
    prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]
    options = json.loads(os.environ[OPTIONS])  # arguments of create_app
    options |= {"limits": Limits(**options["limits"]), "api_key": os.environ.get(KEY) or None}
    signed = os.environ.get(SIGNED)
    try:
        key = read_key(Path(signed)) if signed else None
        folders = {name: Path(folder) for name, folder in json.loads(os.environ[RUNS]).items()}
        log_folder = options.pop("feedback", None)
        options["feedback"] = None if log_folder is None else Path(log_folder)
        rules = options.pop("rules", None)
        options["rules"] = None if rules is None else Path(rules)
        options["search"] = Search(**options.get("search", {}))
        service = create_app(folders, signature_key=key, **options)
    except MgformerError as error:
        # The command has checked the bundle before the first worker, so this worker replaces one
        # that has died. uvicorn starts new ones until the bundle is usable; the others keep going.
        log.error("a worker cannot start, another one will try: %s", error)
        time.sleep(pause_seconds)
        sys.exit(UNUSABLE)
    # The garbage collector never has to look at the loaded bundle again.
    gc.collect()
    gc.freeze()
    return service
