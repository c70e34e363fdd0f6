"""One process of the service: what it serves is told by the environment."""

import gc
import logging
import os
import sys
import time
from pathlib import Path

import torch
from fastapi import FastAPI
from threadpoolctl import threadpool_limits

from mgformer.errors import MgformerError
from mgformer.serving.app import create_app
from mgformer.serving.limits import Limits

RUN, KEY, LIMITS = "MGFORMER_SERVE_RUN", "MGFORMER_API_KEY", "MGFORMER_SERVE_LIMITS"
PAUSE_SECONDS = 10.0
"""Between attempts to start a worker: each keeps a core busy for seconds that others need."""
SWITCH_SECONDS = 0.001
"""For so long the thread that computes may keep the one that hears and answers waiting; by default
it is five times that, longer than most answers take."""
UNUSABLE = 2
"""The exit code of a worker without a usable bundle: that of the command line for the same; at 3
uvicorn would stop all workers."""

log = logging.getLogger("mgformer.serving")


def app() -> FastAPI:
    """Return the service that the environment describes."""
    # A request is small: threads cost more than they save.
    torch.set_num_threads(1)
    threadpool_limits(1)
    sys.setswitchinterval(SWITCH_SECONDS)
    k, body = map(int, os.environ[LIMITS].split())
    limits = Limits(k=k, body_bytes=body)
    try:
        service = create_app(
            Path(os.environ[RUN]), limits=limits, api_key=os.environ.get(KEY) or None
        )
    except MgformerError as error:
        # The command has tried the bundle before: this takes the place of a worker that has ended,
        # and is itself started again, until there is something to serve. Others go on meanwhile.
        log.error("a worker cannot start, the next attempt follows: %s", error)
        time.sleep(PAUSE_SECONDS)
        sys.exit(UNUSABLE)
    # What is there now stays: requests need not wait for it to be searched for garbage.
    gc.collect()
    gc.freeze()
    return service
