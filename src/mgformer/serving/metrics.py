"""Counters and latencies of the service for Prometheus.

Each worker counts its own requests and labels them with its process id. With several workers, one
of them answers each scrape, and the label keeps their counters apart.
"""

import os
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
"""Upper bounds of the latency histogram, in seconds."""


class Metrics:
    """The figures of one worker."""

    def __init__(self) -> None:
        self.worker, self._registry = str(os.getpid()), CollectorRegistry()
        own: dict[str, Any] = {"namespace": "mgformer", "registry": self._registry}
        labels = ["worker", "method", "path", "status"]
        self._requests = Counter("requests", "Requests answered.", labels, **own)
        about, labels = "Time to answer a request.", ["worker", "path"]
        self._seconds = Histogram("request_seconds", about, labels, buckets=BUCKETS, **own)
        self._reloads = Counter("reloads", "Reloads, by result.", ["worker", "result"], **own)
        self._waiting = Gauge("waiting", "Requests in the queue.", ["worker"], **own)
        about = "When the bundle in service was loaded."
        self._loaded = Gauge("loaded_timestamp_seconds", about, ["worker"], **own)

    def count_request(self, method: str, path: str, status: int, seconds: float) -> None:
        """Count a request. The path is that of the route, which keeps the labels few."""
        self._requests.labels(self.worker, method, path, status).inc()
        self._seconds.labels(self.worker, path).observe(seconds)

    def count_reload(self, result: str) -> None:
        """Count a reload: loaded, unchanged or failed."""
        self._reloads.labels(self.worker, result).inc()

    def text(self, waiting: int, loaded_at: float) -> bytes:
        """Return all figures in the text format of Prometheus."""
        self._waiting.labels(self.worker).set(waiting)
        self._loaded.labels(self.worker).set(loaded_at)
        return generate_latest(self._registry)
