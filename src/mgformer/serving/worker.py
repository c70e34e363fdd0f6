"""One process of the service: what it serves is told by the environment."""

import gc
import os
from pathlib import Path

import torch
from fastapi import FastAPI
from threadpoolctl import threadpool_limits

from mgformer.serving.app import create_app
from mgformer.serving.limits import Limits

RUN, KEY, LIMITS = "MGFORMER_SERVE_RUN", "MGFORMER_API_KEY", "MGFORMER_SERVE_LIMITS"


def app() -> FastAPI:
    """Return the service that the environment describes."""
    # A request is small: threads cost more than they save.
    torch.set_num_threads(1)
    threadpool_limits(1)
    k, body = map(int, os.environ[LIMITS].split())
    limits = Limits(k=k, body_bytes=body)
    service = create_app(Path(os.environ[RUN]), limits=limits, api_key=os.environ.get(KEY) or None)
    # What is there now stays: requests need not wait for it to be searched for garbage.
    gc.collect()
    gc.freeze()
    return service
